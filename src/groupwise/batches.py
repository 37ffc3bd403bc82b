"""Groups + algorithm -> batch: align rows, shape rewards, compute advantages, filter, divide.

Every statistic
is over all scored rows of the step, so how rows are later divided cannot change it.
Shapes: B rows, T the longest completion, G group size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import nan

import torch
from torch import Tensor

from groupwise.algorithms import Algorithm, AlgorithmState
from groupwise.randomness import generator
from groupwise.types import Batch, Group, Rollout, Rows


def align(groups: Sequence[Group]) -> Rows:
    """Lay the sequences of all groups out as rows; a group's rows are adjacent."""
    rollouts = [rollout for group in groups for rollout in group.sequences]
    width = max((len(rollout.completion_ids) for rollout in rollouts), default=0)
    width = max(width, 1)
    return Rows(
        prompt_ids=[rollout.prompt_ids for rollout in rollouts],
        completion_ids=[rollout.completion_ids for rollout in rollouts],
        mask=_pad([rollout.mask for rollout in rollouts], width, torch.bool),
        group_ids=torch.tensor(
            [number for number, group in enumerate(groups) for _ in group.sequences],
            dtype=torch.int64,
        ),
        sampler_logprobs=_pad(
            [rollout.sampler_logprobs for rollout in rollouts], width, torch.float32
        ),
        entropies=_optional(rollouts, "entropies", width),
        top_ids=_optional_top(rollouts, "top_ids", width, torch.int64),
        sampler_top_logprobs=_optional_top(rollouts, "top_logprobs", width, torch.float32),
        supports=_supports(rollouts),
        experts=_experts(rollouts),
    )


def _supports(rollouts: Sequence[Rollout]) -> list[list[tuple[int, ...] | None]] | None:
    """What sampling kept at every completion id; None where no completion was truncated."""
    turns = [turn for rollout in rollouts for turn in rollout.turns]
    if all(turn.completion.supports is None for turn in turns):
        return None
    found: list[list[tuple[int, ...] | None]] = []
    for rollout in rollouts:
        row: list[tuple[int, ...] | None] = []
        for number, turn in enumerate(rollout.turns):
            row.extend([None] * len(turn.context_ids) if number else [])
            row.extend(turn.completion.supports or [None] * turn.completion.num_tokens)
        found.append(row)
    return found


def _experts(rollouts: Sequence[Rollout]) -> list[tuple[bytes, ...]] | None:
    """`Rows.experts`: a prompt is run once for its rows, so they share the first one's there."""
    if all(rollout.experts is None for rollout in rollouts):
        return None
    prompts: dict[tuple[int, ...], tuple[bytes, ...]] = {}
    found = []
    for rollout in rollouts:
        prompt, length = rollout.prompt_ids, len(rollout.prompt_ids) + len(rollout.completion_ids)
        own = rollout.experts or (b"",) * (length - 1)
        found.append((*prompts.setdefault(prompt, own[: len(prompt)]), *own[len(prompt) :]))
    return found


def _pad(rows: Sequence[Sequence[float | bool]], width: int, dtype: torch.dtype) -> Tensor:
    padded = torch.zeros(len(rows), width, dtype=dtype)
    for index, row in enumerate(rows):
        if row:
            padded[index, : len(row)] = torch.tensor(row, dtype=dtype)
    return padded


def _optional(rollouts: Sequence[Rollout], name: str, width: int) -> Tensor | None:
    if any(getattr(turn.completion, name) is None for row in rollouts for turn in row.turns):
        return None
    return _pad([rollout.per_token(name) for rollout in rollouts], width, torch.float32)


def _optional_top(
    rollouts: Sequence[Rollout], name: str, width: int, dtype: torch.dtype
) -> Tensor | None:
    """[B, T, K], 0 in slots without a sampled token."""
    turns = [turn for row in rollouts for turn in row.turns]
    if not turns or any(getattr(turn.completion, name) is None for turn in turns):
        return None
    size = max((len(slot) for turn in turns for slot in getattr(turn.completion, name)), default=0)
    padded = torch.zeros(len(rollouts), width, size, dtype=dtype)
    empty = (0,) * size
    for index, rollout in enumerate(rollouts):
        values = rollout.per_token(name, fill=empty)
        if values:
            padded[index, : len(values)] = torch.tensor(values, dtype=dtype)
    return padded


