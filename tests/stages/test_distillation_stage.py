"""The distillation stage: traces of a model and of an endpoint, other stages' models, resume."""

from __future__ import annotations

import json
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import groupwise as gw
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.stages import check_pipeline, load_pipeline, traces
from groupwise.stages.keeping import Rules, keep
from groupwise.stages.traces import Trace
from groupwise.training.callbacks import Callback
from groupwise.training.planned import plan_of
from judge_server import serving
from pipeline_helpers import pipeline

SHARP = {
    "name": "teacher",
    "kind": "rl",
    "training": {"steps": 2, "prompts_per_step": 8, "learning_rate": 1e-3},
}
TRACES: dict[str, Any] = {
    "name": "student",
    "kind": "distillation",
    "from": "base",
    "teacher": {"name": "tiny"},
    "prompts": 40,
    "training": {"steps": 4, "examples_per_step": 8, "learning_rate": 1e-3},
    "checkpoints": {"every": 2},
}
ON_POLICY: dict[str, Any] = {
    "name": "student",
    "kind": "distillation",
    "mode": "on_policy",
    "from": "base",
    "algorithm": {"preset": "on_policy_distillation"},
    "teacher": {"stage": "teacher", "temperature": 0.5},
    "training": {"steps": 3, "prompts_per_step": 6, "learning_rate": 1e-3},
    "checkpoints": {"every": 1},
}
CHAT = {"messages": [{"role": "user", "content": "3+4="}, {"role": "assistant", "content": "7"}]}


def weights(folder: Path, stage: str = "student") -> dict[str, torch.Tensor]:
    return load_file(folder / "stages" / stage / "model" / "model.safetensors")


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    path = folder / "stages" / "student" / name
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, other[key]) for key, tensor in one.items())


class Break(Callback):
    """Raises at a step of a stage, as a killed process would end there."""

    def __init__(self, stage: str, step: int) -> None:
        self.place, self.stage = (stage, step), ""

    def on_stage(self, name: str, kind: str, folder: Path) -> None:
        self.stage = name

    def on_step(self, line: Any) -> None:
        if self.place == (self.stage, line["step"]):
            raise KeyboardInterrupt


def trace(text: str, accuracy: float | None = 1.0, prompt: str = "p", fault: str = "") -> Trace:
    outcome = {1.0: "correct", 0.0: "incorrect", None: "not_applicable"}[accuracy]
    return Trace(prompt, {"prompt": "3+4=", "completion": text}, text, accuracy, outcome, fault)


def test_the_plan_counts_the_teachers_and_the_reference_of_every_stage() -> None:
    stage: dict[str, Any] = {"kind": "distillation", "mode": "on_policy", "training": {"steps": 1}}
    stage["algorithm"] = {"preset": "on_policy_distillation"}
    teacher = {**stage, "name": "a", "teacher": {"name": "tiny"}}
    own = {**stage, "name": "b", "mode": "self", "teacher": {"context": "answer"}}
    rl = {"kind": "rl", "algorithm": {"kl_coef": 0.1}, "training": {"steps": 1}}
    made = check_pipeline(load_pipeline(pipeline(Path(), teacher, own, rl)))
    for name, kind in (("a", "teachers"), ("b", "teachers"), ("rl", "reference")):
        held = plan_of(made[name]).memory.always
        assert held[kind] == held["weights"] > 0
    assert "teachers" not in plan_of(made["rl"]).memory.always


def test_every_trace_is_kept_or_dropped_with_its_reason() -> None:
    given = [
        trace("7"),
        trace("7"),
        trace("7", prompt="q"),
        trace("8", 0.0),
        trace("it is 7"),
        trace("so 7"),
        trace("7 7 7", fault="not finished (length)"),
        trace("", fault="no reply within 1 s, 3 tries"),
        trace("?", None),
    ]
    found = keep(given, Rules(per_prompt=2))
    assert [row["completion"] for row in found.rows] == ["7", "it is 7", "7"]
    assert [row["reason"] for row in found.dropped] == [
        "a duplicate",
        "not correct: incorrect",
        "more than 2 of its prompt",
        "not finished (length)",
        "failed: no reply within 1 s, 3 tries",
        "not correct: not_applicable",
    ]
    assert found.reasons["not correct"] == 2
    every = keep(given, Rules(keep="all", duplicates=True))
    assert len(every.rows) == 7
    assert {row["reason"] for row in every.rows} == {"no verdict asked"}


