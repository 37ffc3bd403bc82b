"""Distillation: values worked out by hand, a plain reference, signs, gradients, limits, masks."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from algorithms.fixture import f64
from groupwise.algorithms import preset
from groupwise.algorithms.distillation import (
    Distillation,
    discounted_suffix_sum,
    forward_kl,
    generalised_jsd,
    reverse_kl,
    with_rest,
)
from groupwise.errors import RecipeError

# p_T = (1/2, 1/3, 1/6), p_S = (1/4, 1/4, 1/2): logarithms of fractions, worked out by hand.
TEACHER, STUDENT = (1 / 2, 1 / 3, 1 / 6), (1 / 4, 1 / 4, 1 / 2)
REVERSE = math.log(1 / 2) / 4 + math.log(3 / 4) / 4 + math.log(3) / 2
FORWARD = math.log(2) / 2 + math.log(4 / 3) / 3 + math.log(1 / 3) / 6
# beta 1/4: m = (5/16, 13/48, 5/12)
JSD = (math.log(8 / 5) / 2 + math.log(16 / 13) / 3 + math.log(2 / 5) / 6) / 4 + 3 * (
    math.log(4 / 5) / 4 + math.log(12 / 13) / 4 + math.log(6 / 5) / 2
) / 4
# top 1 of the teacher and the rest: (1/2, 1/2) against (1/4, 3/4)
REVERSE_TOP = math.log(1 / 2) / 4 + 3 * math.log(3 / 2) / 4
FORMS: list[dict[str, Any]] = [
    {"form": "reverse_kl"},
    {"form": "forward_kl"},
    {"form": "jsd", "beta": 0.25},
    {"form": "jsd", "beta": 0.9},
    {"form": "reverse_kl", "top_k": 2},
    {"form": "forward_kl", "top_k": 2},
    {"form": "jsd", "top_k": 1},
]


def kl(p: Sequence[float], q: Sequence[float]) -> float:
    return math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a)


def reference(
    student: list[float], teacher: list[float], form: str, beta: float = 0.5, top_k: int = 0
) -> float:
    """Plain floats, from the written formulas."""
    if top_k and top_k + 1 < len(teacher):
        best = sorted(range(len(teacher)), key=lambda v: -teacher[v])[:top_k]
        student, teacher = (
            [p[v] for v in best] + [math.fsum(x for v, x in enumerate(p) if v not in best)]
            for p in (student, teacher)
        )
    if form == "jsd":
        mixture = [beta * t + (1 - beta) * s for s, t in zip(student, teacher, strict=True)]
        return beta * kl(teacher, mixture) + (1 - beta) * kl(student, mixture)
    return kl(student, teacher) if form == "reverse_kl" else kl(teacher, student)


def draw(rng: random.Random, size: int, temperature: float) -> tuple[list[float], list[float]]:
    """(logits, probabilities at the temperature)."""
    logits = [rng.gauss(0, 2) for _ in range(size)]
    exps = [math.exp(x / temperature) for x in logits]
    return logits, [x / math.fsum(exps) for x in exps]


def test_values_by_hand() -> None:
    student, teacher = f64(STUDENT).log(), f64(TEACHER).log()
    assert reverse_kl(student, teacher).item() == pytest.approx(REVERSE, abs=1e-12)
    assert forward_kl(student, teacher).item() == pytest.approx(FORWARD, abs=1e-12)
    assert generalised_jsd(student, teacher, 0.25).item() == pytest.approx(JSD, abs=1e-12)
    top = reverse_kl(*with_rest(student, teacher, 1)).item()
    assert top == pytest.approx(REVERSE_TOP, abs=1e-12)
    assert [round(x, 6) for x in (REVERSE, FORWARD, JSD, REVERSE_TOP)] == [
        0.304099, 0.259366, 0.049398, 0.130812,
    ]  # fmt: skip


@pytest.mark.parametrize("fields", FORMS, ids=str)
def test_forms_equal_the_reference_and_its_finite_differences(fields: dict[str, Any]) -> None:
    """A temperature on each side; the gradient is at the student's logits."""
    made, rng = Distillation(**fields), random.Random(3)
    for hot, cold in ((1.0, 1.0), (2.0, 0.5)):
        logits, student = draw(rng, 5, hot)
        others, teacher = draw(rng, 5, cold)
        live, given = f64(logits).requires_grad_(), f64(others)
        out = made.divergence((live / hot).log_softmax(-1), (given / cold).log_softmax(-1))
        assert out.item() == pytest.approx(reference(student, teacher, **fields), abs=1e-12)
        (gradient,) = torch.autograd.grad(out, live)
        for v in range(5):
            sides = []
            for step in (1e-5, -1e-5):
                moved = [x + step * (u == v) for u, x in enumerate(logits)]
                exps = [math.exp(x / hot) for x in moved]
                sides.append(reference([x / math.fsum(exps) for x in exps], teacher, **fields))
            assert gradient[v].item() == pytest.approx((sides[0] - sides[1]) / 2e-5, abs=1e-8)