def make_batch(
    groups: Sequence[Group],
    rows: Rows,
    algorithm: Algorithm,
    *,
    max_tokens: int,
    state: AlgorithmState | None = None,
    old_logprobs: Tensor | None = None,
    ref_logprobs: Tensor | None = None,
    values: Tensor | None = None,
    teacher_logprobs: Tensor | None = None,
    taught: Tensor | None = None,
    equal_prompts: bool = False,
) -> Batch:
    """Shaped rewards, advantages and the filtered mask of one step.

    `max_tokens` is the generation limit (never the padded width). `old_logprobs` and `ref_logprobs`
    [B, T] are needed here only by algorithms that put a KL term into the reward, `values` [B, T] by
    those with a critic, `teacher_logprobs` [B, T] by those with a teacher; rows that have none
    (`taught` [B] False) do not train where nothing else is learned from. `equal_prompts` is passed
    on. `state` is updated in place. Raises ValueError, naming the part, where one lacks its input.

    A branch is not scored, so that no statistic counts a rollout twice; then it has its rollout's
    advantage.
    """
    needs = algorithm.needs
    rollouts = [rollout for group in groups for rollout in group.sequences]
    rows_of = [row - rollout.branch for row, rollout in enumerate(rollouts)]
    owners = torch.tensor(rows_of, dtype=torch.int64)
    raw = _with_nan([None if each.branch else each.reward for each in rollouts])
    truncated = torch.tensor([rollout.truncated for rollout in rollouts])
    lengths = torch.tensor([rollout.num_tokens for rollout in rollouts], dtype=torch.int64)
    rewards = algorithm.shape_rewards(
        raw,
        lengths=lengths,
        truncated=truncated,
        max_tokens=max_tokens,
        entropies=rows.entropies,
        mask=rows.mask,
    )
    prompt_ids = [group.prompt.id for group in groups for _ in group.sequences]
    filtered = algorithm.filter_mask(
        torch.ones(len(rollouts), 1, dtype=torch.bool),
        rewards=rewards,
        group_ids=rows.group_ids,
        truncated=truncated,
        unshaped=raw,
        accuracies=_with_nan([None if r.branch else r.score.accuracy for r in rollouts]),
        prompt_ids=prompt_ids,
        state=state,
    )
    old = old_logprobs if old_logprobs is not None else rows.sampler_logprobs
    advantages = algorithm.advantages(
        rewards,
        group_ids=rows.group_ids,
        components=_components(rollouts) if needs.components else None,
        step_rewards=_step_rewards(rollouts) if needs.step_rewards else None,
        step_ends=[rollout.step_ends or () for rollout in rollouts] if needs.step_rewards else None,
        mask=rows.mask,
        entropies=rows.entropies,
        old_logprobs=old,
        ref_logprobs=ref_logprobs,
        greedy_rewards=_greedy_rewards(groups) if needs.greedy else None,
        values=values,
        teacher_logprobs=teacher_logprobs,
        prompt_ids=prompt_ids,
        state=state,
    )
    trains, metrics = rows.mask & filtered.mask[owners], dict(filtered.counts)
    num_branches = sum(rollout.branch > 0 for rollout in rollouts)
    if num_branches:
        metrics["filter/unscored_rows"] -= num_branches
        advantages = _shared(advantages, owners, algorithm)
    if taught is not None:
        metrics["teacher/untaught"] = float((~taught).sum())
        if algorithm.transform.ignores_reward:
            trains = trains & taught.unsqueeze(1)
    if teacher_logprobs is not None:
        known = trains & ~teacher_logprobs.isnan()
        gap = torch.where(known, old - teacher_logprobs, 0).double().sum()
        metrics["teacher/kl"] = float(gap / known.sum()) if bool(known.any()) else nan
    returns = None
    if needs.values:
        returns = algorithm.returns(
            rewards,
            group_ids=rows.group_ids,
            mask=rows.mask,
            values=values,
            old_logprobs=old,
            ref_logprobs=ref_logprobs,
        )
    return Batch(
        rows=rows,
        mask=trains,
        rewards=rewards,
        advantages=advantages,
        max_tokens=max_tokens,
        old_logprobs=old_logprobs,
        ref_logprobs=ref_logprobs,
        values=values,
        returns=returns,
        metrics=metrics,
        equal_prompts=equal_prompts,
    )


