"""A recorded step's update under another algorithm: how it differs, and at which tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from groupwise.algorithms import Algorithm
from groupwise.algorithms.presets import override
from groupwise.errors import RecipeError
from groupwise.records import Run, check_single
from groupwise.replay.rows import Row, algorithm_of, group_numbers


@dataclass(frozen=True, slots=True)
class MovedToken:
    """A sampled token and its loss weights under the two algorithms; `position` is its place in the
    completion."""

    prompt_id: str
    group_index: int
    position: int
    token_id: int
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class UpdateReplay:
    """Two updates of one step, in the space of the sampled tokens' log-probabilities.

    `norms` are the L2 norms of the two vectors of loss weights (minus the derivative of the loss by
    a token's log-probability), `cosine` is between them, None where one is 0. `flipped` counts the
    tokens that one raises and the other lowers. `rows` have, for each rollout, the loss weights of
    both, [T] each. `recorded_cosine` is between the run's own update as recorded and as recomputed:
    1 where the record holds all that the algorithm reads.
    """

    step: int
    algorithms: tuple[str, str]
    norms: tuple[float, float]
    cosine: float | None
    tokens: int
    flipped: int
    recorded_cosine: float | None
    rows: tuple[dict[str, Any], ...]
    notes: tuple[str, ...]

    def moved_tokens(self, number: int) -> list[MovedToken]:
        """The tokens whose loss weights differ most, the largest difference first."""
        every = [
            MovedToken(row["prompt_id"], row["group_index"], place, token_id, before, after)
            for row in self.rows
            for place, (token_id, before, after) in enumerate(
                zip(row["completion_ids"], row["before"], row["after"], strict=True)
            )
        ]
        return sorted(every, key=lambda token: -abs(token.after - token.before))[:number]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self) | {"moved_tokens": [asdict(each) for each in self.moved_tokens(20)]}


def replay_update(run: Run, step: int, algorithm: Algorithm) -> UpdateReplay:
    """What `algorithm` would have done with the rollouts that a step learned from.

    Both updates are recomputed from the record: rewards, masks, the sampler's and the learner's
    log-probabilities. KL against a reference is left out of both. Raises RecipeError where the step
    has no rollouts or no token details, or an algorithm needs what is not recorded.
    """
    check_single(run, "replay")
    rows = [row for row in run.rollouts(step).to_pylist() if row["kind"] in _LEARNED]
    if not rows:
        known = run.steps
        named = f"the steps are {known[0]} to {known[-1]}" if known else "there are no steps"
        raise RecipeError(f"step {step} has no rollouts that were learned from; {named}")
    if "imported" in run.environment:
        raise RecipeError(
            f"{run.folder} is imported: it has no token ids and no log-probabilities to recompute "
            "a step from; --verifier NAME needs none"
        )
    rows = [row for row in rows if row.get("learner_logprobs") is not None]
    if not rows:
        raise RecipeError(
            f"step {step} has no token details (learner_logprobs): record.token_details_every was "
            "0 or passed over it, or no update was made"
        )
    own, notes = algorithm_of(run), []
    if own.needs.ref_logprobs or algorithm.needs.ref_logprobs:
        notes.append("the KL against the reference is left out: its log-probabilities are not kept")
    limit = int(run.recipe["sampling"]["max_tokens"])
    before, after = (_loss_weights(each, rows, limit) for each in (own, algorithm))
    recorded = [torch.tensor(row["loss_weights"], dtype=torch.float64) for row in rows]
    flat = [torch.cat(each) for each in (before, after, recorded)]
    return UpdateReplay(
        step=step,
        algorithms=(own.name, algorithm.name),
        norms=(float(flat[0].norm()), float(flat[1].norm())),
        cosine=_cosine(flat[0], flat[1]),
        tokens=int(sum(sum(row["mask"]) for row in rows)),
        flipped=int((flat[0] * flat[1] < 0).sum()),
        recorded_cosine=_cosine(flat[2], flat[0]),
        rows=tuple(
            {
                "prompt_id": row["prompt_id"],
                "group_index": row["group_index"],
                "text": row["text"],
                "completion_ids": row["completion_ids"],
                "before": a.tolist(),
                "after": b.tolist(),
            }
            for row, a, b in zip(rows, before, after, strict=True)
        ),
        notes=tuple(notes),
    )


_LEARNED = ("training", "replayed")


def _loss_weights(algorithm: Algorithm, rows: Sequence[Row], max_tokens: int) -> list[Tensor]:
    """[T] each: minus the derivative of the whole step's loss by the tokens' log-probabilities."""
    if algorithm.kl.coef:
        algorithm = override(algorithm, kl_coef=0.0)
    groups = torch.tensor(group_numbers(rows))
    mask = _table(rows, "mask").bool()
    raw = torch.tensor([math.nan if r["reward"] is None else r["reward"] for r in rows]).double()
    truncated = torch.tensor([row["finish_reason"] != "stop" for row in rows])
    entropies, old = _table(rows, "entropies"), _old(rows)
    prompt_ids = [row["prompt_id"] for row in rows]
    try:
        rewards = algorithm.shape_rewards(
            raw,
            lengths=mask.sum(dim=1),
            truncated=truncated,
            max_tokens=max_tokens,
            entropies=entropies,
            mask=mask,
        )
        kept = algorithm.filter_mask(
            mask,
            rewards=rewards,
            group_ids=groups,
            truncated=truncated,
            unshaped=raw,
            accuracies=raw,
            prompt_ids=prompt_ids,
            state=algorithm.init_state(),
        ).mask
        advantages = algorithm.advantages(
            rewards,
            group_ids=groups,
            mask=mask,
            entropies=entropies,
            old_logprobs=old,
            prompt_ids=prompt_ids,
            state=algorithm.init_state(),
        )
        logprobs = _table(rows, "learner_logprobs").requires_grad_(True)
        loss = algorithm.loss(
            logprobs,
            mask=kept,
            advantages=advantages,
            old_logprobs=old,
            sampler_logprobs=_table(rows, "sampler_logprobs"),
            entropies=entropies,
            group_ids=groups,
            max_tokens=max_tokens,
            state=algorithm.init_state(),
        ).loss
    except ValueError as error:
        raise RecipeError(f"{algorithm.name} needs what is not recorded: {error}") from error
    (gradient,) = torch.autograd.grad(loss, logprobs)
    return [-gradient[place, : len(row["completion_ids"])] for place, row in enumerate(rows)]


def _old(rows: Sequence[Row]) -> Tensor:
    """The log-probabilities at the start of the step: recorded, else those of the one update."""
    has_old = all(row["old_logprobs"] is not None for row in rows)
    return _table(rows, "old_logprobs" if has_old else "learner_logprobs")


def _table(rows: Sequence[Row], name: str) -> Tensor:
    """[B, T] float64, 0 where a row is shorter."""
    width = max(len(row["completion_ids"]) for row in rows)
    table = torch.zeros(len(rows), width, dtype=torch.float64)
    for place, row in enumerate(rows):
        values = torch.tensor(row[name], dtype=torch.float64)
        table[place, : len(values)] = values
    return table


def _cosine(a: Tensor, b: Tensor) -> float | None:
    norms = float(a.norm() * b.norm())
    return float(a @ b) / norms if norms else None
