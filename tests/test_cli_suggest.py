"""`groupwise suggest` as a user runs it, on the tiny policy, and that its recipes train."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from groupwise.cli.app import run
from groupwise.cli.suggest import _choose_verifier
from groupwise.errors import RecipeError
from groupwise.policies.tiny import sums

DIGIT = '[{name = "regex", arguments = {pattern = "[0-9]"}}]'
PAGE = (Path(__file__).parents[1] / "docs" / "suggest.md").read_text(encoding="utf-8")
TABLE = ["arithmetic", "--environment.level", "table"]


def rows(path: Path, shift: int = 0) -> str:
    lines = [{"prompt": f"{a}+{b}=", "answer": str(a + b + shift)} for a, b in sums()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def suggested(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run(["suggest", *arguments, "--model", "tiny", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_half_known_sums_ask_for_a_group_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.toml"
    found = suggested(capsys, *TABLE, "--output", str(recipe))
    figures = found["figures"]
    assert figures["prompts"] == 44
    assert 0.36 < figures["accuracy_low"] < figures["accuracy"] < 0.46
    assert figures["accuracy"] == pytest.approx(sum(found["rates"]) / 44)
    assert figures["greedy"] == 1.0
    assert figures["pass@32"] == 1.0
    assert (found["amplify"], found["sure"], found["method"]) == (True, True, "group_rl")
    shares = {size: figures[f"no_signal@{size}"] for size in (2, 4, 8, 16, 32)}
    size = found["suggested"]["sampling.group_size"]["value"]
    assert size == min(each for each, share in shares.items() if share < 0.25) == 4
    assert any("sharpen" in note for note in found["notes"])
    for name, each in found["suggested"].items():  # docs/suggest.md shows this report
        assert re.search(rf"^{name} +{each['value']} +{re.escape(each['reason'])}$", PAGE, re.M)
    assert found["recipe"] == str(recipe)
    text = recipe.read_text()
    reason = found["suggested"]["sampling.group_size"]["reason"]
    assert f"# {reason}\ngroup_size = 4\n" in text
    table = tomllib.loads(text)
    assert table["training"]["prompts_per_step"] == 19  # 16 groups of 19 have a signal
    output = tmp_path / "run"
    less = ["--training.steps", "2", "--evaluation.samples", "1", "--evaluation.max_prompts", "4"]
    less += ["--environment.audit", "false"]
    assert run(["train", str(recipe), "--quiet", "--output", str(output), *less]) == 0
    assert json.loads((output / "summary.json").read_text())["steps"] == 2


def test_what_is_never_solved_asks_for_a_supervised_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, recipe = rows(tmp_path / "rows.jsonl", shift=50), tmp_path / "recipe.toml"
    found = suggested(capsys, data, "--output", str(recipe), "--samples", "8")
    assert found["figures"]["accuracy"] == 0.0
    assert found["figures"]["never_solved"] == 50
    assert (found["amplify"], found["sure"], found["method"]) == (False, True, "supervised_first")
    assert found["verifier"] == "verifier number: every answer is a number"
    first = json.loads((tmp_path / "recipe.rows.jsonl").read_text().splitlines()[0])
    assert [each["content"] for each in first["messages"]] == ["0+0=", "50"]
    output = tmp_path / "run"
    less = ["--stages.start.training.steps", "2", "--stages.rl.training.steps", "2"]
    less += ["--small", "--environment.audit", "false"]
    assert run(["train", str(recipe), "--quiet", "--output", str(output), *less]) == 0
    stages = json.loads((output / "summary.json").read_text())["stages"]
    assert [each["name"] for each in stages] == ["start", "rl"]
    assert run(["suggest", data, "--model", "tiny", "--output", str(recipe)]) == 2
    assert "is there already" in capsys.readouterr().err


def test_what_is_always_solved_asks_for_harder_data(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*TABLE, "--environment.verifiers", DIGIT, "--samples", "8"]
    found = suggested(capsys, *arguments, "--sampling.max_tokens", "2")
    assert found["figures"]["accuracy"] > 0.98
    assert (found["amplify"], found["method"]) == (False, "harder_data")
    assert found["suggested"]["sampling.max_tokens"] == {"value": 2, "reason": "as given"}


def test_few_prompts_cannot_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = rows(tmp_path / "rows.jsonl", shift=50)
    few = ["--prompts", "3", "--samples", "8"]
    found = suggested(capsys, data, *few)
    assert found["sure"] is False
    assert set(found) == {
        *("data", "model", "verifier", "method", "amplify", "sure", "verdict", "notes"),
        *("figures", "rates", "suggested", "recipe"),
    }
    assert run(["suggest", data, "--model", "tiny", *few]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "cannot tell from 3 prompts; measure more (--prompts)" in shown
    assert "no_signal@8 1 [0.139, 1]" in shown
    cut = suggested(capsys, data, *few, "--sampling.max_tokens", "1")
    assert "raise --sampling.max_tokens" in cut["verdict"]


@pytest.mark.parametrize(
    ("answers", "verifier"),
    [
        (["7", "-2.5", "1/2"], "number"),
        (["A", "(c)"], "choice"),
        (["x^2 + 1", "7"], "math"),
        (["Paris", "7"], "text"),
    ],
)
def test_the_verifier_follows_the_answers(
    answers: list[str], verifier: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    lines = [{"prompt": f"question {n}", "answer": each} for n, each in enumerate(answers)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    environment: dict[str, Any] = {"name": "dataset", "path": str(path)}
    assert _choose_verifier(environment, None).startswith(f"verifier {verifier}: ")
    assert environment["verifiers"] == [{"name": verifier}]
    path.write_text('{"prompt": "question"}\n')
    with pytest.raises(RecipeError, match=r"line 1 has no answer .*--environment.answer"):
        _choose_verifier({"name": "dataset", "path": str(path)}, None)


def no_score(prompts: list[str], completions: list[str], **_: Any) -> list[None]:
    return [None] * len(completions)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.jsonl"], "there is no such file"),
        (["empty.jsonl"], "holds no rows"),
        (["arithmatic"], "did you mean 'arithmetic'?"),
        (["rows.jsonl", "--model", "./broken"], "model.name = './broken'"),
        (["rows.jsonl", "--verifier", "nubmer"], "did you mean 'number'?"),
        (["rows.jsonl", "--verifier", f"{__name__}:no_score"], "completions could be scored"),
        (["rows.jsonl", "--output", "rows.jsonl/a.toml"], "rows.jsonl' is a file; name a folder"),
        (["rows.jsonl", "--samples", "4"], "greater than or equal to 8"),
        (["rows.jsonl", "--verifer", "number"], "did you mean --verifier?"),
    ],
)
def test_bad_input_exits_with_2(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    rows(tmp_path / "rows.jsonl")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{}")
    fast = ["--prompts", "2", "--samples", "8"]
    assert run(["suggest", "--model", "tiny", *fast, *arguments]) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.out == ""
