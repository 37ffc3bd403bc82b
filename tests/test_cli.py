"""The command line: exit codes, streams, speed of the first answer."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from groupwise.cli.app import run
from groupwise.cli.overrides import parse_overrides
from groupwise.errors import RecipeError

RECIPE = Path(__file__).parents[1] / "recipes" / "tiny_arithmetic.toml"


def test_help_answers_in_half_a_second() -> None:
    """Processor time, which a busy neighbour does not change; on a quiet machine it is the wait."""
    command = [sys.executable, "-m", "groupwise", "--help"]
    spent = []
    for _ in range(3):
        before = os.times()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        after = os.times()
        spent.append(
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
    assert "train" in done.stdout
    assert min(spent) < 0.5


def test_every_field_is_a_flag() -> None:
    parsed = parse_overrides(["--training.steps", "5", "--seed=3", "--sampling.stop", "[]"])
    assert parsed == {"training.steps": "5", "seed": "3", "sampling.stop": "[]"}
    with pytest.raises(RecipeError, match=r"--training\.steps"):
        parse_overrides(["--steps", "5"])
    with pytest.raises(RecipeError, match="--overwrite"):
        parse_overrides(["--overwrit"], ("overwrite",))
    with pytest.raises(RecipeError, match="no value"):
        parse_overrides(["--training.steps"])


def test_train_plan_eval_and_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole way of a user, small: each command exits 0 and says what it should."""
    output = tmp_path / "run"
    common = ["--training.steps", "3", "--evaluation.samples", "2"]
    assert run(["train", str(RECIPE), "--output", str(output), *common]) == 0
    shown = capsys.readouterr()
    assert "held-out prompts, greedy" in shown.out
    assert "not a progress signal" in shown.err
    assert run(["plan", str(RECIPE), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["completions_per_step"] == 256
    assert made["updates_per_step"] == 1
    assert made["steps_per_epoch"] == pytest.approx(44 / 32)
    assert run(["eval", str(output), "--json", "--evaluation.samples", "2"]) == 0
    measured = json.loads(capsys.readouterr().out)
    summary = json.loads((output / "summary.json").read_text())
    assert measured["eval/accuracy"] == summary["eval/accuracy_last"]
    assert measured["eval/greedy"] == summary["eval/greedy_last"]
    assert run(["export", str(output), str(tmp_path / "model")]) == 0
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "1+2="}], tokenize=False, add_generation_prompt=True
    )
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
    assert model(ids).logits.shape[1] == ids.shape[1]


def test_plan_compares_with_ppo(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", str(RECIPE), "--compare", "ppo", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["algorithms"] == ["grpo", "ppo"]
    assert made["memory"]["critic weights"][0] == 0 < made["memory"]["critic weights"][1]
    assert run(["plan", str(RECIPE), "--compare", "pppo"]) == 2
    assert "ppo" in capsys.readouterr().err


def test_algorithms_and_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["algorithms"]) == 0
    listed = capsys.readouterr().out
    for name in ("reinforce", "rloo", "grpo", "dr_grpo", "dapo", "gspo"):
        assert name in listed
    assert run(["algorithms", "show", "dr_grpo"]) == 0
    assert "2503.20783" in capsys.readouterr().out
    assert run(["models"]) == 0
    assert "smollm2-135m" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["train", str(RECIPE), "--sampling.group_size", "1"], 2, "sampling.group_size"),
        (["train", str(RECIPE), "--training.stepz", "1"], 2, "steps"),
        (["train", "missing.toml"], 2, "tiny_arithmetic.toml"),
        (["train"], 2, "recipe"),
        (["trian"], 2, "trian"),
        (["algorithms", "show", "dapoo"], 2, "dapo"),
        (["models", "get", "smollm"], 2, "smollm2-135m"),
        (["export", "nowhere", "x"], 2, "nowhere"),
    ],
)
def test_bad_input_exits_with_2_and_one_message_on_standard_error(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if arguments[:1] == ["train"] and len(arguments) > 1:
        arguments = [*arguments, "--output", str(tmp_path / "run")]
    assert run(arguments) == code
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.out == ""
    assert "Traceback" not in shown.err


def test_what_stands_in_brackets_is_printed() -> None:
    """A recipe's table in a message is no markup."""
    from io import StringIO

    from rich.console import Console

    from groupwise.cli.progress import ProgressDisplay

    written = StringIO()
    ProgressDisplay(Console(file=written)).on_warning("set [selection.pool] or [/b]")
    assert "note: set [selection.pool] or [/b]" in written.getvalue()


@pytest.mark.parametrize("splits", [["heldout"], ["train", "heldout"]])
def test_accuracies_of_held_out_prompts_alone_are_shown_once(splits: list[str]) -> None:
    from rich.console import Console

    from groupwise.cli.progress import _accuracy
    from groupwise.cli.tables import closing_table

    values = {"eval/accuracy": 0.5, "eval/greedy": 0.25, "eval/heldout": 0.5}
    values |= {"eval/heldout_greedy": 0.25, "eval/gap": 0.0 if "train" in splits else None}
    summary = {
        "steps": 1, "eval/first": values, "eval/last": values, "reward_last": 0.5, "kl_last": None,
        "tokens": 3, "seconds": 1.0,
    }  # fmt: skip
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(closing_table(summary))
    labels = [row.split("  ")[0].strip(" │┃") for row in console.export_text().splitlines()]
    held = ["held-out prompts, sampled", "held-out prompts, greedy"]
    every = ["all prompts, sampled", "all prompts, greedy"]
    found = [label for label in labels if "prompts" in label]
    assert found == (held if splits == ["heldout"] else every + held)
    line = _accuracy(values)
    assert line.count("50.0%") == len(splits)


def test_a_pipelines_tables_fit_eighty_columns() -> None:
    from rich.console import Console

    from groupwise.cli.tables import stages_tables

    figures = {
        "loss": 0.25, "guard/accuracy": 0.5, "guard/accuracy_low": 0.215,
        "guard/accuracy_high": 0.785, "guard/greedy": 1.0, "guard/tokens_mean": 19.5,
        "guard/verifier/accuracy": 0.5, "guard/verifier/format": 0.125,
    }  # fmt: skip
    stages = [
        {"name": f"reasoning_{i}", "kind": "distillation", "status": "finished",
         "first": {}, "last": figures}
        for i in range(7)
    ]  # fmt: skip
    stages[-1] |= {"status": "interrupted", "last": {}}
    console = Console(width=80, record=True, file=io.StringIO())
    for table in stages_tables({"stages": stages, "status": "interrupted"}):
        console.print(table)
    lines = [" ".join(line.split()) for line in console.export_text().splitlines()]
    row = "distillation 0.25 50.0% [21.5%, 78.5%] 100.0% 19.5"
    assert [line for line in lines if line.startswith("reasoning")] == [
        *(f"reasoning_{i} {row}" for i in range(6)),
        "reasoning_6 interrupted - - - -",
        *(f"reasoning_{i} 0.5 0.125" for i in range(6)),
        "reasoning_6 - -",
    ]
