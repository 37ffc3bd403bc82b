"""Groups as a padded layout, and the tests on their spread. No row order, no adjacency assumed.

A degenerate population is found by its spread (max - min) with a tolerance, never by a standard
deviation of zero: four rewards of 0.2 that were summed in different orders have a standard
deviation near 1e-17, and dividing by it makes noise of order one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

RELATIVE_TOLERANCE = 1e-6
ABSOLUTE_TOLERANCE = 1e-7


@dataclass(frozen=True, slots=True)
class Groups:
    """B rows sorted into P groups. `index` [B] is the row's group in 0..P-1 (ascending group id);
    `layout` [P, G] holds row numbers, `filled` [P, G] says which places are real (G = largest)."""

    index: Int[Tensor, " B"]
    layout: Int[Tensor, "P G"]
    filled: Bool[Tensor, "P G"]

    @property
    def num_groups(self) -> int:
        return self.layout.shape[0]

    def gather(self, values: Tensor) -> Tensor:
        """[B, ...] -> [P, G * ...]: a group's entries in one row. Empty places repeat row 0."""
        return values[self.layout].flatten(1)

    def gather_present(self, present: Tensor) -> Tensor:
        """[B, ...] bool -> [P, G * ...] bool, False in empty places."""
        picked = present[self.layout]
        shape = self.filled.shape + (1,) * (picked.dim() - 2)
        return (picked & self.filled.view(shape)).flatten(1)

    def spread_back(self, per_group: Shaped[Tensor, " P"]) -> Shaped[Tensor, " B"]:
        """[P] -> [B]: the group's number at each of its rows."""
        return per_group[self.index]


def make_groups(group_ids: Int[Tensor, " B"]) -> Groups:
    """Sort rows by group id; ids may interleave, groups may differ in size."""
    _, index, sizes = torch.unique(group_ids, return_inverse=True, return_counts=True)
    order = torch.argsort(index, stable=True)
    starts = torch.cumsum(sizes, 0) - sizes
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device) - starts[index[order]]
    width = int(sizes.max()) if len(sizes) else 0
    layout = torch.zeros(len(sizes), width, dtype=torch.long, device=order.device)
    filled = torch.zeros(len(sizes), width, dtype=torch.bool, device=order.device)
    layout[index, place] = torch.arange(len(order), device=order.device)
    filled[index, place] = True
    return Groups(index, layout, filled)


def tolerance(values: Float[Tensor, "P N"], present: Bool[Tensor, "P N"]) -> Float[Tensor, "P 1"]:
    """Below this difference two values of a population count as equal [P, 1]."""
    size = torch.where(present, values.abs(), 0).amax(1, keepdim=True)
    return RELATIVE_TOLERANCE * size + ABSOLUTE_TOLERANCE


def degenerate(
    values: Float[Tensor, "P N"], present: Bool[Tensor, "P N"], ddof: int = 0
) -> Bool[Tensor, " P"]:
    """True where a population's spread is within the tolerance, or it has fewer than two values.

    Also where it has `ddof` values or fewer: no standard deviation with that ddof exists.
    """
    if values.shape[1] == 0:
        return torch.ones(values.shape[0], dtype=torch.bool, device=values.device)
    high = torch.where(present, values, -torch.inf).amax(1)
    low = torch.where(present, values, torch.inf).amin(1)
    flat = (high - low) <= tolerance(values, present).squeeze(1)
    return flat | (present.sum(1) < max(2, ddof + 1))


def masked_mean(values: Float[Tensor, "P N"], present: Bool[Tensor, "P N"]) -> Float[Tensor, " P"]:
    """Mean over present entries, 0 where there are none."""
    total = torch.where(present, values, 0).sum(1)
    return total / present.sum(1).clamp(min=1)


def masked_std(
    values: Float[Tensor, "P N"], present: Bool[Tensor, "P N"], ddof: int
) -> Float[Tensor, " P"]:
    """sqrt(sum (x - mean)^2 / (n - ddof)) over present entries, 0 where n <= ddof."""
    mean = masked_mean(values, present).unsqueeze(1)
    squares = torch.where(present, values - mean, 0).square().sum(1)
    count = present.sum(1) - ddof
    return torch.where(count > 0, (squares / count.clamp(min=1)).sqrt(), 0)


def z_scores(
    values: Float[Tensor, "B ..."],
    population: Bool[Tensor, "B ..."],
    groups: Groups,
    ddof: int = 0,
    eps: float = 0.0,
) -> Float[Tensor, "B ..."]:
    """(x - mean)/(std + eps) against the population of the row's group; 0 where that is flat."""
    packed, there = groups.gather(values), groups.gather_present(population)
    flat = degenerate(packed, there, ddof)
    std = torch.where(flat, 1, masked_std(packed, there, ddof) + eps)
    shape = (-1, *([1] * (values.dim() - 1)))
    mean, std, flat = (x[groups.index].view(shape) for x in (masked_mean(packed, there), std, flat))
    return torch.where(flat, 0, (values - mean) / std)


def ranks(values: Float[Tensor, "P G"]) -> Int[Tensor, "P G"]:
    """Each value's place in its row, 0 = largest, ties by row order."""
    order = torch.argsort(values, dim=1, descending=True, stable=True)
    return torch.argsort(order, dim=1, stable=True)


def rows_of(rewards: Tensor, group_ids: Tensor | Sequence[int] | None) -> tuple[Tensor, Tensor]:
    """Rewards [P, G] or [B] as rows [B] with int64 group ids [B]; the rank is never guessed.

    Raises ValueError where the two do not fit, or a reward is infinite.
    """
    refuse_infinite("rewards", rewards)
    if rewards.dim() == 2:
        if group_ids is not None:
            raise ValueError("rewards [P, G] say their groups by shape; leave group_ids out")
        ids = torch.arange(rewards.shape[0], device=rewards.device)
        return rewards.reshape(-1), ids.repeat_interleave(rewards.shape[1])
    if rewards.dim() != 1:
        raise ValueError(f"rewards must be [P, G] or [B], got the shape {tuple(rewards.shape)}")
    if group_ids is None:
        raise ValueError("rewards [B] need group_ids [B]; or give rewards as [P, G]")
    ids = torch.as_tensor(group_ids, device=rewards.device).long()
    if ids.shape != rewards.shape:
        raise ValueError(
            f"group_ids have the shape {tuple(ids.shape)}, rewards {tuple(rewards.shape)}"
        )
    return rewards, ids


def refuse_infinite(name: str, rewards: Tensor) -> None:
    """ValueError naming the first infinite reward; NaN passes, it means "not scored"."""
    infinite = rewards.isinf()
    if bool(infinite.any()):
        at = infinite.nonzero()[0].tolist()
        raise ValueError(
            f"{name}{at} = {float(rewards[tuple(at)])}: a reward is a finite number, for example "
            "1.0, or NaN where it was not scored"
        )


def uniform_rows(rewards: Float[Tensor, " B"], groups: Groups) -> Bool[Tensor, " B"]:
    """True at rows of groups whose scored rewards (not NaN) are all equal, or fewer than two."""
    scored = ~rewards.isnan()
    values = groups.gather(rewards.nan_to_num(0.0, 0.0, 0.0))
    return degenerate(values, groups.gather_present(scored))[groups.index]
