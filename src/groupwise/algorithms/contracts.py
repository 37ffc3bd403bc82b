"""What the rest of the house sees of an algorithm: its needs, an update's plan, a loss, its sums.

An optimiser update goes: `plan = algorithm.plan_update(mask of the whole update, ...)`, then for
each micro-batch of whole rows `terms = algorithm.loss_terms(..., plan=plan.rows(index))`, then
`terms.loss.backward()`; losses and sums of micro-batches and of ranks add up, nothing is divided.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

if TYPE_CHECKING:
    from groupwise.algorithms.filters import DynamicSampling

Anchor = Literal["old", "sampler", "none"]
EntropyNeed = Literal["none", "detached", "live"]
TeacherNeed = Literal["none", "logprobs", "distribution"]
Scope = Literal["row", "step", "token"]
Tokens: TypeAlias = Float[Tensor, "B T"]
TokenMask: TypeAlias = Bool[Tensor, "B T"]


@dataclass(frozen=True, slots=True)
class Needs:
    """What an algorithm asks of the loop, in plain words that know no algorithm.

    `old_logprobs`: the learner's own log-probabilities must be recomputed before the advantages,
    even with a single update a step (KL in the reward). Where it is False and `ratio_anchor` is
    "old", a single update a step needs no recomputation: the ratio is exactly 1.
    `ratio_anchor`: what the ratio divides by, None without a ratio. `sampler_logprobs`: the loss
    reads them (anchor, correction, off-policy mask). `entropies`: "detached" as numbers, "live"
    with a gradient. `top_k`: log-probabilities a position at the sampler's top K ids.
    `max_tokens`: the weight divides by the generation budget. `group_size`: the exact one, or
    None; `min_group_size`: the smallest legal one. `keep`: dynamic sampling's filter, or None.
    `teacher`: "logprobs" of the sampled tokens, or its whole "distribution" at every token.
    `whole_groups`: a micro-batch must not split a group. `state`: `init_state()` holds something,
    keep it in the checkpoint and pass it in.
    """

    old_logprobs: bool = False
    ref_logprobs: bool = False
    sampler_logprobs: bool = False
    entropies: EntropyNeed = "none"
    teacher: TeacherNeed = "none"
    top_k: int = 0
    greedy: bool = False
    step_rewards: bool = False
    components: bool = False
    values: bool = False
    max_tokens: bool = False
    group_size: int | None = None
    min_group_size: int = 1
    keep: DynamicSampling | None = None
    ratio_anchor: Literal["old", "sampler"] | None = None
    whole_groups: bool = False
    state: bool = False

    def anchored_to(self, anchor: Anchor) -> Needs:
        """The same needs with what the ratio's anchor asks for."""
        if anchor == "none":
            return self
        sampler = self.sampler_logprobs or anchor == "sampler"
        return replace(self, ratio_anchor=anchor, sampler_logprobs=sampler)


