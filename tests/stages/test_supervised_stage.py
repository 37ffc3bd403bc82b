"""What a supervised stage does to a policy: its effect with a control, early stop, an adapter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import groupwise as gw
from groupwise.checkpoints import load_checkpoint
from groupwise.errors import GroupwiseError, NonFiniteError
from groupwise.policies import get_model, has_adapter, load_policy
from groupwise.stages import data_stage, supervised
from groupwise.stages.fitting import epoch_order
from groupwise.stages.supervised import TokenLoss
from pipeline_helpers import pipeline, sum_rows, write_rows


def stage(data: Path, **training: Any) -> dict[str, Any]:
    return {
        "name": "sft",
        "kind": "supervised",
        "data": {"path": str(data)},
        "training": {"learning_rate": 1e-3, "examples_per_step": 16, **training},
        "checkpoints": {"every": 0},
    }


def fitted(data: Path, output: Path, made: dict[str, Any], **top: Any) -> dict[str, Any]:
    run = gw.train(pipeline(data, made, **top), output=output)
    (found,) = run.summary["stages"]
    assert found["status"] == "finished"
    return found  # type: ignore[no-any-return]


EVERYTHING = {"evaluation": {"splits": ["train", "heldout"], "samples": 4}}


def test_right_answers_raise_accuracy_and_shuffled_ones_do_not(tmp_path: Path) -> None:
    """The same rows, updates and order; the control's answers are those of another sum."""
    accuracies, intervals = {}, {}
    for name, shift in (("right", 0), ("shuffled", 17)):
        data = write_rows(tmp_path / f"{name}.jsonl", sum_rows(shift))
        found = fitted(data, tmp_path / name, stage(data, epochs=12), **EVERYTHING)
        values = found["last"]
        accuracies[name] = values["guard/accuracy"]
        intervals[name] = values["guard/accuracy_low"], values["guard/accuracy_high"]
        before = found["first"]["guard/accuracy"], found["first"]["guard/accuracy_high"]
        assert found["last"]["loss"] < 0.6 * found["first"]["loss"] or name == "shuffled"
    assert intervals["right"][0] > before[1]
    assert intervals["shuffled"][1] < before[0]
    assert accuracies["right"] > 0.8 > 0.3 > accuracies["shuffled"]


def test_loss_before_and_after_is_of_the_same_rows(tmp_path: Path) -> None:
    """Of the first update's rows: the second update's are others, with a loss of their own."""
    data = write_rows(tmp_path / "rows.jsonl", sum_rows(17))
    guard = {"evaluation": {"samples": 1, "max_prompts": 1}}
    found = fitted(data, tmp_path / "run", stage(data, steps=2, learning_rate=1e-9), **guard)
    losses = gw.open_run(tmp_path / "run/stages/sft").metrics()["loss"].to_pylist()
    assert abs(losses[0] - losses[1]) > 0.01
    assert found["first"]["loss"] == losses[0]
    assert found["last"]["loss"] == pytest.approx(losses[0], abs=1e-4)


def test_patience_stops_and_keeps_the_best_weights(tmp_path: Path) -> None:
    """Held-out sums with other answers than the trained ones: their loss soon rises."""
    rows = [*sum_rows(17), *[{**row, "prompt": f"{row['prompt']} "} for row in sum_rows()]]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    made = stage(data, steps=60, evaluate_every=2, patience=2, learning_rate=3e-3)
    made |= {"heldout_share": 0.3, "checkpoints": {"every": 0, "keep": 1}}
    found = fitted(data, tmp_path / "run", made, evaluation={"samples": 1, "max_prompts": 1})
    run = gw.open_run(tmp_path / "run" / "stages" / "sft")
    steps, best = run.summary["steps"], found["last"]["steps"]
    losses = {e["version"]: e["values"]["fit/eval_loss"] for e in run.events("evaluation")}
    assert run.summary["stopped_early"]
    assert steps < 60
    assert best == min((v for v in losses if v), key=lambda version: losses[version])
    assert steps == best + 4, "two evaluations, two steps apart, without a lower loss"
    assert found["last"]["fit/eval_loss"] == losses[best] < losses[steps]
    kept = load_checkpoint(run.folder / "checkpoints" / f"step_{best:06d}")
    written = load_file(run.folder / "model" / "model.safetensors")
    assert all(torch.equal(kept.model_state[name], tensor) for name, tensor in written.items())


def test_an_adapter_trains_alone_and_is_merged_into_the_model(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", sum_rows())
    made = stage(data, epochs=6, learning_rate=1e-2)
    made["model"] = {"adapter": {"rank": 4}}
    found = fitted(data, tmp_path / "run", made, **EVERYTHING)
    assert found["last"]["guard/accuracy_low"] > found["first"]["guard/accuracy"]
    folder = tmp_path / "run" / found["output"]
    assert not has_adapter(load_policy(str(folder)).model)
    entry = get_model("tiny")
    assert entry is not None
    base = load_file(entry.get() / "model.safetensors")
    whole = load_file(folder / "model.safetensors")
    changed = {name for name, tensor in base.items() if not torch.equal(tensor, whole[name])}
    assert changed
    assert all(".self_attn." in name or ".mlp." in name for name in changed)


def test_an_epoch_has_every_example_once_in_a_keyed_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, ...]] = []

    class Watch(TokenLoss):
        def sum_loss(self, policy: Any, examples: Any) -> Any:
            seen.extend(each.prompt_ids for each in examples)
            return super().sum_loss(policy, examples)

    monkeypatch.setattr(supervised, "TokenLoss", Watch)
    data = write_rows(tmp_path / "rows.jsonl", sum_rows())
    made = {**stage(data), "training": {"epochs": 2, "examples_per_step": 10}}
    fitted(data, tmp_path / "run", made, evaluation={"samples": 1, "max_prompts": 1})
    first, second = seen[:55], seen[55:]
    assert len(set(first)) == 55
    assert set(first) == set(second)
    orders = [epoch_order(55, 1, "sft", 0), epoch_order(55, 2, "sft", 0)]
    orders += [epoch_order(55, 1, "other", 0), epoch_order(55, 1, "sft", 1)]
    assert len(set(orders)) == 4
    assert epoch_order(55, 1, "sft", 0) == orders[0]


def test_a_loss_that_is_not_finite_stops_the_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(TokenLoss):
        def sum_loss(self, policy: Any, examples: Any) -> Any:
            loss, more = super().sum_loss(policy, examples)
            return loss * float("nan"), more

    monkeypatch.setattr(supervised, "TokenLoss", Broken)
    data = write_rows(tmp_path / "rows.jsonl", sum_rows())
    with pytest.raises(NonFiniteError, match="stage 'sft', step 0: the loss is not finite"):
        gw.train(pipeline(data, stage(data, steps=2)), output=tmp_path / "run")
    summary = gw.open_run(tmp_path / "run").summary
    assert summary["status"] == "failed"
    assert summary["stages"][0]["status"] == "failed"


def test_other_rows_are_refused_on_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_rows(tmp_path / "rows.jsonl", sum_rows())
    recipe = pipeline(data, stage(data, steps=2))

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(data_stage, "write_model", stop)
        with pytest.raises(KeyboardInterrupt):
            gw.train(recipe, output=tmp_path / "run")
    write_rows(data, sum_rows(1))
    with pytest.raises(GroupwiseError, match="was made with other data"):
        gw.train(recipe, output=tmp_path / "run", resume=True)
