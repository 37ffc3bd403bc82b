"""The DPO family and Bradley-Terry: golden values, a plain float64 reference, gradients, signs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from groupwise.algorithms.preference import (
    METHODS,
    answer_score,
    bradley_terry,
    correlation,
    length_effect,
    preference_loss,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "algorithms.json").read_text())


def plain(case: dict[str, float], own: dict[str, Any], eps: float) -> float:
    """One pair, in floats alone, as the papers write it."""
    beta, margin = own.get("beta", 0.1), own.get("margin", 0.0)

    def score(side: str) -> float:
        value = case[side] - (case[f"ref_{side}"] if own.get("reference", True) else 0.0)
        value = value / case[f"n_{side}"] if own.get("length_normalised") else value
        return value - math.log(1 - math.exp(value)) if own.get("odds") else value

    def f(h: float) -> float:
        if own.get("shape") == "squared":
            return (h / beta - 1 / (2 * beta)) ** 2
        if own.get("shape") == "hinge":
            return max(0.0, 1 - h)
        return math.log(1 + math.exp(-h))

    h = beta * (score("w") - score("l")) - margin
    loss = own.get("coef", 1.0) * ((1 - eps) * f(h) + eps * f(-h))
    return float(loss - own.get("nll", 0.0) * case["w"] / case["n_w"])


def ours(values: dict[str, Tensor], own: dict[str, Any], eps: float) -> Tensor:
    """As the stage puts the parts together."""
    score = {
        side: answer_score(
            values[side],
            values[f"n_{side}"],
            values[f"ref_{side}"] if own.get("reference", True) else None,
            length_normalised=own.get("length_normalised", False),
            odds=own.get("odds", False),
        )
        for side in "wl"
    }
    names = ("shape", "beta", "margin")
    given: Any = {name: own[name] for name in names if name in own}
    pairs = preference_loss(score["w"], score["l"], label_smoothing=eps, **given)
    return own.get("coef", 1.0) * pairs - own.get("nll", 0.0) * values["w"] / values["n_w"]


FAMILY = {**METHODS, "hinge": {"shape": "hinge"}}


@pytest.mark.parametrize("eps", [0.0, 0.2])
@pytest.mark.parametrize("method", FAMILY)
def test_values_and_gradients_are_the_formulas(method: str, eps: float) -> None:
    generator = torch.Generator().manual_seed(3)
    count, own = 12, FAMILY[method]
    values = {
        name: -20 * torch.rand(count, generator=generator, dtype=torch.float64) - 1
        for name in ("w", "l", "ref_w", "ref_l")
    }
    for name in ("n_w", "n_l"):
        values[name] = torch.randint(1, 9, (count,), generator=generator).double()
    for side in "wl":
        values[side].requires_grad_(True)
    losses = ours(values, own, eps)
    cases = [
        {name: float(each.detach()[row]) for name, each in values.items()} for row in range(count)
    ]
    wanted = [plain(case, own, eps) for case in cases]
    assert losses.tolist() == pytest.approx(wanted, rel=1e-12)
    losses.sum().backward()
    for side in "wl":
        gradient = values[side].grad
        assert gradient is not None
        for row, case in enumerate(cases):
            step = 1e-5
            up, down = ({**case, side: case[side] + sign * step} for sign in (1, -1))
            slope = (plain(up, own, eps) - plain(down, own, eps)) / (2 * step)
            assert float(gradient[row]) == pytest.approx(slope, abs=1e-5, rel=1e-5)


def test_the_golden_dpo_value_and_gradient() -> None:
    golden = next(value for name, value in GOLDEN["losses"].items() if name.startswith("DPO"))
    policy = torch.tensor(golden["params"]["pi"], dtype=torch.float64, requires_grad=True)
    refs = torch.tensor(golden["params"]["ref"], dtype=torch.float64)
    scores = answer_score(policy, torch.ones(2, dtype=torch.float64), refs)
    loss = preference_loss(scores[:1], scores[1:], beta=golden["params"]["beta"])
    loss.sum().backward()
    assert float(loss.detach()) == pytest.approx(golden["loss"], abs=1e-12)
    assert float(loss.detach()) == pytest.approx(0.513015252, abs=1e-9)
    assert policy.grad is not None
    assert policy.grad.tolist() == pytest.approx(golden["grad"], abs=1e-9)
    assert policy.grad.tolist() == pytest.approx([-0.040131234, 0.040131234], abs=1e-9)


def test_equal_answers_give_the_logarithm_of_two() -> None:
    same = torch.tensor([-3.0, 0.0], dtype=torch.float64)
    wanted = pytest.approx([math.log(2)] * 2, abs=1e-15)
    assert preference_loss(same, same).tolist() == wanted
    assert preference_loss(same, same, label_smoothing=0.3).tolist() == wanted
    assert bradley_terry(same, same).tolist() == wanted


def test_the_golden_bradley_terry_value_and_its_terms() -> None:
    name = next(each for each in GOLDEN["scalars"] if each.startswith("Bradley-Terry"))
    one, other = (torch.tensor([each], dtype=torch.float64) for each in (1.3, 0.4))
    loss = float(bradley_terry(one, other))
    assert loss == pytest.approx(GOLDEN["scalars"][name], abs=1e-12)
    assert loss == pytest.approx(0.341154, abs=1e-6)
    margin = math.log(1 + math.exp(-(1.3 - 0.4 - 0.5)))
    assert float(bradley_terry(one, other, 0.5)) == pytest.approx(margin, abs=1e-12)
    assert float(bradley_terry(one, other, torch.tensor([0.5]).double())) == pytest.approx(margin)
    centred = float(bradley_terry(one, other, centring=0.1))
    assert centred == pytest.approx(loss + 0.1 * 1.7**2, abs=1e-12)
    soft = 0.8 * loss + 0.2 * (loss + 0.9)
    given = torch.tensor([0.2], dtype=torch.float64)
    assert float(bradley_terry(one, other, label_smoothing=given)) == pytest.approx(soft)


def test_the_effect_of_length_is_the_slope_at_equal_label() -> None:
    """score = 2 if chosen, + 0.25 a token, + what the prompt adds: the slope is 0.25 whatever the
    chosen answers' lengths are."""
    generator = torch.Generator().manual_seed(0)
    prompts = torch.rand(40, generator=generator)
    long, short = (torch.randint(low, low + 9, (40,), generator=generator) for low in (12, 3))
    chosen, rejected = prompts + 2 + 0.25 * long, prompts + 0.25 * short
    slope = length_effect(chosen - rejected, (long - short).float())
    assert slope == pytest.approx(0.25, abs=1e-5)
    assert length_effect(chosen - rejected, torch.full((40,), 3.0)) == 0.0
    assert correlation(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 4.0, 7.0])) == (
        pytest.approx(0.99339927, abs=1e-7)
    )
    assert correlation(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 2.0])) is None
