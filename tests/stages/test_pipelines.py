"""Whole pipelines of the tiny policy: the record, the lineage, and an exact resume anywhere."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import tomli_w
import torch
from safetensors.torch import load_file

import groupwise as gw
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies import get_model, load_policy, merged_copy, save_pretrained
from groupwise.records import find_metric
from groupwise.stages import KINDS, Stage, StageContext, StageResult, load_pipeline, runner
from groupwise.stages import output as outputs
from groupwise.stages.output import weights_of
from groupwise.training.callbacks import Callback
from pipeline_helpers import pipeline, sum_rows, write_rows

STAGES = ("sft", "rl", "mean")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("data") / "sums.jsonl", sum_rows())


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> gw.Run:
    return gw.train(pipeline(data), output=tmp_path_factory.mktemp("runs") / "whole")


def weights(folder: Path, stage: str) -> dict[str, torch.Tensor]:
    return load_file(folder / "stages" / stage / "model" / "model.safetensors")


def test_the_summary_has_every_stage_and_their_folders_are_runs(whole: gw.Run) -> None:
    summary = whole.summary
    assert summary["status"] == "finished"
    assert summary["steps"] == 9
    assert [each["name"] for each in summary["stages"]] == list(STAGES)
    assert [each["kind"] for each in summary["stages"]] == ["supervised", "rl", "merge"]
    for each in summary["stages"]:
        assert each.keys() == {"name", "kind", "status", "first", "last", "output"}
        assert each["status"] == "finished"
        assert each["output"] == f"stages/{each['name']}/model"
        assert load_policy(str(whole.folder / each["output"])).num_parameters > 0
        for when in ("first", "last"):
            assert 0.0 <= each[when]["guard/accuracy"] <= 1.0
        assert gw.open_run(whole.folder / "stages" / each["name"]).summary["status"] == "finished"
    supervised, rl, _ = summary["stages"]
    assert supervised["last"]["loss"] < supervised["first"]["loss"]
    assert supervised["last"]["fit/eval_loss"] < supervised["first"]["fit/eval_loss"]
    assert rl["first"]["guard/accuracy"] == supervised["last"]["guard/accuracy"]
    assert {"eval/accuracy", "reward", "kl"} <= rl["last"].keys()
    assert gw.open_run(whole.folder / "stages" / "rl").rollouts().num_rows == 3 * 6 * 4


def test_the_run_opens_its_stages(whole: gw.Run) -> None:
    assert set(whole.stages) == set(STAGES)
    assert whole.stages["sft"].metrics().num_rows == 6
    assert whole.stages["rl"].stages == {}
    assert whole.metrics().num_rows == 0


def test_the_guard_is_of_held_out_prompts_alone(whole: gw.Run) -> None:
    (first, *_) = whole.events("guard")
    assert first["values"]["guard/prompts"] == 8
    assert first["values"]["guard/accuracy"] == first["values"]["guard/heldout"]


def test_the_lineage_links_data_recipe_and_weights(whole: gw.Run, data: Path) -> None:
    found = {
        name: json.loads((whole.folder / "stages" / name / "lineage.json").read_text())
        for name in STAGES
    }
    for name, start in zip(STAGES, ("base", "sft", "rl"), strict=True):
        lineage = found[name]
        assert lineage["parent"]["stage"] == start
        assert lineage["weights_hash"] == weights_of(str(whole.folder / "stages" / name / "model"))
    assert found["rl"]["parent"]["weights_hash"] == found["sft"]["weights_hash"]
    assert found["mean"]["parent"]["weights_hash"] == found["rl"]["weights_hash"]
    assert found["sft"]["parent"]["weights_hash"] == weights_of("tiny")
    assert len({each["weights_hash"] for each in found.values()}) == 3
    about = gw.open_run(whole.folder / "stages" / "sft").environment
    assert about["data_hash"] == found["sft"]["data_hash"]
    events = [each for each in whole.events("stage") if each["status"] == "finished"]
    assert [each["lineage"] for each in events] == [found[name] for name in STAGES]


def test_the_recorded_pipeline_loads_to_an_equal_one(data: Path) -> None:
    table = pipeline(data)
    table["stages"][1]["evaluation"] = {"max_prompts": "none"}
    table["stages"][1]["environment"] = {"name": "arithmetic", "level": "table", "ordered": True}
    made = load_pipeline(table, {"stages.rl.training.steps": "4", "stages.0.training.steps": 1})
    again = load_pipeline(tomllib.loads(made.to_toml()))
    assert again == made
    assert made.nodes[1].stage.evaluation.max_prompts is None  # type: ignore[attr-defined]
    assert made.nodes[1].stage.training.steps == 4  # type: ignore[attr-defined]
    assert made.nodes[0].stage.training.steps == 1  # type: ignore[attr-defined]


def test_the_merge_is_the_weighted_mean(whole: gw.Run) -> None:
    parts = [weights(whole.folder, name) for name in ("rl", "sft")]
    for name, tensor in weights(whole.folder, "mean").items():
        mean = (parts[0][name].double() + 3 * parts[1][name].double()) / 4
        torch.testing.assert_close(tensor, mean.float(), rtol=0, atol=1e-7)


def test_the_reference_of_an_rl_stage_is_its_input(whole: gw.Run) -> None:
    first = gw.open_run(whole.folder / "stages" / "rl").metrics().to_pylist()[0]
    assert first["kl"] == pytest.approx(0.0, abs=1e-6)


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


def half_started(folder: Path) -> None:
    """What a start leaves that is killed before the recipe is written."""
    (folder / "rollouts").mkdir(parents=True)
    for name in ("environment.json", "metrics.jsonl", "events.jsonl"):
        (folder / name).touch()


def test_a_pipeline_that_is_broken_again_and_again_equals_the_unbroken_one(
    whole: gw.Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "broken"
    recipe = pipeline(data)

    def broken(*callbacks: Callback, patch: tuple[Any, str, Any] | None = None) -> None:
        with monkeypatch.context() as patched:
            if patch is not None:
                patched.setattr(*patch)
            with pytest.raises(KeyboardInterrupt):
                gw.train(recipe, output=folder, resume=True, callbacks=callbacks)
        assert gw.open_run(folder).summary["status"] == "interrupted"

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    def half(_policy: Any, folder: Path, **_: Any) -> None:
        folder.mkdir()
        (folder / "config.json").write_text("{")
        raise KeyboardInterrupt

    broken(Break("sft"))
    broken(Break("sft", 3))  # between two checkpoints
    broken(patch=(outputs, "save_pretrained", half))  # the model's folder is half written
    broken(patch=(runner, "write_lineage", stop))  # everything is there but the mark
    broken(Break("rl"))
    half_started(folder / "stages" / "rl")
    broken(Break("rl", 1))
    broken(patch=(runner, "guard_values", stop))  # after rl's run, before its guard
    broken(Break("mean"))
    half_started(folder / "stages" / "mean")
    run = gw.train(recipe, output=folder, resume=True)

    assert {k: v for k, v in run.summary.items() if k != "seconds"} == {
        k: v for k, v in whole.summary.items() if k != "seconds"
    }
    for stage in STAGES:
        for name, tensor in weights(whole.folder, stage).items():
            assert torch.equal(tensor, weights(folder, stage)[name]), (stage, name)
        ours, theirs = (
            gw.open_run(each / "stages" / stage).metrics().to_pylist()
            for each in (folder, whole.folder)
        )
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            for name, value in other.items():
                if not find_metric(name).measured:
                    assert mine[name] == value, (stage, name)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 1.5])
def test_a_killed_process_resumes_exactly(
    whole: gw.Run, data: Path, tmp_path: Path, seconds: float
) -> None:
    recipe, folder = tmp_path / "recipe.toml", tmp_path / "run"
    recipe.write_text(tomli_w.dumps(pipeline(data)))
    command = [sys.executable, "-m", "groupwise", "train", str(recipe), "--output", str(folder)]
    process = subprocess.Popen([*command, "--quiet"], env=dict(os.environ))
    until(lambda: (folder / "stages" / "sft" / "metrics.jsonl").is_file())
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run = gw.train(recipe, output=folder, resume=True)
    assert run.summary["stages"] == whole.summary["stages"]


def until(ready: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_finished_pipeline_resumes_to_nothing(
    whole: gw.Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = whole.summary
    notes: list[str] = []

    class Notes(Callback):
        def on_warning(self, message: str) -> None:
            notes.append(message)

        def on_stage(self, name: str, kind: str, folder: Path) -> None:
            raise AssertionError(name)

    run = gw.train(pipeline(data), output=whole.folder, resume=True, callbacks=[Notes()])
    assert run.summary == before
    assert any("already ran its 3 stages" in note for note in notes)


def test_a_pipeline_recorded_before_a_field_existed_resumes(whole: gw.Run, data: Path) -> None:
    path = whole.folder / "recipe.toml"
    text = path.read_text()
    path.write_text(text.replace("max_staleness = 0\n", ""))
    assert path.read_text() != text
    try:
        assert gw.train(pipeline(data), output=whole.folder, resume=True).summary == whole.summary
    finally:
        path.write_text(text)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"stages.0.training.learning_rate": 1e-4}, "stages.0.training.learning_rate (0.001 there"),
        ({"stages.rl.training.steps": 9}, "stages.1.training.steps (3 there, 9 now)"),
        ({"stages.2.weight": 2.0}, "stages.2.weight (1.0 there, 2.0 now)"),
        ({"model.dtype": "float32"}, "model.dtype"),
    ],
)
def test_a_changed_stage_is_refused_on_resume(
    whole: gw.Run, data: Path, overrides: dict[str, Any], words: str
) -> None:
    with pytest.raises(RecipeError, match="was made by another recipe") as caught:
        gw.train(pipeline(data), overrides, output=whole.folder, resume=True)
    assert words in str(caught.value)


def test_other_weights_in_a_finished_stage_are_refused_on_resume(
    data: Path, tmp_path: Path
) -> None:
    recipe = pipeline(data)
    recipe["stages"] = recipe["stages"][:1]
    run = gw.train(recipe, {"stages.0.training.steps": 1}, output=tmp_path / "run")
    path = run.folder / "stages" / "sft" / "model" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(RecipeError, match="stage 'sft' is finished, but its model changed since"):
        gw.train(recipe, {"stages.0.training.steps": 1}, output=run.folder, resume=True)


def test_an_added_stage_is_refused_on_resume(whole: gw.Run, data: Path) -> None:
    recipe = pipeline(data)
    recipe["stages"].append({"kind": "evaluate"})
    with pytest.raises(RecipeError, match=r"with the stages .*, and the recipe has .*, evaluate"):
        gw.train(recipe, output=whole.folder, resume=True)


def test_changed_rows_of_a_finished_stage_are_refused_on_resume(data: Path, tmp_path: Path) -> None:
    recipe = pipeline(data, {"kind": "rejection", "prompts": 4, "keep": "all"})
    run = gw.train(recipe, output=tmp_path / "run")
    assert run.summary["output"] is None
    path = run.folder / "stages" / "rejection" / "data.jsonl"
    path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")
    with pytest.raises(RecipeError, match="'rejection' is finished, but its rows changed since"):
        gw.train(recipe, output=run.folder, resume=True)


@pytest.mark.parametrize("kind", ["supervised", "evaluate"])
def test_changed_data_of_a_finished_stage_is_refused_on_resume(
    tmp_path: Path, data: Path, kind: str
) -> None:
    """The stage is not run again, so what it read would differ from what its record says."""
    rows = [{"prompt": f"{n}+1=", "answer": str(n + 1), "completion": "2"} for n in range(4)]
    own = write_rows(tmp_path / "own.jsonl", rows)
    stage: dict[str, Any] = {"kind": kind, "data": {"path": str(own)}, "training": {"steps": 1}}
    what = f"rows of data.0.path = {str(own)!r}"
    if kind == "evaluate":
        verifiers = [{"name": "number"}]
        environment = {"name": "dataset", "path": str(own), "verifiers": verifiers}
        stage, what = {"kind": kind, "environment": environment}, "environment's data"
    recipe = pipeline(data, stage)
    run = gw.train(recipe, output=tmp_path / "run")
    gw.train(recipe, output=run.folder, resume=True)
    write_rows(own, [*rows[:3], {**rows[3], "prompt": "3 + 1 = "}])
    said = re.escape(f"stage {kind!r} is finished, but its {what} changed since")
    with pytest.raises(RecipeError, match=said):
        gw.train(recipe, output=run.folder, resume=True)


def test_a_failure_names_its_stage_and_small_says_what_it_sets(data: Path, tmp_path: Path) -> None:
    notes: list[str] = []

    class Notes(Callback):
        def on_warning(self, message: str) -> None:
            notes.append(message)

    recipe = pipeline(data, {"kind": "rejection", "min_length": 100})
    with pytest.raises(GroupwiseError, match=r"^stage 'rejection': all \d+ rows were dropped"):
        gw.train(recipe, output=tmp_path / "run", small=True, callbacks=[Notes()])
    assert any("stages.0.keep = 'all'" in note for note in notes)


def test_stages_of_an_adapters_folder_leave_whole_models(data: Path, tmp_path: Path) -> None:
    policy = load_policy("tiny", device="cpu", adapter={"rank": 2}, seed=1)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05)
    folder = save_pretrained(policy, tmp_path / "adapter")
    stages = [{"kind": "merge"}, {"kind": "export", "from": "base"}, {"kind": "evaluate"}]
    recipe = pipeline(data, *stages, model={"name": str(folder), "device": "cpu"})
    run = gw.train(recipe, output=tmp_path / "run")
    expected = merged_copy(policy.model).state_dict()
    for name in ("merge", "export"):
        for key, tensor in weights(run.folder, name).items():
            torch.testing.assert_close(tensor, expected[key], rtol=0, atol=1e-7)
    merge, export, evaluate = run.summary["stages"]
    assert merge["first"]["guard/accuracy"] == merge["last"]["guard/accuracy"]
    assert evaluate["output"] is None
    assert evaluate["last"]["eval/prompts"] == 16, "eight of each split"
    assert run.stages["evaluate"].evaluation_rollouts(0).num_rows == 16 * 2
    assert export["last"]["guard/greedy"] == evaluate["last"]["guard/greedy"]


class Rows(Stage):
    """A stage that makes rows, as rejection sampling does."""

    kind: ClassVar[str] = "rows"
    changes_weights: ClassVar[bool] = False
    makes: ClassVar[Any] = frozenset({"chats"})

    count: int = 3

    def run(self, context: StageContext) -> StageResult:
        outputs.record_at_once(context, {})
        write_rows(context.folder / "data.jsonl", sum_rows()[: self.count])
        return StageResult({}, {"rows": self.count})


def test_a_supervised_stage_reads_the_rows_of_another(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "rows", Rows)
    notes: list[str] = []

    class Notes(Callback):
        def on_warning(self, message: str) -> None:
            notes.append(message)

    sources = [{"stage": "rows", "repeat": 2}, {"path": str(data), "limit": 4}]
    stages = [
        {"kind": "supervised", "data": sources, "training": {"steps": 1, "examples_per_step": 64}},
        {"kind": "rows", "from": "base"},
    ]
    stages[0]["from"] = "base"
    run = gw.train(pipeline(data, *stages), output=tmp_path / "run", callbacks=[Notes()])
    assert [each["name"] for each in run.summary["stages"]] == ["rows", "supervised"]
    about = run.stages["supervised"].environment
    assert about["examples"] == 3 * 2 + 4
    (line,) = run.stages["supervised"].metrics().to_pylist()
    assert line["fit/examples"] == 64
    assert any("have a prompt of the guard set" in note for note in notes)


def test_an_empty_stage_of_rows_says_so(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "rows", Rows)
    stages = [{"kind": "rows", "count": 0}, {"kind": "supervised", "data": {"stage": "rows"}}]
    with pytest.raises(RecipeError, match=r"data.stage = .* holds no rows"):
        gw.train(pipeline(data, *stages), output=tmp_path / "run")


def test_an_rl_stage_of_no_steps_leaves_its_input(data: Path, tmp_path: Path) -> None:
    stage = {"kind": "rl", "training": {"steps": 0}}
    run = gw.train(pipeline(data, stage), output=tmp_path / "run")
    entry = get_model("tiny")
    assert entry is not None
    start = load_file(entry.get() / "model.safetensors")
    assert all(
        torch.equal(start[name], tensor) for name, tensor in weights(run.folder, "rl").items()
    )
