"""R1 from one file: its stages' effects with controls, exact resume, and what its page claims."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import r1 as experiment

import groupwise as gw
from groupwise.examples import r1_rows
from groupwise.policies import describe_model
from groupwise.records import find_metric
from groupwise.stages.chats import chat_examples
from groupwise.training.callbacks import Callback

ROOT = Path(__file__).parents[2]


STAGES = ["cold_start", "reasoning", "traces", "second", "all"]


FEWER = {"guard.evaluation.max_prompts": 2, "checkpoints.every": 1, "stages.traces.prompts": 12}


def small(folder: Path, *callbacks: Callback) -> gw.Run:
    return gw.train(
        experiment.TINY, FEWER, output=folder, small=True, resume=True, callbacks=callbacks
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> gw.Run:
    return small(tmp_path_factory.mktemp("r1") / "whole")


def test_the_summary_has_every_stage_with_values(whole: gw.Run) -> None:
    entries = whole.summary["stages"]
    assert [each["name"] for each in entries] == STAGES
    assert [each["kind"] for each in entries] == [
        "supervised", "rl", "rejection", "supervised", "rl",
    ]  # fmt: skip
    for each in entries:
        assert each.keys() == {"name", "kind", "status", "first", "last", "output"}
        assert each["status"] == "finished"
        folder = None if each["kind"] == "rejection" else f"stages/{each['name']}/model"
        assert each["output"] == folder
        for name in ("accuracy", "format", "self_check"):
            assert 0 <= each["last"][f"guard/verifier/{name}"] <= 1
        assert each["last"]["guard/tokens_mean"] >= 4
        assert 0 <= each["last"][f"guard/{experiment.GENERAL}"] <= 1
    cold, reasoning, traces, second, last = entries
    assert cold["last"]["loss"] < cold["first"]["loss"]
    assert 0 < reasoning["first"]["reward"] <= 1.4
    assert traces["last"]["traces/sampled"] == 12 * 4
    assert second["first"]["guard/accuracy"] == cold["first"]["guard/accuracy"], "from the base"
    assert last["first"]["guard/accuracy"] == second["last"]["guard/accuracy"]


def test_the_second_stage_learns_from_what_was_kept_and_from_general_rows(whole: gw.Run) -> None:
    kept = (whole.folder / "stages" / "traces" / "data.jsonl").read_text().splitlines()
    assert len(kept) == whole.summary["stages"][2]["last"]["traces/kept"] > 0
    for row in map(json.loads, kept):
        assert row["outcome"] == "correct"
        assert "<think>" in row["messages"][-1]["content"]
        assert "加" not in row["messages"][-1]["content"]
    general = list(r1_rows.tiny_general(0))
    about = whole.stages["second"].environment
    assert about["examples"] == len(kept) + len(general)
    lineage = json.loads((whole.folder / "stages" / "second" / "lineage.json").read_text())
    assert lineage["parent"]["stage"] == "base"


def test_no_row_is_of_a_held_out_prompt(whole: gw.Run) -> None:
    for name in ("cold_start", "second"):
        assert whole.stages[name].environment["examples_with_guard_prompts"] == 0


def test_the_traces_are_right_and_half_of_them_check_every_step() -> None:
    template = describe_model("tiny-reasoner").template
    rows = list(r1_rows.tiny_traces(3))
    assert len(rows) == 2000
    for number, row in enumerate(rows[:300]):
        question, text = (message["content"] for message in row["messages"])
        operands = [int(each) for each in question.rstrip("=").split("+")]
        assert text.endswith(f"</think><answer>{sum(operands)}</answer>")
        steps = len(operands) - 1
        assert text.count("wait, ") == steps * (number % 2)
        (example,) = chat_examples(template, row["messages"])
        lines = steps * (1 + number % 2)  # of seven tokens each
        assert len(example.completion_ids) == 7 * lines + 5 + len(str(sum(operands)))
    (step,) = re.findall(r"second, .*", rows[0]["messages"][1]["content"])[:1]
    assert re.fullmatch(r"second, [\w-]+ plus \w+ is [\w-]+\.", step)


def test_smollm2s_traces_are_right() -> None:
    rows = list(r1_rows.smollm2_traces(1))
    for number, row in enumerate(rows):
        system, question, answer = (message["content"] for message in row["messages"])
        assert "<think>" in system
        total = sum(map(int, question.rstrip("=").split("+")))
        assert answer.endswith(f"gives {total}.</think><answer>{total}</answer>") or number % 2
        sums = re.findall(r"Adding (\d+) and (\d+) gives (\d+)\.", answer)
        assert [int(a) + int(b) for a, b, _ in sums] == [int(c) for *_, c in sums]
        assert len(sums) == 2
        checks = re.findall(r"Checking: (\d+) minus (\d+) gives (\d+)\.", answer)
        assert [int(a) - int(b) for a, b, _ in checks] == [int(c) for *_, c in checks]
        assert len(checks) == number % 2
        assert answer.endswith(f"<answer>{total}</answer>")
    assert len(rows) == 400


class Break(Callback):
    """Raises where a killed process would end: at a step of a stage, or before a stage starts."""

    def __init__(self, stage: str, step: int | None = None) -> None:
        self.place = (stage, step)
        self.stage = ""

    def on_stage(self, name: str, kind: str, folder: Path) -> None:
        self.stage = name
        if self.place == (name, None):
            raise KeyboardInterrupt

    def on_step(self, line: Any) -> None:
        if self.place == (self.stage, line["step"]):
            raise KeyboardInterrupt


def equal_runs(one: gw.Run, other: gw.Run) -> None:
    """Summaries, metrics but for what is timed, and every model's weights, bit for bit."""
    assert one.summary["stages"] == other.summary["stages"]
    for name in STAGES:
        ours, theirs = (each.stages[name].metrics().to_pylist() for each in (one, other))
        assert len(ours) == len(theirs)
        for mine, line in zip(ours, theirs, strict=True):
            timed = [key for key in line if find_metric(key).measured]
            assert {k: v for k, v in mine.items() if k not in timed} == {
                k: v for k, v in line.items() if k not in timed
            }
        model = Path("stages") / name / "model" / "model.safetensors"
        if name != "traces":
            assert (one.folder / model).read_bytes() == (other.folder / model).read_bytes()


