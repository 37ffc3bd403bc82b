"""The preference stage: its effect with a control, the reference, exact resume, bad settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import groupwise as gw
from groupwise.errors import RecipeError
from groupwise.policies import Policy, has_adapter, load_policy, logprobs
from groupwise.stages.chats import TokenExample
from groupwise.stages.objective import micro_batches
from groupwise.stages.preference import LossSettings, PairLoss
from groupwise.training.callbacks import Callback
from helpers import make_policy
from pair_helpers import make_pairs, wrong_rows
from pipeline_helpers import pipeline, write_rows

EVERYTHING = {"evaluation": {"splits": ["train", "heldout"], "samples": 4}}


def stage(data: Path, **more: Any) -> dict[str, Any]:
    training = {"learning_rate": 1e-3, "examples_per_step": 16, **more.pop("training", {})}
    return {
        "name": "dpo",
        "kind": "preference",
        "data": {"path": str(data)},
        "training": training,
        "checkpoints": {"every": 0},
        **more,
    }


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "stages" / "dpo" / "model" / "model.safetensors")


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensor, other[key]) for key, tensor in one.items())


class Break(Callback):
    """Ends the run inside a step, as a killed process would."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, line: Any) -> None:
        if line["step"] == self.step:
            raise KeyboardInterrupt


def logprob(policy: Policy, side: TokenExample) -> Tensor:
    """The sum over trained tokens, from the model's own logits, a row at a time."""
    row = torch.tensor([[*side.prompt_ids, *side.completion_ids]])
    table = policy.model(input_ids=row).logits[0].log_softmax(-1)
    start = len(side.prompt_ids) - 1
    places = [n for n, trains in enumerate(side.mask) if trains]
    return sum(  # type: ignore[return-value]
        (table[start + n, side.completion_ids[n]] for n in places), torch.zeros(())
    )


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("budget", [1, 40, 10_000])
def test_value_and_gradient_however_pairs_are_divided(
    monkeypatch: pytest.MonkeyPatch, budget: int, padded: bool
) -> None:
    policy, pairs = make_policy(dtype=torch.float64), make_pairs()
    wanted = torch.zeros((), dtype=torch.float64)
    for pair in pairs:
        one, other = (logprob(policy, side) for side in pair.sides)
        h = 0.1 * ((one - pair.reference[0]) - (other - pair.reference[1]))
        wanted = wanted + torch.log1p(torch.exp(-h)) / len(pairs)
    wanted.backward()
    named = {name: p for name, p in policy.model.named_parameters() if p.grad is not None}
    gradients = {name: p.grad.clone() for name, p in named.items() if p.grad is not None}
    policy.model.zero_grad()
    if padded:
        monkeypatch.setattr(logprobs, "packable", lambda _decoder: False)
    objective = PairLoss(LossSettings())
    parts = micro_batches([objective.size(each) for each in pairs], budget, padded=padded)
    value, sums = 0.0, dict[str, float]()
    for part in parts:
        loss, more = objective.sum_loss(policy, [pairs[place] for place in part])
        (loss / len(pairs)).backward()
        value += float(loss.detach()) / len(pairs)
        sums = {name: sums.get(name, 0.0) + number for name, number in more.items()}
    assert value == pytest.approx(float(wanted.detach()), abs=1e-12)
    for name, parameter in named.items():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=0, atol=1e-12)
    chosen = sum(float(logprob(policy, pair.chosen).detach()) for pair in pairs)
    assert sums["chosen_logprob"] == pytest.approx(chosen, abs=1e-9)


def test_right_against_wrong_raises_accuracy_and_shuffled_pairs_do_not(tmp_path: Path) -> None:
    """The same prompts, updates and order; the control's pairs are in the order of a coin."""
    last, first = {}, {}
    for shuffled in (False, True):
        data = write_rows(tmp_path / f"{shuffled}.jsonl", wrong_rows(shuffled))
        made = stage(data, training={"epochs": 3}, heldout_share=0.2)
        run = gw.train(pipeline(data, made, **EVERYTHING), output=tmp_path / str(shuffled))
        (found,) = run.summary["stages"]
        last[shuffled], first[shuffled] = found["last"], found["first"]
    assert first[False]["fit/eval_loss"] == pytest.approx(0.693147, abs=1e-5)
    assert first[False]["fit/eval_accuracy"] == 0.5, "at the start the policy is the reference"
    assert last[False]["fit/eval_accuracy"] > 0.9 > 0.65 > last[True]["fit/eval_accuracy"]
    assert last[False]["fit/eval_margin"] > 0.3 > abs(last[True]["fit/eval_margin"])
    assert last[False]["guard/accuracy_low"] > first[False]["guard/accuracy_high"]
    assert last[True]["guard/accuracy"] < first[True]["guard/accuracy_high"]
    steps = gw.open_run(run.folder / "stages" / "dpo").metrics().to_pylist()
    assert steps[0]["tokens/trained"] == 16 * 2 * 2, "an answer is a digit and its end"


