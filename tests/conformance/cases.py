"""Random ragged steps for the conformance tests, as Python lists and as the package's tensors."""

from __future__ import annotations

import dataclasses
import math
import random
from dataclasses import dataclass
from typing import Any

import torch
from experiments.misread_forms import FORMS
from torch import Tensor

from conformance.reference import Case
from groupwise.algorithms import PRESETS, Algorithm, AlgorithmState, UpdatePlan, override

EVERY = {name: entry.algorithm for name, entry in PRESETS.items()} | FORMS
"""The presets, and the forms that are held against the same references."""

VOCABULARY = 30


def make(name: str, **overrides: Any) -> Algorithm:
    return override(EVERY[name], **overrides)


def random_case(
    seed: int,
    *,
    sizes: tuple[int, ...] = (4, 3, 2),
    longest: int = 5,
    drift: float = 0.5,
    unscored: float = 0.15,
    empty: float = 0.1,
    rewards: tuple[float, ...] = (0.0, 1.0, 1.0, 0.25),
) -> Case:
    """Groups of the given sizes with interleaved rows, some unscored, some empty, some cut."""
    rng = random.Random(seed)
    groups = [g for g, size in enumerate(sizes) for _ in range(size)]
    rng.shuffle(groups)
    lengths = [0 if rng.random() < empty else rng.randint(1, longest) for _ in groups]

    def per_token(low: float, high: float) -> list[list[float]]:
        return [[rng.uniform(low, high) for _ in range(n)] for n in lengths]

    def near(rows: list[list[float]]) -> list[list[float]]:
        return [[min(x + rng.gauss(0, drift), -1e-3) for x in row] for row in rows]

    lp = per_token(-3.0, -0.05)
    old = near(lp)
    mu = near(old) if drift else old
    top_lp, top_mu = _top(rng, lp, mu)
    return Case(
        rewards=[math.nan if rng.random() < unscored else rng.choice(rewards) for _ in groups],
        groups=groups,
        lp=lp,
        old=old,
        mu=mu,
        ref=near(lp),
        entropy=per_token(0.1, 2.5),
        components=[[rng.choice((0.0, 1.0)), rng.choice((0.0, 0.2, 0.5))] for _ in groups],
        step_rewards=[[rng.uniform(0, 1) for _ in range(min(n, 2))] for n in lengths],
        step_ends=[sorted(rng.sample(range(n), min(n, 2))) for n in lengths],
        truncated=[rng.random() < 0.2 for _ in groups],
        greedy={g: rng.choice((0.0, 1.0)) for g in range(len(sizes))},
        values=per_token(-0.5, 1.0),
        top_lp=top_lp,
        top_mu=top_mu,
        max_tokens=longest,
        teacher=near(lp),
    )


def _top(
    rng: random.Random, lp: list[list[float]], mu: list[list[float]]
) -> tuple[list[list[list[float]]], list[list[list[float]]]]:
    """Log-probabilities at the sampler's top 2 ids; the sampled token is among them at times."""
    tops_lp: list[list[list[float]]] = []
    tops_mu: list[list[list[float]]] = []
    for row_lp, row_mu in zip(lp, mu, strict=True):
        tops_lp.append([])
        tops_mu.append([])
        for x, m in zip(row_lp, row_mu, strict=True):
            room_lp, room_mu = 1 - math.exp(x), 1 - math.exp(m)
            a, b = rng.uniform(0.2, 0.6), rng.uniform(0.1, 0.3)
            others_mu = [math.log(room_mu * a), math.log(room_mu * b)]
            others_lp = [math.log(room_lp * b), math.log(room_lp * a)]
            if rng.random() < 0.5:
                others_mu[0], others_lp[0] = m, x
            tops_lp[-1].append(others_lp)
            tops_mu[-1].append(others_mu)
    return tops_lp, tops_mu


def on_policy(case: Case) -> Case:
    """The same step before any update: old = sampler = the policy."""
    return dataclasses.replace(case, old=case.lp, mu=case.lp, top_mu=case.top_lp)


def pad(rows: list[list[float]], width: int, fill: float = 0.0) -> Tensor:
    return torch.tensor([row + [fill] * (width - len(row)) for row in rows], dtype=torch.float64)


@dataclass
class Step:
    """A case as tensors: what the loop would hand to an algorithm."""

    case: Case
    rewards: Tensor
    group_ids: Tensor
    mask: Tensor
    tokens: dict[str, Tensor]
    truncated: Tensor
    max_tokens: int


