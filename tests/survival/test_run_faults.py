"""Faults in the middle of a run: the state, the message, and that nothing is lost."""

from __future__ import annotations

import ast
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from survival_recipe import RECIPE

import groupwise as gw
from groupwise.checkpoints import load_checkpoint, newest_complete, training_state
from groupwise.doctor import diagnose
from groupwise.errors import GroupwiseError, NonFiniteError, RecipeError
from groupwise.policies import get_model, load_policy
from groupwise.policies.adapters import load_weights
from groupwise.policies.cache import cached_folder
from groupwise.proving.equality import compare_runs
from groupwise.records import RunWriter, open_run
from groupwise.types import Prompt
from groupwise.verifiers import compose, score_cases
from groupwise.verifiers.core.contract import Case
from run_helpers import Keep, StopAfter


class BadGradient(Keep):
    """From the third step on, one parameter's gradient has a bad number."""

    def __init__(self, bad: float) -> None:
        super().__init__()
        self.bad = bad

    def on_step(self, line: Any) -> None:
        if line["step"] == 1:
            weight = next(self.session.policy.model.parameters())
            weight.register_hook(lambda grad: torch.full_like(grad, self.bad))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_gradient_stops_with_weights_and_optimiser_untouched(
    tmp_path: Path, bad: float
) -> None:
    keep = BadGradient(bad)
    with pytest.raises(NonFiniteError, match=r"step 2, update 2: the gradient of '.*' is not fin"):
        gw.train(RECIPE, output=tmp_path / "run", callbacks=[keep])
    path = newest_complete(tmp_path / "run" / "checkpoints")
    assert path is not None
    saved = load_checkpoint(path)
    assert saved.step == 2
    learner = keep.session.learner
    model, optimizer = training_state(keep.session.policy.model, learner.optimizer)
    assert all(torch.equal(saved.model_state[name], tensor) for name, tensor in model.items())
    for name, moments in optimizer["state"].items():
        for key, tensor in moments.items():
            assert torch.equal(saved.optimizer_state["state"][name][key], tensor), (name, key)
    assert learner.update == 2
    assert open_run(tmp_path / "run").events("failed")[0]["error"].endswith("checkpoint is intact")


class BadOnce(StopAfter):
    """One gradient of the second step is not a number; perhaps ends after a step."""

    def on_ready(self, session: Any) -> None:
        super().on_ready(session)
        self.learner = session.learner
        self.weight = next(session.policy.model.parameters())
        self.handle: Any = None
        self.poison(session.first_step)

    def on_step(self, line: Any) -> None:
        self.poison(line["step"] + 1)
        super().on_step(line)

    def poison(self, step: int) -> None:
        if self.handle is not None:
            self.handle.remove()
            self.handle = None
        if step == 1:
            self.handle = self.weight.register_hook(lambda grad: torch.full_like(grad, torch.nan))


@pytest.mark.slow
def test_a_skipped_step_is_counted_and_resumes_exactly(tmp_path: Path) -> None:
    table = RECIPE | {"training": {**RECIPE["training"], "steps": 4, "skip_nonfinite": 1}}
    keep = BadOnce(99)
    whole = gw.train(table, output=tmp_path / "whole", callbacks=[keep])
    lines = whole.metrics().to_pylist()
    assert [line["updates/nonfinite"] for line in lines] == [0, 1, 0, 0]
    assert [line["updates"] for line in lines] == [1, 0, 1, 1]
    assert [line["updates_total"] for line in lines] == [1, 1, 2, 3]
    saved = [
        load_file(whole.folder / "checkpoints" / f"step_00000{step}" / "model.safetensors")
        for step in (2, 3)
    ]
    assert any(not torch.equal(tensor, saved[1][name]) for name, tensor in saved[0].items())
    assert whole.summary["updates/nonfinite"] == 1
    (event,) = [each for each in whole.events("warning") if each["about"] == "nonfinite"]
    assert event["message"].startswith("step 1, update 1: the gradient of ")
    assert any("the update is skipped" in note for note in keep.notes)
    finding = next(f for f in diagnose(whole).findings if f.kind == "nonfinite_updates")
    assert finding.message.startswith("1 of 4 updates were skipped")
    for stop in (0, 1, 2):  # before, right after, and behind the skipped step
        run = tmp_path / f"broken{stop}"
        with pytest.raises(KeyboardInterrupt):
            gw.train(table, output=run, callbacks=[BadOnce(stop)])
        resumed = gw.train(table, output=run, resume=True, callbacks=[BadOnce(99)])
        assert resumed.summary["updates/nonfinite"] == 1
        assert compare_runs(whole.folder, run).first is None