def test_a_step_moves_the_student_to_the_teacher() -> None:
    """A sign test, for every form; equal distributions give 0 and no gradient."""
    teacher = f64(TEACHER).log()
    for fields in FORMS:
        made = Distillation(**fields)
        logits = f64(STUDENT).log().requires_grad_()
        out = made.divergence(logits.log_softmax(-1), teacher)
        (gradient,) = torch.autograd.grad(out, logits)
        assert gradient[0] < 0 < gradient[2], fields  # p_T(0) > p_S(0), p_T(2) < p_S(2)
        after = made.divergence((logits - 0.1 * gradient).log_softmax(-1), teacher)
        assert 0 < after < out, fields
        same = teacher.clone().requires_grad_()
        still = made.divergence(same.log_softmax(-1), teacher)
        (none,) = torch.autograd.grad(still, same)
        assert abs(still.item()) < 1e-15
        assert none.abs().max() < 1e-15


def test_the_two_ends_of_the_jsd() -> None:
    """D/beta is the forward KL at 0 and D/(1 - beta) the reverse KL at 1; D itself is 0 at both."""
    student, teacher = f64(STUDENT).log(), f64(TEACHER).log()
    low, high = (generalised_jsd(student, teacher, beta).item() for beta in (1e-6, 1 - 1e-6))
    assert low / 1e-6 == pytest.approx(FORWARD, rel=1e-5)
    assert high / 1e-6 == pytest.approx(REVERSE, rel=1e-5)
    assert pytest.approx(REVERSE, rel=0.1) != FORWARD
    swapped = generalised_jsd(teacher, student, 0.25).item()
    assert swapped == pytest.approx(generalised_jsd(student, teacher, 0.75).item(), abs=1e-12)
    assert swapped != pytest.approx(JSD, rel=0.01)
    for beta in (0.0, 1.0):
        with pytest.raises(RecipeError, match=r"distillation\.beta"):
            Distillation(form="jsd", beta=beta)
        with pytest.raises(ValueError, match=r"give 0\.5"):
            generalised_jsd(student, teacher, beta)


def test_a_rest_bucket_bounds_from_below_and_all_ids_are_exact() -> None:
    rng = random.Random(5)
    student, teacher = (f64(draw(rng, 6, 1.0)[1]).log() for _ in range(2))
    for divergence in (reverse_kl, forward_kl):
        found = [divergence(*with_rest(student, teacher, k)).item() for k in range(1, 7)]
        assert found == sorted(found)
        assert found[0] < found[-1] == divergence(student, teacher).item()


def test_extreme_logits_stay_finite() -> None:
    for fields in FORMS:
        live = f64([[800.0, 0.0, -800.0], [-1e30, 0.0, 1.0]]).requires_grad_()
        teacher = f64([[-800.0, 0.0, 800.0], [-1e30, 1.0, 0.0]]).log_softmax(-1)
        out = Distillation(**fields).divergence(live.log_softmax(-1), teacher)
        (gradient,) = torch.autograd.grad(out.sum(), live)
        assert out.isfinite().all(), fields
        assert gradient.isfinite().all(), fields


# the sampled form


MASK = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
OLD = f64([[-1.0, -2.0, -0.5], [-1.0, -1.0, 9.0], [-3.0, 9.0, 9.0]])
LOGPROBS_T = f64([[-0.5, -2.5, -0.25], [math.nan] * 3, [-1.0, math.nan, math.inf]])


def sampled(
    rewards: Any = ((1.0, 0.0, 0.0),), name: str = "on_policy_distillation", **over: Any
) -> Tensor:
    algorithm = preset(name, **over)
    return algorithm.advantages(
        f64(rewards), mask=MASK, old_logprobs=OLD, teacher_logprobs=LOGPROBS_T
    )


def test_the_sampled_signal_by_hand() -> None:
    """log p_T - log p_S a token; 0 off the mask and in a row without a teacher."""
    now = [[0.5, -0.5, 0.25], [0.0, 0.0, 0.0], [2.0, 0.0, 0.0]]
    assert sampled().tolist() == now
    later = sampled(extras=[{"kind": "distillation", "discount": 1.0}])
    assert later.tolist() == [[0.25, -0.25, 0.25], [0.0, 0.0, 0.0], [2.0, 0.0, 0.0]]
    half = sampled(extras=[{"kind": "distillation", "discount": 0.5, "coef": 2.0}])
    assert half[0].tolist() == [0.625, -0.75, 0.5]
    assert discounted_suffix_sum(f64([[1.0, 2.0, 4.0]]), 0.5).tolist() == [[3.0, 4.0, 4.0]]