def test_killed_inside_it_ends_as_the_unbroken_stage_does(tmp_path: Path) -> None:
    """The reference is that of the start, not of the weights it resumes with."""
    data = write_rows(tmp_path / "rows.jsonl", wrong_rows(each=1))
    made = stage(data, training={"steps": 5}, heldout_share=0.2, checkpoints={"every": 2})
    recipe = pipeline(data, made, evaluation={"samples": 1, "max_prompts": 1})
    gw.train(recipe, output=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        gw.train(recipe, output=tmp_path / "broken", callbacks=[Break(3)])
    gw.train(recipe, output=tmp_path / "broken", resume=True)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "broken"))
    stored = [
        tmp_path / name / "stages" / "dpo" / "reference.jsonl" for name in ("whole", "broken")
    ]
    assert stored[0].read_text() == stored[1].read_text()
    line = json.loads(stored[0].read_text().splitlines()[0])
    assert line["logprobs"][0] > line["logprobs"][1]


def test_an_adapter_trains_alone_and_the_reference_is_its_base(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", wrong_rows(each=1))
    made = stage(data, training={"steps": 3, "learning_rate": 1e-2})
    made["model"] = {"adapter": {"rank": 4}}
    run = gw.train(
        pipeline(data, made, evaluation={"samples": 1, "max_prompts": 1}), output=tmp_path / "run"
    )
    (found,) = run.summary["stages"]
    assert found["first"]["loss"] == pytest.approx(0.693147, abs=1e-5)
    assert found["last"]["loss"] < 0.69
    assert not has_adapter(load_policy(str(run.folder / found["output"])).model)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, {"beta": 0.1, "reference": True, "length_normalised": False}),
        ({"method": "dpo_normalised"}, {"beta": 5.0, "length_normalised": True}),
        ({"method": "simpo", "beta": 3.0}, {"beta": 3.0, "margin": 0.5, "reference": False}),
        ({"method": "orpo"}, {"odds": True, "coef": 0.1, "nll": 1.0}),
    ],
)
def test_a_method_sets_what_is_left_out(settings: dict[str, Any], wanted: dict[str, Any]) -> None:
    found = LossSettings(**settings)
    assert {name: getattr(found, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"loss": {"method": "dpoo"}}, "stage 'dpo': loss.method = 'dpoo'"),
        ({"loss": {"odds": True}}, "odds = true: odds are of a mean probability"),
        ({"loss": {"label_smoothing": 0.5}}, "stage 'dpo': loss.label_smoothing = 0.5"),
        ({"model": {"adapter": {"rank": 2, "dropout": 0.1}}}, "model.adapter.dropout = 0.1"),
        ({"training": {"patience": 2}}, "training.patience = 2: no example is held out"),
        ({"heldout_share": 1e-9}, "heldout_share = 1e-09 holds out 0 of 55 examples"),
        ({"data": {"path": "nothing.jsonl"}}, "data.path = 'nothing.jsonl': there is no such file"),
    ],
)
def test_bad_settings_are_refused_before_weights_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], words: str
) -> None:
    def load(*_: Any, **__: Any) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr("groupwise.stages.stage.load_policy", load)
    data = write_rows(tmp_path / "rows.jsonl", wrong_rows(each=1))
    with pytest.raises(RecipeError) as caught:
        gw.train(pipeline(data, {**stage(data), **more}), output=tmp_path / "run")
    assert words in str(caught.value)


def test_bad_rows_are_named_with_their_lines(tmp_path: Path) -> None:
    rows: list[Any] = [
        {"prompt": "1+1=", "chosen": "2", "rejected": "2"},
        {"prompt": "1+1=", "chosen": "2" * 3000, "rejected": "3"},
        {"chosen": "2", "rejected": "3"},
    ]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    with pytest.raises(RecipeError) as caught:
        gw.train(pipeline(data, stage(data)), output=tmp_path / "run")
    for words in ("line 1: has a chosen", "line 2: is longer than", "line 3: has no 'prompt'"):
        assert words in str(caught.value)
