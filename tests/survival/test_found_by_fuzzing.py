"""What fuzzing found, each with the answer that is right."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import groupwise as gw
from groupwise.checkpoints import load_checkpoint, newest_complete, save_checkpoint
from groupwise.dashboard.data import RunView
from groupwise.doctor import diagnose
from groupwise.environments.chat_messages import message_fault
from groupwise.errors import LINE, GroupwiseError, RecipeError
from groupwise.recipe import load_recipe
from groupwise.records import RunWriter, open_run
from groupwise.records.files import file_hash
from groupwise.templates import parse_tool_calls, tool_schemas
from groupwise.templates.stored_calls import parsed_calls

RECIPE = Path(__file__).parents[2] / "recipes" / "tiny_arithmetic.toml"
DEEP, LONG, NAN = "[" * 100_000, "9" * 5000, float("nan")


@pytest.mark.parametrize("text", [DEEP, LONG])
def test_a_call_that_json_cannot_hold_is_an_error_for_the_policy(text: str) -> None:
    parsed = parse_tool_calls(f'<tool_call>{{"name": "add", "arguments": {text}}}</tool_call>')
    assert parsed.calls == ()
    assert len(parsed.errors) == 1
    assert parsed.errors[0].startswith("tool call 1: not JSON (")
    message = {"role": "assistant", "tool_calls": [{"name": "add", "arguments": text}]}
    with pytest.raises(ValueError, match="calls 'add' with arguments that are not JSON"):
        parsed_calls(message)
    with pytest.raises(ValueError, match="which is not JSON"):
        tool_schemas(text)


def test_json_and_toml_of_others_are_read_in_one_place() -> None:
    """`texts.from_json` and `from_toml` raise nothing but ValueError; json and tomllib do."""
    source = Path(gw.__file__).parent
    own = {"texts.py", "environments/readers.py", "algorithms/describe.py"}  # the last: our file
    found = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("json.loads", "tomllib.loads")
    }
    inside = {each for each in found - own if not each.startswith("sandbox/")}
    assert inside == {
        "environments/mixture.py",  # signatures of its own verifiers
        "examples/rule_judge.py",
        "examples/tiny_agent.py",
        "proving/child.py",
        "templates/template.py",  # the tokenizer's own text
        "training/collecting.py",  # a checked checkpoint's
        "verifiers/audit/probes.py",  # our file
    }


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"seed": LONG}, r"seed = '9+ \.\.\. \(5\d\d\d characters in all\) \.\.\. 9+'"),
        ({"seed": DEEP}, r"seed = '\[+ \.\.\. .*expected a whole number"),
        ({"[": 1}, r"^unknown key '\['; known: seed, model"),
        ({"training.[x]": 1}, r"^unknown key 'training\.\[x\]'; known: "),
        ({"\ud800": 1}, r"^a name = '\\ud800'"),
        (
            {"environment.verifiers": [{"name": "number", "arguments": {"tolerance": NAN}}]},
            r"^environment\.verifiers\.0\.arguments\.tolerance = nan would be recorded as nan;",
        ),
    ],
)
def test_a_recipe_s_wrong_value_is_named_in_a_message_that_can_be_read(
    overrides: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        load_recipe(RECIPE, overrides)
    assert all(len(line) <= LINE for line in str(caught.value).split("\n"))


def test_a_recipe_that_toml_cannot_read_is_refused(tmp_path: Path) -> None:
    for text, cause in ((f"seed = {LONG}", "4300 digits"), (f"seed = {DEEP}", "too deeply")):
        (tmp_path / "r.toml").write_text(text)
        with pytest.raises(RecipeError, match=f"not a TOML file: .*{cause}"):
            load_recipe(tmp_path / "r.toml")


def test_a_message_with_a_whole_table_is_cut_and_keeps_its_end() -> None:
    said = str(GroupwiseError(f"field = {'x' * 9000}; give 3\n" + "line\n" * 99))
    first, *rest = said.split("\n")
    assert len(first) == LINE
    assert first.startswith("field = xxx")
    assert first.endswith("xxx; give 3")
    assert (len(rest), rest[-1]) == (20, "... (81 lines more)")


def test_the_fault_of_a_message_does_not_repeat_it() -> None:
    assert len(str(message_fault({"x" * 9000: 1}))) < 200


def row() -> dict[str, Any]:
    return {
        "step": 0, "version": 0, "kind": "training", "prompt_id": "p", "visit": 0,
        "group_index": 0, "prompt": "3+4=", "answer": "7", "prompt_ids": [5],
        "completion_ids": [7], "mask": [True], "sampler_logprobs": [-1.0], "text": "7",
        "finish_reason": "stop", "reward": 1.0, "rewards": {"number": 1.0}, "outcome": "correct",
        "reason": "", "advantage": 0.0,
    }  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    with RunWriter.create(folder, "seed = 0\n", {}) as writer:
        writer.rollouts(0, [row(), row() | {"group_index": 1}])
        writer.metrics(0, {"reward": 1.0, "completions/count": 2})
    return folder


def rewrite(run: Path, name: str, values: list[Any] | None) -> None:
    path = run / "rollouts" / "step_000000.parquet"
    table = pq.read_table(path)
    place = table.column_names.index(name)
    table = table.remove_column(place)
    pq.write_table(table if values is None else table.append_column(name, pa.array(values)), path)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("text", [None, "7"], "text is null in 1 of 2 rows"),
        ("outcome", [None, None], "outcome is null in 2 of 2 rows"),
        ("prompt_ids", [None, [1]], "prompt_ids is null in 1 of 2 rows"),
        ("completion_ids", ["a", "b"], "completion_ids is of type string, and list"),
        ("reward", [[1.0], [0.0]], "reward is of type list.*, and double"),
        ("rewards", [1.0, 0.0], "rewards is of type double, and a struct"),
        ("mask", [{"a": 1}, {"a": 2}], "mask is of type struct.*, and list"),
        ("text", None, "it lacks text"),
    ],
)
def test_a_record_s_column_of_another_form_is_named(
    run: Path, name: str, values: list[Any] | None, message: str
) -> None:
    rewrite(run, name, values)
    for read in (lambda: open_run(run).rollouts(), lambda: RunView(open_run(run)).whole(8)):
        with pytest.raises(RecipeError, match=f"step_000000.parquet.*{message}"):
            read()


def test_a_record_without_the_columns_of_today_reads_as_if_they_were_there(run: Path) -> None:
    for name in ("kind", "visit", "prompt", "mask", "limit"):
        rewrite(run, name, None)
    first = open_run(run).rollouts().to_pylist()[0]
    assert (first["kind"], first["visit"], first["prompt"]) == ("training", 0, "")
    assert (first["mask"], first["limit"]) == ([], None)
    assert diagnose(run).steps == 1


@pytest.mark.parametrize("name", ["resident", "peak", "memory", "step_seconds"])
@pytest.mark.parametrize("value", [None, "much"])
def test_a_plan_without_its_figures_is_not_strayed_from(
    tmp_path: Path, name: str, value: str | None
) -> None:
    plan = {"resident": 10**6, "peak": 2 * 10**6, "memory": 10**6, "step_seconds": 1.0}
    for folder, planned in ((tmp_path / "whole", plan), (tmp_path / "torn", plan | {name: value})):
        with RunWriter.create(folder, "seed = 0\n", {}) as writer:
            writer.event("planned", **planned)
            for step in range(2):
                writer.rollouts(step, [row() | {"step": step}])
                writer.metrics(step, {"reward": 1.0, "memory/peak_bytes": 10**10})
        found = {each.kind for each in diagnose(folder).findings}
        assert ("strays_from_plan" in found) == (folder.name == "whole")
        shown = RunView(open_run(folder)).overview()["plan"]
        assert [each["planned"] for each in shown] == (
            [10**6, 1.0, None] if folder.name == "whole" else []
        )


@pytest.mark.parametrize(
    ("file", "content", "read", "message"),
    [
        ("summary.json", "{}", lambda run: run.summary, "status = None; expected str"),
        ("summary.json", DEEP, lambda run: run.summary, "nested too deeply"),
        ("recipe.toml", f"x = {DEEP}", lambda run: run.recipe, "nested too deeply"),
        ("metrics.jsonl", '{"step": 0, "kl": [1]}\n', lambda run: run.metrics(), r"kl = \[1\]"),
        ("metrics.jsonl", f"{LONG}\n", lambda run: run.metrics(), "line 1 is not JSON"),
        (
            "events.jsonl",
            '{"kind": "evaluation", "version": "1"}\n',
            lambda run: run.evaluations(),
            "version = '1'; expected int",
        ),
    ],
)
def test_a_record_s_file_of_another_form_is_named(
    run: Path, file: str, content: str, read: Any, message: str
) -> None:
    (run / file).write_text(content)
    with pytest.raises(RecipeError, match=message):
        read(open_run(run))


@pytest.mark.parametrize(
    ("name", "content", "step"),
    [
        ("extra.safetensors", b"", 2),
        ("model.safetensors", b"\xff" * 64, 2),
        ("optimizer.json", b'{"tensor": "gone"}', 2),
        ("optimizer.json", DEEP.encode(), 2),
        ("state.json", b"[]", 1),
        ("state.json", b'{"step": 2, "format": 1, "state": {}, "aliases": 3, "metrics": {}}', 1),
        ("state.json", DEEP.encode(), 1),
    ],
)
def test_a_checkpoint_whose_manifest_agrees_with_a_broken_file(
    tmp_path: Path, name: str, content: bytes, step: int
) -> None:
    """State of another form is damage, and the older one is used; broken tensors are an error."""
    for number in (1, 2):
        values = {"model_state": {"a": torch.ones(2)}, "optimizer_state": {"a": torch.ones(1)}}
        save_checkpoint(tmp_path, number, **values, state={}, metrics={"eval/greedy": 0.5})
    newest = tmp_path / "step_000002"
    (newest / name).write_bytes(content)
    manifest = json.loads((newest / "manifest.json").read_text())
    manifest["files"][name] = {"bytes": len(content), "sha256": file_hash(newest / name)}
    (newest / "manifest.json").write_text(json.dumps(manifest))
    if step == 1:
        with pytest.warns(UserWarning, match=r"state\.json is damaged"):
            assert newest_complete(tmp_path) == tmp_path / "step_000001"
    with pytest.raises(GroupwiseError, match=r"cannot be read|state\.json is damaged"):
        load_checkpoint(newest)
    assert load_checkpoint(tmp_path / "step_000001").step == 1
