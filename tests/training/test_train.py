"""Whole runs of the tiny policy: exact resume, a complete record, faults that stop in time."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import groupwise as gw
from groupwise.errors import GroupwiseError, NonFiniteError, RecipeError, VerifierError
from groupwise.policies import save_pretrained
from groupwise.records import COMMON_KEYS, RunWriter, diff, find_metric
from groupwise.training.callbacks import Callback
from groupwise.training.process import Interrupted
from groupwise.training.trained import trained_policy
from run_helpers import Keep, StopAfter

BASE: dict[str, Any] = {
    "seed": 5,
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "grpo"},
    "sampling": {"group_size": 4, "max_tokens": 4},
    "training": {"prompts_per_step": 12, "steps": 8, "learning_rate": 1e-3},
    "evaluation": {"every": 4, "samples": 2, "max_prompts": 6},
    "checkpoints": {"every": 3, "keep": 5},
}


def weights(folder: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoints" / f"step_{step:06d}" / "model.safetensors")


def rows(run: Any) -> list[Any]:
    table = run.rollouts().to_pandas()
    return table[["step", "prompt_id", "group_index", "visit", "text", "reward", "advantage"]]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "unbroken"
    gw.train(BASE, output=folder)
    return folder


@pytest.mark.parametrize("stop", [1, 4, 6])
def test_a_resumed_run_equals_the_unbroken_one_bit_for_bit(
    unbroken: Path, tmp_path: Path, stop: int
) -> None:
    """44 prompts, 12 a step: step 3 straddles the first epoch's edge, step 7 the second's.

    Stop 1 has no checkpoint and starts again; 4 goes on from 3, at an epoch's edge; 6 from 6,
    inside the second epoch (fault 43, fault 44).
    """
    folder = tmp_path / "broken"
    with pytest.raises(KeyboardInterrupt):
        gw.train(BASE, output=folder, callbacks=[StopAfter(stop)])
    assert gw.open_run(folder).summary["status"] == "interrupted"
    run = gw.train(BASE, output=folder, resume=True)
    whole = gw.open_run(unbroken)
    for name, tensor in weights(unbroken, 8).items():
        assert torch.equal(tensor, weights(folder, 8)[name]), name
    assert rows(run).equals(rows(whole))
    ids = [
        run.rollouts().to_pandas()[name].map(list).tolist()
        for name in ("prompt_ids", "completion_ids", "sampler_logprobs")
    ]
    expected = [
        whole.rollouts().to_pandas()[name].map(list).tolist()
        for name in ("prompt_ids", "completion_ids", "sampler_logprobs")
    ]
    assert ids == expected
    for mine, theirs in zip(run.metrics().to_pylist(), whole.metrics().to_pylist(), strict=True):
        for name, value in theirs.items():
            if not find_metric(name).measured:
                assert mine[name] == value, name
    for key, value in whole.summary.items():
        if key != "seconds":
            assert run.summary[key] == value


def test_epochs_visit_every_prompt_once_before_any_twice(unbroken: Path) -> None:
    table = gw.open_run(unbroken).rollouts().to_pandas()
    order = table.drop_duplicates(["step", "prompt_id", "visit"])
    assert len(order) == 8 * 12
    first = order[order["visit"] == 0]["prompt_id"]
    assert len(first) == len(set(first)) == 44
    assert set(order["visit"]) == {0, 1, 2}
    assert (table.groupby(["step", "prompt_id", "visit"]).size() == 4).all()


def test_the_record_is_complete(unbroken: Path) -> None:
    run = gw.open_run(unbroken)
    names = {path.name for path in unbroken.iterdir()}
    assert {
        "recipe.toml", "environment.json", "metrics.jsonl", "rollouts", "checkpoints",
        "events.jsonl", "summary.json",
    } <= names  # fmt: skip
    lines = [json.loads(line) for line in (unbroken / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(8))
    for line in lines:
        assert set(COMMON_KEYS) <= set(line)
    table = run.rollouts().to_pandas()
    assert {
        "step", "prompt_id", "group_index", "prompt_ids", "completion_ids", "text",
        "sampler_logprobs", "reward", "rewards", "outcome", "reason", "advantage",
        "finish_reason", "version",
    } <= set(table.columns)  # fmt: skip
    assert (table["version"] == table["step"]).all()
    assert run.summary["status"] == "finished"
    assert run.summary["steps"] == 8
    assert run.summary["tokens"] == lines[-1]["tokens_total"] == sum(x["tokens"] for x in lines)
    first = lines[0]
    assert first["ratio/mean"] == first["ratio/max"] == 1.0
    assert first["kl"] == pytest.approx(0.0, abs=1e-6)
    assert first["sampler_gap/max"] < 2e-5
    assert lines[-1]["kl"] > 0.0
    assert first["eval/accuracy"] is None
    assert lines[3]["eval/accuracy"] is not None
    assert run.summary["eval/accuracy_last"] == lines[-1]["eval/accuracy"]


def test_common_keys_are_the_same_for_every_algorithm(tmp_path: Path) -> None:
    """Fault 62."""
    keys = {}
    for name in ("reinforce", "grpo", "dapo"):
        run = gw.train(
            BASE,
            {"algorithm.preset": name, "training.steps": 1},
            output=tmp_path / name,
        )
        line = json.loads((run.folder / "metrics.jsonl").read_text())
        keys[name] = set(line) & set(COMMON_KEYS)
        assert line["reward"] is not None
        assert line["grad_norm"] is not None
        assert line["entropy"] is not None
        if name != "grpo":
            assert line["kl"] is None
    assert all(found == set(COMMON_KEYS) for found in keys.values())


def test_a_finished_run_is_left_alone_and_an_unfinished_one_can_grow(
    unbroken: Path, tmp_path: Path
) -> None:
    before = (unbroken / "summary.json").read_bytes()
    gw.train(BASE, output=unbroken, resume=True)
    assert (unbroken / "summary.json").read_bytes() == before
    with pytest.raises(RecipeError, match="--resume"):
        gw.train(BASE, output=unbroken)
    with pytest.raises(RecipeError, match=r"training\.learning_rate"):
        gw.train(BASE, {"training.learning_rate": 1.0}, output=unbroken, resume=True)
    fresh = gw.train(BASE, {"training.steps": 2}, output=tmp_path / "grow", resume=True)
    assert fresh.summary["steps"] == 2
    grown = gw.train(BASE, output=tmp_path / "grow", resume=True)
    for name, tensor in weights(unbroken, 8).items():
        assert torch.equal(tensor, weights(grown.folder, 8)[name])
    (resumed,) = grown.events("resumed")
    assert resumed["changed"] == {"training.steps": [2, 8]}
    assert diff(unbroken, grown).recipe == ()


def test_a_foreign_folder_is_never_written_into(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(RecipeError, match="not empty"):
        gw.train(BASE, output=tmp_path)
    with pytest.raises(RecipeError, match="not empty"):
        gw.train(BASE, output=tmp_path, overwrite=True)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_an_interruption_writes_a_checkpoint_first(tmp_path: Path) -> None:
    import os
    import signal

    class Kill(Callback):
        def on_step(self, line: Any) -> None:
            if line["step"] == 1:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match=r"after 2 of 8") as caught:
        gw.train(BASE, output=tmp_path / "run", callbacks=[Kill()])
    assert caught.value.exit_code == 143
    assert (tmp_path / "run" / "checkpoints" / "step_000002").is_dir()


def raising_reward(completions: list[Any], **_: Any) -> list[float]:
    raise KeyError("colour")


def test_a_reward_that_raises_stops_the_run_naming_verifier_row_and_error(tmp_path: Path) -> None:
    overrides = {"environment.verifiers": [{"name": "test_train:raising_reward"}]}
    with pytest.raises(VerifierError, match=r"raising_reward[\s\S]*colour") as caught:
        gw.train(BASE, overrides, output=tmp_path / "run")
    assert caught.value.exit_code == 1
    events = gw.open_run(tmp_path / "run").events("failed")
    assert "KeyError" in events[0]["traceback"]


def test_a_nan_stops_before_the_update_with_the_last_checkpoint_intact(tmp_path: Path) -> None:
    class Poison(Callback):
        def on_ready(self, session: Any) -> None:
            self.session = session

        def on_step(self, line: Any) -> None:
            if line["step"] == 3:
                with torch.no_grad():
                    next(self.session.policy.model.parameters())[0, 0] = float("nan")
                    self.session.sampler.load(self.session.policy, 4)

    folder = tmp_path / "run"
    with pytest.raises(NonFiniteError):
        gw.train(BASE, {"evaluation.every": 0}, output=folder, callbacks=[Poison()])
    assert all(torch.isfinite(t).all() for t in weights(folder, 3).values())
    assert gw.open_run(folder).summary["status"] == "failed"


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"sampling.max_tokens": 2000}, ["do not fit", "sampling.max_tokens"]),
        ({"environment.levl": "table"}, ["levl", "level"]),
        ({"environment.name": "arithmetics"}, ["arithmetics", "arithmetic"]),
        ({"model.name": "smollm"}, ["smollm"]),
        ({"evaluation.splits": ["test"]}, ["evaluation.splits", "test", "heldout"]),
        ({"model.device": "gpu"}, ["model.device", "gpu", "cpu"]),
    ],
)
def test_bad_input_is_refused_before_a_folder_is_made(
    tmp_path: Path, overrides: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(RecipeError) as caught:
        gw.train(BASE, overrides, output=tmp_path / "run")
    for word in words:
        assert word in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_figure_of_25_steps(tmp_path: Path) -> None:
    """About 42 % sampled before; 57 % or more after 25 steps at group size 8; KL under 0.5 nats."""
    recipe = Path(__file__).parents[2] / "recipes" / "tiny_arithmetic.toml"
    run = gw.train(recipe, {"training.steps": 25}, output=tmp_path / "run")
    assert 0.38 <= run.summary["eval/accuracy_first"] <= 0.46
    assert run.summary["eval/accuracy_last"] >= 0.57
    assert 0.0 < run.summary["kl_last"] < 0.5


@pytest.mark.filterwarnings("ignore:no completion of the evaluation")
@pytest.mark.parametrize("outcome", ["infrastructure_error", "verifier_timeout"])
def test_a_step_without_a_single_score_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    """Scores that say so themselves raise nothing, so no policy for exceptions sees them."""
    (tmp_path / "broken_grader.py").write_text(
        "from groupwise.types import Score\n"
        "from groupwise.verifiers import Verifier\n\n\n"
        "class Broken(Verifier):\n"
        "    name = 'broken'\n"
        "    training = False  # the first evaluation still has scores\n\n"
        "    def begin_step(self, step):\n"
        "        self.training = True\n\n"
        "    def score(self, cases):\n"
        f"        broken = Score(None, {outcome!r}, 'no grader')\n"
        "        return [broken if self.training else 0.0 for _ in cases]\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_grader", raising=False)
    verifiers = [{"name": "broken_grader:Broken", "on_error": "skip"}]
    changes = {
        "environment.verifiers": verifiers,
        "environment.audit": False,
        "evaluation.every": 0,
    }
    with pytest.raises(VerifierError, match=f"none of its 48 rollouts .* {outcome} .*no grader"):
        gw.train(BASE, changes, tmp_path / "run")


@pytest.mark.parametrize(("preset", "read"), [("gdpo", "own value"), ("grpo_process", "of steps")])
def test_a_product_is_refused_where_its_factors_are_read(
    tmp_path: Path, preset: str, read: str
) -> None:
    changes = {"environment.combine": "product", "algorithm.preset": preset}
    with pytest.raises(RecipeError, match=f"combine.*{read}"):
        gw.train(BASE, changes, tmp_path / "run")


def test_a_live_run_is_neither_overwritten_nor_resumed(tmp_path: Path) -> None:
    """Another process writes it: refused before anything is deleted."""
    folder = tmp_path / "run"
    gw.train(BASE, {"training.steps": 1, "evaluation.samples": 1}, output=folder)
    before = sorted(path.name for path in folder.rglob("*"))
    with RunWriter.reopen(folder):
        for how in ({"overwrite": True}, {"resume": True}):
            with pytest.raises(RecipeError, match="another process is writing this run"):
                gw.train(BASE, output=folder, **how)  # type: ignore[arg-type]
    assert sorted(path.name for path in folder.rglob("*")) == before
    run = gw.train(BASE, {"training.steps": 2}, output=folder, overwrite=True)
    assert run.summary["steps"] == 2


def test_a_damaged_checkpoint_is_passed_over_and_none_left_is_refused(
    unbroken: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(unbroken, folder)
    (folder / "summary.json").unlink()
    steps = sorted((folder / "checkpoints").glob("step_*"))
    (steps[-1] / "model.safetensors").write_bytes(b"")
    run = gw.train(BASE, output=folder, resume=True)
    for name, tensor in weights(unbroken, 8).items():
        assert torch.equal(tensor, weights(run.folder, 8)[name])
    for step in (folder / "checkpoints").glob("step_*"):
        (step / "model.safetensors").write_bytes(b"")
    (folder / "summary.json").unlink()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(
        GroupwiseError, match=r"cannot be resumed[\s\S]*Nothing in it was[\s\S]*--over"
    ):
        gw.train(BASE, output=folder, resume=True)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_record_shorter_than_the_newest_checkpoint_goes_on_from_an_older_one(
    unbroken: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(unbroken, folder)
    (folder / "summary.json").unlink()
    content = (folder / "metrics.jsonl").read_bytes()
    (folder / "metrics.jsonl").write_bytes(content[:-40])
    run = gw.train(BASE, output=folder, resume=True)
    assert run.metrics().to_pandas()["step"].tolist() == list(range(8))
    for name, tensor in weights(unbroken, 8).items():
        assert torch.equal(tensor, weights(folder, 8)[name])


def test_a_run_recorded_before_a_field_existed_resumes(tmp_path: Path) -> None:
    small = {"training.steps": 1, "evaluation.samples": 1}
    run = gw.train(BASE, small, output=tmp_path / "run")
    path = run.folder / "recipe.toml"
    text = path.read_text()
    path.write_text(text.replace("max_staleness = 0\n", ""))
    assert path.read_text() != text
    again = gw.train(BASE, small | {"training.steps": 2}, output=run.folder, resume=True)
    assert again.summary["steps"] == 2


def test_resume_needs_a_folder_and_says_what_it_does(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="--output"):
        gw.train(BASE, resume=True)
    with pytest.raises(RecipeError, match="one of the two"):
        gw.train(BASE, output=tmp_path / "run", resume=True, overwrite=True)
    fresh, again = Keep(), Keep()
    small = {"training.steps": 2, "evaluation.samples": 1}
    gw.train(BASE, small, output=tmp_path / "run", resume=True, callbacks=[fresh])
    assert any("starting a new one" in note for note in fresh.notes)
    small["training.steps"] = 3
    gw.train(BASE, small, output=tmp_path / "run", resume=True, callbacks=[again])
    assert "resumed at step 2" in again.notes


@pytest.mark.parametrize("where", ["afile/run", "afile"])
def test_an_output_that_cannot_be_a_folder_is_refused(tmp_path: Path, where: str) -> None:
    (tmp_path / "afile").write_text("x")
    with pytest.raises(RecipeError, match="is a file"):
        gw.train(BASE, output=tmp_path / where)


def test_an_export_never_writes_over_anything(unbroken: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(RecipeError, match="not empty"):
        save_pretrained(trained_policy(unbroken), tmp_path)


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [([3], r"callbacks\[0\] = 3; give an object"), (Callback(), "give a list of them")],
)
def test_callbacks_that_are_none(callbacks: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=message):
        gw.train(BASE, output=tmp_path / "run", callbacks=callbacks)
    assert not (tmp_path / "run").exists()


def test_recording_token_details_changes_nothing_but_the_record(
    unbroken: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    run = gw.train(BASE | {"record": {"token_details_every": 3}}, output=other)
    for name, tensor in weights(unbroken, 8).items():
        assert torch.equal(tensor, weights(other, 8)[name])
    table = run.rollouts(
        columns=["step", "completion_ids", "loss_weights", "advantage"]
    ).to_pylist()
    detailed = {row["step"] for row in table if row["loss_weights"] is not None}
    assert detailed == {0, 3, 6}
    pushed = [row for row in table if row["step"] == 0 and row["advantage"]]
    assert pushed
    for row in pushed:  # every token of a completion is pushed the way of its advantage
        assert len(row["loss_weights"]) == len(row["completion_ids"])
        assert all(weight * row["advantage"] > 0 for weight in row["loss_weights"])