def _shared(advantages: Tensor, owners: Tensor, algorithm: Algorithm) -> Tensor:
    """[B]: every branch with its rollout's advantage."""
    if advantages.dim() > 1:
        raise ValueError(
            f"algorithm {algorithm.name!r} gives every token an advantage of its own, which the "
            'branches of an agent cannot share; set environment.on_rewrite = "refuse"'
        )
    return advantages[owners]


def _with_nan(values: Sequence[float | None]) -> Tensor:
    """[B] float32, NaN for None."""
    return torch.tensor([nan if value is None else value for value in values], dtype=torch.float32)


def _step_rewards(rollouts: Sequence[Rollout]) -> list[list[float]]:
    """The values of every row's steps; none for a row without a score."""
    for rollout in rollouts:
        if rollout.score.scored and rollout.score.steps is None:
            raise ValueError(
                f"the score of a completion of prompt {rollout.prompt.id!r} has no steps, and the "
                "algorithm needs step rewards; give Score(steps=...) for every scored completion"
            )
    return [[step.value for step in rollout.score.steps or ()] for rollout in rollouts]


def _components(rollouts: Sequence[Rollout]) -> Tensor:
    """[B, R]: each verifier's own value, in a fixed order; NaN where it did not apply. A part of a
    part (`rubric/clear`) is in that one's value."""
    every = {name for rollout in rollouts for name in rollout.score.parts}
    names = sorted(name for name in every if name.partition("/")[0] not in every - {name})
    values = [rollout.score.parts.get(name) for rollout in rollouts for name in names]
    return _with_nan(values).reshape(len(rollouts), len(names))


def _greedy_rewards(groups: Sequence[Group]) -> Tensor:
    """[B]: the reward of the group's greedy rollout, repeated for its rows."""
    greedy = [group.greedy for group in groups for _ in group.sequences]
    return _with_nan([None if each is None else each.reward for each in greedy])


def split_groups(
    group_ids: Tensor, minibatches: int, *, seed: int, step: int, pass_index: int
) -> list[Tensor]:
    """Row indices of each optimiser update of one pass: whole groups, near-equal numbers of them.

    The first pass keeps the order of the step; later ones shuffle the groups by a keyed draw.
    Raises ValueError where there are more minibatches than groups.
    """
    groups = sorted(set(group_ids.tolist()))
    if minibatches > len(groups):
        raise ValueError(
            f"minibatches = {minibatches} with {len(groups)} groups; give at most {len(groups)}"
        )
    if pass_index:
        generator(seed, "order", "pass", step, pass_index).shuffle(groups)
    bounds = [round(part * len(groups) / minibatches) for part in range(minibatches + 1)]
    updates = []
    for first, last in pairwise(bounds):
        chosen = torch.tensor(groups[first:last], dtype=group_ids.dtype)
        updates.append(torch.isin(group_ids, chosen).nonzero().flatten())
    return updates