def test_traces_of_a_local_teacher_and_a_resume_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while the teacher writes (a torn line), between two checkpoints of the fit, and at
    the end: the same rows and weights. The kept rows are what a supervised stage reads."""
    reader = {
        "name": "again",
        "kind": "supervised",
        "from": "base",
        "data": {"stage": "student"},
        "training": TRACES["training"],
    }
    recipe = pipeline(Path(), TRACES, reader)
    run = gw.train(recipe, output=tmp_path / "whole")
    student = run.summary["stages"][0]
    kept, dropped = rows(run.folder, "data.jsonl"), rows(run.folder, "dropped.jsonl")
    assert len(kept) + len(dropped) == 40 * 4
    assert (student["last"]["traces/kept"], student["last"]["traces/dropped"]) == (
        len(kept),
        len(dropped),
    )
    assert {row["reason"] for row in kept} == {"correct"}
    for row in kept:
        question, answer = (message["content"] for message in row["messages"])
        assert eval(question.rstrip("=")) == int(answer)
    kinds = Counter(row["reason"].partition(":")[0] for row in dropped)
    assert kinds.keys() == {"not correct", "a duplicate"}
    environment = gw.open_run(run.folder / "stages" / "student").environment
    assert environment["traces"]["traces/dropped/not correct"] == kinds["not correct"]
    assert student["last"]["loss"] < student["first"]["loss"]

    folder, write = tmp_path / "broken", traces.json_line
    count = 0

    def torn(value: Any) -> str:
        nonlocal count
        count += 1
        if count == 20:
            path = folder / "stages" / "student" / "traces.jsonl"
            path.write_text(path.read_text() + write(value)[:30])
            raise KeyboardInterrupt
        return write(value)

    monkeypatch.setattr(traces, "json_line", torn)
    monkeypatch.setattr(traces, "CHUNK", 8)
    with pytest.raises(KeyboardInterrupt):
        gw.train(recipe, output=folder)
    monkeypatch.undo()
    assert len(rows_of_prompts(folder)) == 16
    with pytest.raises(KeyboardInterrupt):
        gw.train(recipe, output=folder, resume=True, callbacks=[Break("student", 2)])
    gw.train(recipe, output=folder, resume=True)
    assert rows(folder, "traces.jsonl") == rows(run.folder, "traces.jsonl")
    assert same(weights(run.folder), weights(folder))
    assert same(weights(run.folder, "again"), weights(folder, "again"))


def rows_of_prompts(folder: Path) -> list[str]:
    """Whole lines of what the teacher wrote so far."""
    text = (folder / "stages" / "student" / "traces.jsonl").read_text(encoding="utf-8")
    return text.splitlines()[: text.count("\n")]


def test_the_teacher_of_an_earlier_stage_and_a_broken_student(tmp_path: Path) -> None:
    recipe = pipeline(Path(), SHARP, ON_POLICY)
    run = gw.train(recipe, output=tmp_path / "whole")
    assert [each["kind"] for each in run.summary["stages"]] == ["rl", "distillation"]
    with pytest.raises(KeyboardInterrupt):
        gw.train(recipe, output=tmp_path / "broken", callbacks=[Break("student", 1)])
    gw.train(recipe, output=tmp_path / "broken", resume=True)
    assert same(weights(run.folder), weights(tmp_path / "broken"))
    folder = run.folder / "stages" / "student"
    table = tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8"))
    assert table["teacher"]["name"] == str(run.folder / "stages" / "teacher" / "model")
    assert gw.open_run(folder).metrics().to_pylist()[0]["teacher/kl"] > 0.1


def test_a_policy_that_teaches_itself(tmp_path: Path) -> None:
    own = {**ON_POLICY, "mode": "self", "teacher": {"context": "answer", "wording": "{text}"}}
    run = gw.train(pipeline(Path(), own), output=tmp_path / "run")
    steps = gw.open_run(run.folder / "stages" / "student").metrics().to_pylist()
    assert all(step["teacher/untaught"] == 0 for step in steps)
    assert steps[0]["teacher/kl"] != 0


# --- an endpoint ----------------------------------------------------------------------------------


def endpoint(url: str, **teacher: Any) -> dict[str, Any]:
    asked = {"url": url, "served": "big", "seconds": 5.0, "tries": 2, **teacher}
    return pipeline(
        Path(), {**TRACES, "teacher": asked, "prompts": 6, "sampling": {"group_size": 2}}
    )


def answer(body: dict[str, Any]) -> str:
    return str(eval(body["messages"][-1]["content"].rstrip("=")))


def test_an_endpoint_writes_the_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets the chat, the key and another seed for each trace; a busy reply is asked again; its
    own system message does not reach the student."""
    monkeypatch.setenv("BIG_KEY", "secret")
    busy = {"left": 1}

    def talk(body: dict[str, Any]) -> Any:
        if busy["left"]:
            busy["left"] -= 1
            return 503, "busy"
        return answer(body)

    with serving(talk) as stub:
        recipe = endpoint(stub.url, key="BIG_KEY", system="Be short.")
        run = gw.train(recipe, output=tmp_path / "run")
    assert len(stub.requests) == 13
    assert {body["model"] for body in stub.requests} == {"big"}
    assert len({(b["messages"][1]["content"], b["seed"]) for b in stub.requests}) == 12
    assert all(body["messages"][0]["content"] == "Be short." for body in stub.requests)
    assert stub.headers[0]["Authorization"] == "Bearer secret"
    kept = rows(run.folder, "data.jsonl")
    assert len(kept) == 6  # the second of each prompt is a duplicate
    assert all(row["messages"][0]["role"] == "user" for row in kept)
    assert "secret" not in (run.folder / "stages" / "student" / "recipe.toml").read_text()