class Rewrite(Keep):
    """Replaces the data file after the first step, as another program might."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def on_step(self, line: Any) -> None:
        self.path.write_text('{"prompt": "other", "answer": "1"}\n')


def test_a_data_file_that_changes_under_the_run_changes_nothing_in_it(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    sums = [(a, b) for a in range(6) for b in range(4)]
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a, b in sums]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text(text)
    environment = {"name": "dataset", "path": str(path), "audit": False}
    table = RECIPE | {"environment": environment | {"verifiers": [{"name": "number"}]}}
    whole = gw.train(table, output=tmp_path / "whole")
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        gw.train(table, output=run, callbacks=[Rewrite(path), StopAfter(1)])
    asked = open_run(run).rollouts(columns=["prompt"]).to_pydict()["prompt"]
    assert asked == whole.rollouts([0, 1], columns=["prompt"]).to_pydict()["prompt"]
    with pytest.raises(RecipeError, match="was made with other data"):
        gw.train(table, output=run, resume=True)
    path.write_text(text)
    gw.train(table, output=run, resume=True)
    name = "checkpoints/step_000003/model.safetensors"
    ours, theirs = load_file(run / name), load_file(whole.folder / name)
    assert all(ours[key].equal(theirs[key]) for key in theirs)


def test_a_verifier_whose_process_is_killed_costs_its_own_row_alone() -> None:
    verifier = compose([{"name": "reward_functions:killed_by_the_system", "time_limit": 5.0}])
    try:
        texts = ("good", "kill", "fine")
        cases = [Case(Prompt(f"p{row}", text="q"), text) for row, text in enumerate(texts)]
        with pytest.raises(GroupwiseError, match=r"row 1 of 3 .*process was killed \(signal 9\)"):
            score_cases(verifier, cases)
        again = score_cases(verifier, [cases[0], cases[2]])
        assert [each.value for each in again] == [4.0, 4.0]
    finally:
        verifier.close()


def test_the_wall_clock_decides_no_wait_and_no_file() -> None:
    """A clock that jumps (summer time, a correction) ends no wait, as none of them reads it."""
    wall = ("time.time", "time.time_ns", "datetime.utcnow")
    source = Path(gw.__file__).parent
    for path in source.rglob("*.py"):
        if "guest" in path.parts:
            continue
        called = [
            ast.unparse(node.func)
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call)
        ]
        assert not set(called) & set(wall), path


def test_events_are_read_in_the_order_of_writing_whatever_the_clock_said(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run", "", {}) as writer:
        for number, year in enumerate((2030, 1970, 2026)):
            writer._append("events.jsonl", {"time": f"{year}-01-01", "kind": "a", "n": number})
    assert [each["n"] for each in open_run(tmp_path / "run").events("a")] == [0, 1, 2]


def test_half_a_line_of_a_killed_process_does_not_reach_the_next_line(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "run", "", {}).close()
    events = tmp_path / "run" / "events.jsonl"
    events.write_text('{"kind": "whole"}\n{"kind": "ha')
    with RunWriter.reopen(tmp_path / "run") as writer:
        writer.event("next")
    assert [each["kind"] for each in open_run(tmp_path / "run").events()] == ["whole", "next"]


def test_a_fetch_that_was_killed_leaves_nothing_that_looks_like_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROUPWISE_CACHE", str(tmp_path))
    half = tmp_path / "models" / ".m-abc123"
    half.mkdir(parents=True)
    (half / "model.safetensors").write_bytes(b"half")
    built = cached_folder("m", lambda folder: (folder / "whole").write_text("x") and None)
    assert [path.name for path in built.iterdir()] == ["whole"]


def test_cut_weights_are_refused_by_name(tmp_path: Path) -> None:
    entry = get_model("tiny")
    assert entry is not None
    folder = Path(shutil.copytree(entry.get(), tmp_path / "model"))
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(RecipeError, match=r"model\.name = .*cannot be loaded"):
        load_policy(str(folder))


def test_an_adapter_that_is_a_pickle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "adapter_model.bin").write_bytes(pickle.dumps({"x": Path()}, protocol=2))
    with pytest.raises(RecipeError, match=r"cannot be loaded: no adapter_model\.safetensors"):
        load_weights(torch.nn.Linear(2, 2), tmp_path)