@dataclass(frozen=True, slots=True)
class UpdateInputs:
    """What a plan is made from, [B, T] of the whole update: `logprobs` at its start (the old ones,
    else the sampler's) and `advantages`, each None where the caller has none."""

    mask: Bool[Tensor, "B T"]
    entropies: Float[Tensor, "B T"] | None = None
    logprobs: Float[Tensor, "B T"] | None = None
    advantages: Float[Tensor, "B T"] | None = None

    def need(self, name: str, part: str) -> Tensor:
        """An input, 0 off the mask; ValueError naming the part where it was not given."""
        value = getattr(self, name)
        if value is None:
            raise ValueError(f"{part} needs {name}, which were not given")
        return torch.where(self.mask, value.detach(), 0)


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """Everything that one optimiser update decides from its whole mask.

    `weight` [B, T] float64 (float32 on MPS): each token's share of the loss, 0 outside the mask.
    `keep` [B, T] bool or None: False silences a token's policy term. `marked` [B, T] bool or None:
    the tokens that the surrogate chose from the whole update.
    `group_index` [B] int64 or None and `group_rows` [B] int64 or None: the row's group, and how
    many rows of it train in this update. The counts are of the whole update and stay what they are
    when `rows` slices.
    """

    weight: Float[Tensor, "B T"]
    num_rows: int
    num_tokens: int
    keep: Bool[Tensor, "B T"] | None = None
    marked: Bool[Tensor, "B T"] | None = None
    group_index: Int[Tensor, " B"] | None = None
    group_rows: Int[Tensor, " B"] | None = None

    def rows(self, index: Tensor | slice | Sequence[int]) -> UpdatePlan:
        """The plan of some of the rows, in any order: indices, a bool [B] or a slice."""
        at: Tensor | slice = (
            index if isinstance(index, slice) else torch.as_tensor(index, device=self.weight.device)
        )
        return self._each(lambda x: x[at])

    def to(self, device: torch.device) -> UpdatePlan:
        """The plan on a device (float32 weights where it has no float64)."""
        if self.weight.device == device:
            return self
        plan = replace(self, weight=self.weight.float()) if device.type == "mps" else self
        return plan._each(lambda x: x.to(device))

    def columns(self, width: int) -> UpdatePlan:
        """The plan cut to its first `width` columns, for a micro-batch with less padding."""
        return self._each(lambda x: x[:, :width] if x.dim() == 2 else x)

    def _each(self, change: Callable[[Tensor], Tensor]) -> UpdatePlan:
        names = ("weight", "keep", "marked", "group_index", "group_rows")
        found = {name: getattr(self, name) for name in names}
        changed = {name: None if x is None else change(x) for name, x in found.items()}
        return replace(self, **changed)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class MetricSums:
    """Metrics as sums that merge exactly: micro-batches and ranks add with `+`.

    `means` name -> (numerator, denominator); `totals` name -> sum; `lows`, `highs` name ->
    extreme; `effective` name -> (count, sum w, sum w^2), finished as (sum w)^2 / (count sum w^2).
    Numbers are floats, or 0-dim tensors until `read`.

    >>> a = MetricSums(means={"x": (1.0, 10.0)}) + MetricSums(means={"x": (2.0, 2.0)})
    >>> a.finish()["x"]
    0.25
    """

    means: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    totals: Mapping[str, Any] = field(default_factory=dict)
    lows: Mapping[str, Any] = field(default_factory=dict)
    highs: Mapping[str, Any] = field(default_factory=dict)
    effective: Mapping[str, tuple[Any, Any, Any]] = field(default_factory=dict)

    def __add__(self, other: MetricSums) -> MetricSums:
        return MetricSums(
            _merged(self.means, other.means, _plus),
            _merged(self.totals, other.totals, operator.add),
            _merged(self.lows, other.lows, min),
            _merged(self.highs, other.highs, max),
            _merged(self.effective, other.effective, _plus),
        )

    def read(self) -> MetricSums:
        """The same with floats for 0-dim tensors: one transfer from their device."""
        tables = [getattr(self, f.name) for f in fields(self)]
        listed = [v for table in tables for v in table.values()]
        flat = [x for v in listed for x in (v if isinstance(v, tuple) else (v,))]
        wide = torch.float32 if flat[0].device.type == "mps" else torch.float64
        numbers = iter(torch.stack([x.to(wide) for x in flat]).tolist())

        def floats(v: Any) -> Any:
            return tuple(next(numbers) for _ in v) if isinstance(v, tuple) else next(numbers)

        return MetricSums(*({name: floats(v) for name, v in t.items()} for t in tables))

    def finish(self) -> dict[str, float]:
        """The metrics as plain floats; NaN where there was nothing to measure."""
        out = {
            name: top / bottom if bottom else math.nan for name, (top, bottom) in self.means.items()
        }
        out.update(self.totals)
        for extremes in (self.lows, self.highs):
            out.update({name: v if math.isfinite(v) else math.nan for name, v in extremes.items()})
        for name, (count, first, second) in self.effective.items():
            out[name] = first * first / (count * second) if second else math.nan
        return out


def _merged(a: Mapping[str, Any], b: Mapping[str, Any], join: Callable[..., Any]) -> dict[str, Any]:
    both = {name: join(a[name], b[name]) for name in a.keys() & b.keys()}
    return {name: both.get(name, value) for name, value in {**a, **b}.items()}


def _plus(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))


@dataclass(frozen=True, slots=True)
class LossTerms:
    """A micro-batch's part of the update's loss (a scalar tensor that adds up), and its sums."""

    loss: Float[Tensor, ""]
    sums: MetricSums


@dataclass(frozen=True, slots=True)
class LossOutput:
    """The loss of one whole optimiser update and its metrics as floats."""

    loss: Float[Tensor, ""]
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class Filtered:
    """The mask after the filters [B, T] bool, and how many rows each of them removed."""

    mask: Bool[Tensor, "B T"]
    counts: dict[str, float]