def test_an_endpoint_that_times_out_is_skipped_and_counted_or_stops(tmp_path: Path) -> None:
    """A stop keeps what was written, and a resume asks for the rest alone."""
    slow: set[str] = set()

    def talk(body: dict[str, Any]) -> str:
        question = body["messages"][-1]["content"]
        if len(slow) < 1:
            slow.add(question)
        if question in slow:
            time.sleep(0.6)
        return answer(body)

    with serving(talk) as stub:
        recipe = endpoint(stub.url, seconds=0.3, tries=1, on_failure="skip")
        run = gw.train(recipe, output=tmp_path / "skipped")
        dropped = rows(run.folder, "dropped.jsonl")
        failed = [row for row in dropped if row["reason"].startswith("failed")]
        assert len(failed) == 2
        assert failed[0]["reason"] == "failed: no reply within 0.3 s, 1 tries"
        slow.clear()
        recipe = endpoint(stub.url, seconds=0.3, tries=1)
        with pytest.raises(GroupwiseError, match=r"gave no trace of prompt .*: no reply within"):
            gw.train(recipe, output=tmp_path / "stopped")
        written = len(rows_of_prompts(tmp_path / "stopped"))
        slow.clear()
        slow.add("nothing")
        before = len(stub.requests)
        gw.train(recipe, output=tmp_path / "stopped", resume=True)
        assert len(stub.requests) - before == (6 - written) * 2
    assert len(rows(tmp_path / "stopped", "data.jsonl")) == 6


def test_nothing_kept_is_an_error_with_the_reasons(tmp_path: Path) -> None:
    with (
        serving(lambda body: "eleven") as stub,
        pytest.raises(GroupwiseError, match=r"all 12 rows were dropped \(not correct: 12;"),
    ):
        gw.train(endpoint(stub.url), output=tmp_path / "run")
    assert len(rows(tmp_path / "run", "dropped.jsonl")) == 12


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "online"}, "mode = 'online': give one of traces, on_policy, self"),
        ({"teacher": {}}, "give one of stage, name and url"),
        ({"teacher": {"name": "tiny", "url": "http://x/v1"}}, "give one of stage, name and url"),
        ({"teacher": {"url": "http://x/v1"}}, "teacher.served is missing"),
        ({"teacher": {"url": "http://x/v1", "served": "m", "key": "NO_KEY"}}, "NO_KEY is not set"),
        ({"teacher": {"url": "ftp://x", "served": "m"}}, "teacher.url = 'ftp://x'"),
        ({"teacher": {"stage": "later"}}, "the stage 'later'"),
        ({"teacher": {"name": "no/such/folder"}}, "no/such/folder"),
        ({"keep": "some"}, "keep = 'some'"),
        ({"training": {"evaluate_every": 2}}, "no example is held out"),
        ({"mode": "on_policy", "teacher": {}, "training": {}}, "give name .* or stage"),
        (
            {"mode": "self", "teacher": {"name": "tiny"}, "training": {}},
            "teaches itself; remove 'tiny'",
        ),
        ({"mode": "self", "teacher": {}, "training": {}}, "without a context"),
    ],
)
def test_bad_stages_are_refused_before_weights_load(changes: dict[str, Any], message: str) -> None:
    stage = {**TRACES, **changes}
    if stage.get("mode", "traces") != "traces":
        stage |= {"algorithm": {"preset": "on_policy_distillation"}}
        del stage["prompts"]
    with pytest.raises(RecipeError, match=message):
        check_pipeline(load_pipeline(pipeline(Path(), stage)))