def test_a_reward_is_added_to_the_teacher_where_it_is_asked_for() -> None:
    plain = sampled()
    assert torch.equal(sampled([[0.0, 1.0, 1.0]]), plain)
    with_reward = sampled(transform="identity", baseline="group_mean")
    torch.testing.assert_close(
        with_reward, torch.where(MASK, plain + f64([2 / 3, -1 / 3, -1 / 3]).unsqueeze(1), 0)
    )
    unscored = sampled([[math.nan, 0.0, 1.0]])
    assert not unscored[0].any()


def test_the_gradient_raises_what_the_teacher_likes() -> None:
    """-w A at every token: one over the update's tokens, whatever rows are without a teacher."""
    algorithm = preset("on_policy_distillation")
    live = OLD.clone().requires_grad_()
    out = algorithm.loss(live, mask=MASK, advantages=sampled(), old_logprobs=OLD)
    (gradient,) = torch.autograd.grad(out.loss, live)
    torch.testing.assert_close(gradient, -sampled() / 6)


def test_the_divergence_is_weighted_like_every_token_and_live() -> None:
    algorithm = preset(
        "on_policy_distillation",
        extras=[{"kind": "distillation", "form": "reverse_kl", "coef": 3.0}],
    )
    values = f64([[1.0, 2.0, 3.0], [4.0, 5.0, math.nan], [6.0, math.inf, -1.0]]).requires_grad_()
    out = algorithm.loss(
        OLD, mask=MASK, advantages=torch.zeros(3), old_logprobs=OLD, divergences=values
    )
    assert out.loss.item() == pytest.approx(3 * 21 / 6)
    (gradient,) = torch.autograd.grad(out.loss, values)
    torch.testing.assert_close(gradient, MASK * 3 / f64(6.0))
    assert out.metrics["teacher/divergence"] == 3.5
    with pytest.raises(ValueError, match="distillation needs divergences"):
        algorithm.loss(OLD, mask=MASK, advantages=torch.zeros(3), old_logprobs=OLD)


def test_all_later_terms_make_the_gradient_of_the_whole_completion() -> None:
    """Two tokens of two ids, every completion enumerated: with discount 1 the expected gradient is
    that of the reverse KL of whole completions; with 0 it leaves out what a token does to later
    ones."""
    logits = f64([0.3, -0.2, 0.1, 0.4, -0.6, 0.2]).requires_grad_()  # first, after 0, after 1
    teacher = f64([0.7, 0.3, 0.2, 0.8, 0.6, 0.4]).log()
    student = torch.cat([part.log_softmax(0) for part in logits.split(2)])

    def tokens(table: Tensor, first: int, second: int) -> Tensor:
        return torch.stack([table[first], table[2 + 2 * first + second]])

    pairs = [(a, b) for a in (0, 1) for b in (0, 1)]
    exact = f64(0.0)
    for pair in pairs:
        lp = tokens(student, *pair)
        exact = exact + lp.sum().exp() * (lp - tokens(teacher, *pair)).sum()
    (want,) = torch.autograd.grad(exact, logits, retain_graph=True)
    found = {}
    for discount in (0.0, 1.0):
        total = f64(0.0)
        for pair in pairs:
            lp = tokens(student, *pair)
            gap = (tokens(teacher, *pair) - lp).detach().unsqueeze(0)
            signal = discounted_suffix_sum(gap, discount)[0]
            total = total - lp.sum().exp().detach() * (signal * lp).sum()
        (found[discount],) = torch.autograd.grad(total, logits, retain_graph=True)
    torch.testing.assert_close(found[1.0], want)
    torch.testing.assert_close(found[0.0][2:], want[2:])
    assert (found[0.0][:2] - want[:2]).abs().max() > 0.005


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extras": []}, "no_reward leaves nothing to learn from"),
        ({"extras": [{"kind": "distillation", "top_k": 4}]}, "top_k = 4: the sampled form"),
        (
            {"extras": [{"kind": "distillation", "form": "jsd", "discount": 0.5}]},
            "discount = 0.5: whole distributions",
        ),
        ({"extras": [{"kind": "distillation", "form": "kl"}]}, "'sampled', 'reverse_kl'"),
        ({"extras": ["distillation", "distillation"]}, "one distillation at most"),
    ],
)
def test_what_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        preset("on_policy_distillation", **changes)


def test_needs_and_a_cut_distribution() -> None:
    algorithm = preset("on_policy_distillation")
    assert algorithm.needs.teacher == "logprobs"
    whole = preset("grpo", extras=[{"kind": "distillation", "form": "forward_kl", "top_k": 20}])
    assert whole.needs.teacher == "distribution"
    assert "KL(p_T‖p_S) over the top 20" in whole.extras[0].formula()
    with pytest.raises(RecipeError, match="teacher's whole one"):
        algorithm.check(top_p=0.9)
    with pytest.raises(ValueError, match="distillation needs teacher_logprobs"):
        algorithm.advantages(f64([[1.0, 0.0, 0.0]]), mask=MASK, old_logprobs=OLD)
