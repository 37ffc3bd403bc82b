"""Every preset against the slow reference: advantages, loss and gradient on random ragged steps."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from claims import claim
from conformance.cases import EVERY, advantages_of, as_step, make, random_case, whole_loss
from conformance.reference import REFERENCE, Case

PAIRS = {"two_grpo", "online_pair_logistic"}


def test_every_algorithm_has_a_reference() -> None:
    assert set(REFERENCE) == set(EVERY)


def compare(name: str, case: Case) -> None:
    algorithm, step, want = make(name), as_step(case), REFERENCE[name](case)
    found = advantages_of(algorithm, step)
    for i, a in enumerate(want.advantages):
        row = found[i]
        if isinstance(a, list):
            torch.testing.assert_close(
                row[: len(a)], torch.tensor(a, dtype=torch.float64), atol=1e-9, rtol=1e-9
            )
            assert not row[len(a) :].any()
        else:
            assert row.item() == pytest.approx(a, abs=1e-9, rel=1e-9)
    out, gradient = whole_loss(algorithm, step)
    assert out.loss.item() == pytest.approx(want.loss, abs=1e-9, rel=1e-9)
    for i, expected in enumerate(want.grad):
        torch.testing.assert_close(
            gradient[i, : len(expected)],
            torch.tensor(expected, dtype=torch.float64),
            atol=1e-9,
            rtol=1e-9,
        )
        assert not gradient[i, len(expected) :].any()


STEPS = {
    "seed": st.integers(0, 10**6),
    "sizes": st.lists(st.integers(1, 5), min_size=1, max_size=4),
    "drift": st.sampled_from([0.0, 0.05, 0.5, 1.5]),
    "longest": st.integers(1, 7),
    "unscored": st.sampled_from([0.0, 0.2, 1.0]),
    "empty": st.sampled_from([0.0, 0.3]),
    "rewards": st.sampled_from([(0.0, 1.0), (0.0, 0.1 + 0.2, 0.3, -0.5, 1.0)]),
}


def compare_random(name: str, sizes: list[int], **step: Any) -> None:
    """One random step; the first group has two rows, so that some group can be compared."""
    shape = (2,) * len(sizes) if name in PAIRS else (2, *sizes)
    case = random_case(sizes=shape, **step)
    if any(case.lp):
        compare(name, case)


@claim(
    "an independent reference in plain loops, 1e-9 in float64: advantages, loss and gradient on "
    "random ragged steps",
    EVERY,
)
@pytest.mark.parametrize("name", sorted(EVERY))
@settings(max_examples=8, derandomize=True)
@given(step=st.fixed_dictionaries(STEPS))
def test_preset_equals_its_reference(name: str, step: dict[str, Any]) -> None:
    compare_random(name, **step)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(EVERY))
@settings(max_examples=60)
@given(step=st.fixed_dictionaries(STEPS))
def test_preset_equals_its_reference_at_length(name: str, step: dict[str, Any]) -> None:
    compare_random(name, **step)


@pytest.mark.parametrize("visits", [1, 2, 3])
def test_dcpo_with_a_history(visits: int) -> None:
    for seed in range(10):
        rng = random.Random(seed)
        earlier = {
            g: [[rng.choice((0.0, 1.0)) for _ in range(rng.randint(2, 4))] for _ in range(visits)]
            for g in range(3)
        }
        compare("dcpo", dataclasses.replace(random_case(seed), earlier=earlier))