def split_rows(
    rows: Rows,
    index: Tensor,
    token_budget: int,
    *,
    whole_groups: bool = False,
    padded: bool = False,
) -> list[Tensor]:
    """Micro-batches of at most `token_budget` tokens: whole rows, a group together where it fits.

    Counted are the tokens that the policy runs over: a prompt once a micro-batch, however many of
    its rows are in it. A group larger than the budget is cut between rows, unless `whole_groups`; a
    row larger than it is a micro-batch of its own. `padded` counts for a model that runs every row
    for itself, all as long as the longest. Division only adds up: the update's weights are made
    before it.
    """
    if padded:
        return _split_padded(rows, index, token_budget, whole_groups)
    parts: list[_Part] = []
    groups = _units(rows, index, whole_groups=True, by_prompt=not whole_groups)
    pieces = [
        piece
        for group in groups
        for piece in ([group] if whole_groups else _pieces(rows, group, token_budget))
    ]
    sized = [(sum(_tokens(rows, piece)), piece) for piece in pieces]
    for size, piece in sorted(sized, key=lambda each: (-each[0], each[1])):
        prompt = rows.prompt_ids[piece[0]]
        for part in parts:
            if part.tokens + size - part.shared(prompt) <= token_budget:
                break
        else:
            part = _Part()
            parts.append(part)
        part.add(piece, size, prompt)
    return [torch.tensor(part.rows, dtype=torch.int64) for part in parts]


@dataclass(slots=True)
class _Part:
    """A micro-batch while it fills up."""

    rows: list[int] = field(default_factory=list[int])
    prompts: set[tuple[int, ...]] = field(default_factory=set[tuple[int, ...]])
    tokens: int = 0

    def shared(self, prompt: tuple[int, ...]) -> int:
        """Tokens of a prompt that are here already."""
        return len(prompt) if prompt in self.prompts else 0

    def add(self, piece: tuple[int, ...], size: int, prompt: tuple[int, ...]) -> None:
        self.tokens += size - self.shared(prompt)
        self.prompts.add(prompt)
        self.rows.extend(piece)


def _tokens(rows: Rows, piece: Sequence[int]) -> tuple[int, int]:
    """Tokens of these rows' distinct prompts, and of their completions without their last."""
    completions = sum(max(len(rows.completion_ids[row]) - 1, 0) for row in piece)
    return sum(map(len, {rows.prompt_ids[row] for row in piece})), completions


def _pieces(rows: Rows, group: tuple[int, ...], token_budget: int) -> list[tuple[int, ...]]:
    """A group in as few pieces within the budget as its rows allow, the longest rows first."""
    if sum(_tokens(rows, group)) <= token_budget:
        return [group]
    pieces: list[list[int]] = []
    left = 0
    for row in sorted(group, key=lambda row: (-len(rows.completion_ids[row]), row)):
        prompt, own = _tokens(rows, (row,))
        if not pieces or own > left:
            pieces.append([])
            left = token_budget - prompt
        pieces[-1].append(row)
        left -= own
    return [tuple(piece) for piece in pieces]


def _split_padded(rows: Rows, index: Tensor, token_budget: int, whole_groups: bool) -> list[Tensor]:
    """Whole rows (or groups), longest first, each micro-batch at most the budget when padded."""
    units = _units(rows, index, whole_groups)
    width = {unit: max(_length(rows, row) for row in unit) for unit in units}
    parts: list[list[int]] = []
    widest = 0
    for unit in sorted(units, key=lambda unit: (-width[unit], unit)):
        if parts and widest * (len(parts[-1]) + len(unit)) <= token_budget:
            parts[-1].extend(unit)
        else:
            parts.append(list(unit))
            widest = width[unit]
    return [torch.tensor(part, dtype=torch.int64) for part in parts]


def _units(
    rows: Rows, index: Tensor, whole_groups: bool, by_prompt: bool = False
) -> list[tuple[int, ...]]:
    """Single rows, or whole groups; `by_prompt`, the rows of a group that share their prompt's ids,
    which an agent's do not always."""
    if not whole_groups:
        return [(row,) for row in index.tolist()]
    members: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for row in index.tolist():
        key = int(rows.group_ids[row]), rows.prompt_ids[row] if by_prompt else ()
        members.setdefault(key, []).append(row)
    return [tuple(unit) for unit in members.values()]


def _length(rows: Rows, row: int) -> int:
    return len(rows.prompt_ids[row]) + len(rows.completion_ids[row])