@pytest.mark.parametrize(
    "places",
    [
        pytest.param([("all", 0)], id="inside the last stage", marks=pytest.mark.slow),
        pytest.param([("cold_start", 1), ("reasoning", 0), ("traces", None), ("second", 2)],
                     id="inside and between stages", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_broken_it_equals_the_unbroken_one(
    whole: gw.Run, tmp_path: Path, places: list[tuple[str, int | None]]
) -> None:
    for place in places:
        with pytest.raises(KeyboardInterrupt):
            small(tmp_path / "run", Break(*place))
    equal_runs(small(tmp_path / "run"), whole)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["cold_start", "traces", "all"])
def test_killed_in_a_stage_it_equals_the_unbroken_one(
    whole: gw.Run, tmp_path: Path, stage: str
) -> None:
    folder, fewer = tmp_path / "run", []
    for name, value in FEWER.items():
        fewer += [f"--{name}", str(value)]
    command = [sys.executable, "-m", "groupwise", "train", str(experiment.TINY), "--small"]
    process = subprocess.Popen([*command, "--output", str(folder), "--quiet", *fewer])
    started = folder / "stages" / stage / "events.jsonl"
    while not started.is_file():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    equal_runs(small(folder), whole)


@pytest.mark.slow
def test_the_cold_start_makes_it_reason_in_one_language(tmp_path: Path) -> None:
    """The control learns from as many of the policy's own completions, whatever they say."""
    table = experiment.recipe(english=True)
    cold = table["stages"][0]
    own = {"name": "own", "kind": "rejection", "keep": "all", "prompts": 200}
    own |= {"from": "base", "sampling": {"group_size": 1}}
    control = {**cold, "name": "control", "data": {"stage": "own"}}
    table["stages"] = [cold, own, control]
    table["evaluation"] |= {"samples": 2, "max_prompts": 30}
    found = experiment.stages_of(gw.train(table, output=tmp_path))
    for name in ("accuracy", "verifier/english", "verifier/self_check"):
        assert found["cold_start"][name] > found[experiment.START][name] + 0.1, name
        assert found["cold_start"][name] > found["control"][name] + 0.1, name
    assert found["cold_start"]["verifier/format"] >= found[experiment.START]["verifier/format"]
    assert found["cold_start"]["tokens_mean"] > 1.5 * found["control"]["tokens_mean"]


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_one_seed_shows_what_the_page_claims(tmp_path: Path) -> None:
    found = {}
    for english in (True, False):
        run = experiment.run_of(experiment.recipe(english), 0, tmp_path / str(english))
        found[english] = experiment.stages_of(run)
    experiment.check([found[True]], [found[False]])


def stages(**changed: dict[str, float]) -> dict[str, dict[str, float]]:
    """Figures as the page claims them, with others for some stages."""
    accuracy = {"the base": 0.3, "cold_start": 0.6, "reasoning": 0.8, "second": 0.75, "all": 0.85}
    found = {
        name: {
            "accuracy": value,
            "accuracy_low": value - 0.05,
            "accuracy_high": value + 0.05,
            "greedy": value,
            "verifier/format": 0.9 if value < 0.5 else 0.98,
            "verifier/english": 0.6 if value < 0.5 else 0.99,
            "tokens_mean": 100 * value,
            experiment.GENERAL: {"second": 0.5, "all": 0.9}.get(name, 0.0),
        }
        for name, value in accuracy.items()
    }
    for name, values in changed.items():
        found[name.replace("base", "the base")] |= values
    return found


def test_the_claims_are_checked() -> None:
    control = stages(reasoning={"verifier/english": 0.95})
    experiment.check([stages()], [control])
    for bad, words in (
        (stages(cold_start={"accuracy_low": 0.34}), "cold start"),
        (stages(cold_start={"verifier/format": 0.9}), "format"),
        (stages(cold_start={"tokens_mean": 20.0}), "longer"),
        (stages(reasoning={"accuracy_low": 0.64}), "reasoning RL"),
        (stages(reasoning={"verifier/english": 0.9}), "mixed"),
        (stages(second={experiment.GENERAL: 0.1}), "general prompts were not learned"),
        (stages(all={experiment.GENERAL: 0.39}), "RL lost general"),
        (stages(second={experiment.GENERAL: 0.3}, all={experiment.GENERAL: 0.35}), "not answered"),
        (stages(all={"accuracy": 0.5}), "lost"),
    ):
        with pytest.raises(AssertionError, match=words):
            experiment.check([bad], [control])
    with pytest.raises(AssertionError, match="without its reward"):
        experiment.check([stages()], [stages()])


def test_the_table_has_a_line_for_each_stage_and_seed() -> None:
    lines = experiment.table({0: stages(), 7: stages(all={"accuracy": 0.9})}).splitlines()
    assert len(lines) == 2 + 5 * 2
    assert lines[0].startswith("| stage | seed | right (95 % interval) | greedy | format | English")
    assert lines[-1] == "| all | 7 | 90% (80% to 90%) | 85% | 98% | 99% | 85.0 | 90% |"


def test_the_page_has_every_stage_and_seed() -> None:
    text = experiment.PAGE.read_text(encoding="utf-8")
    tiny, control, smollm2 = (part.split("##")[0] for part in text.split("\n| stage | seed |")[1:])
    for name in ("the base", "cold_start", "reasoning", "second", "all"):
        for seed in experiment.SEEDS:
            assert f"\n| {name} | {seed} |" in tiny
        assert f"\n| {name} | 0 |" in smollm2
    assert "\n| reasoning | 2 |" in control