def as_step(case: Case, extra: int = 0, fill: float = 0.0) -> Step:
    """Tensors padded to the longest row plus `extra` columns; padding holds `fill`."""
    width = max(1, max(len(row) for row in case.lp)) + extra
    names = ("lp", "old", "mu", "ref", "entropy", "values", "teacher")
    tokens = {name: pad(getattr(case, name), width, fill) for name in names}
    for name in ("top_lp", "top_mu"):
        rows = getattr(case, name)
        tokens[name] = torch.tensor(
            [row + [[fill, fill]] * (width - len(row)) for row in rows], dtype=torch.float64
        )
    mask = torch.tensor([[t < len(row) for t in range(width)] for row in case.lp])
    return Step(
        case=case,
        rewards=torch.tensor(case.rewards, dtype=torch.float64),
        group_ids=torch.tensor(case.groups),
        mask=mask,
        tokens=tokens,
        truncated=torch.tensor(case.truncated),
        max_tokens=case.max_tokens,
    )


def history(algorithm: Algorithm, case: Case) -> AlgorithmState | None:
    """The state after the earlier visits that the case tells of; None without any."""
    if not case.earlier:
        return None
    state = algorithm.init_state()
    for group, visits in case.earlier.items():
        for rewards in visits:
            algorithm.advantages(
                torch.tensor([rewards], dtype=torch.float64), prompt_ids=[str(group)], state=state
            )
    return state


def advantages_of(algorithm: Algorithm, step: Step) -> Tensor:
    """Shapers, then advantages, with every input that the case has."""
    case, t = step.case, step.tokens
    names = sorted(set(case.groups))
    return algorithm.advantages(
        shaped(algorithm, step),
        step.group_ids,
        components=torch.tensor(case.components, dtype=torch.float64),
        step_rewards=case.step_rewards if algorithm.needs.step_rewards else None,
        step_ends=case.step_ends if algorithm.needs.step_rewards else None,
        mask=step.mask,
        entropies=t["entropy"],
        old_logprobs=t["old"],
        ref_logprobs=t["ref"],
        greedy_rewards=torch.tensor([case.greedy[g] for g in names], dtype=torch.float64),
        values=t["values"],
        teacher_logprobs=t["teacher"],
        prompt_ids=[str(g) for g in names],
        state=history(algorithm, case),
    )


def shaped(algorithm: Algorithm, step: Step) -> Tensor:
    return algorithm.shape_rewards(
        step.rewards,
        lengths=step.mask.sum(1),
        truncated=step.truncated,
        max_tokens=step.max_tokens,
    )


def filtered_mask(algorithm: Algorithm, step: Step) -> Tensor:
    return algorithm.filter_mask(
        step.mask,
        rewards=shaped(algorithm, step),
        unshaped=step.rewards,
        group_ids=step.group_ids,
        truncated=step.truncated,
    ).mask


def token_inputs(algorithm: Algorithm, step: Step) -> dict[str, Tensor]:
    """The [B, T] inputs of the loss that the algorithm asks for."""
    t, needs = step.tokens, algorithm.needs
    out = {"old_logprobs": t["old"]}
    if needs.ref_logprobs:
        out["ref_logprobs"] = t["ref"]
    if needs.sampler_logprobs:
        out["sampler_logprobs"] = t["mu"]
    if needs.teacher == "distribution":  # any number a token will do
        out["divergences"] = (t["lp"] - t["teacher"]).square()
    if needs.entropies != "none":
        out["entropies"] = t["entropy"]
    if needs.top_k:
        out["top_logprobs"], out["sampler_top_logprobs"] = t["top_lp"], t["top_mu"]
    return out


def plan_of(
    algorithm: Algorithm, step: Step, mask: Tensor, dtype: torch.dtype = torch.float64
) -> UpdatePlan:
    return algorithm.plan_update(
        mask,
        group_ids=step.group_ids,
        max_tokens=step.max_tokens,
        entropies=step.tokens["entropy"],
        logprobs=step.tokens["old"].to(dtype),
        advantages=advantages_of(algorithm, step).to(dtype),
    )


def whole_loss(
    algorithm: Algorithm, step: Step, dtype: torch.dtype = torch.float64
) -> tuple[Any, Tensor]:
    """(output, gradient) of the whole chain: shape, advantages, filter, loss."""
    logprobs = step.tokens["lp"].to(dtype).clone().requires_grad_(True)
    inputs = {name: value.to(dtype) for name, value in token_inputs(algorithm, step).items()}
    out = algorithm.loss(
        logprobs,
        mask=filtered_mask(algorithm, step),
        advantages=advantages_of(algorithm, step).to(dtype),
        group_ids=step.group_ids,
        max_tokens=step.max_tokens,
        **inputs,
    )
    (gradient,) = torch.autograd.grad(out.loss, logprobs)
    return out, gradient
