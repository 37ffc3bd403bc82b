"""Best of many: of a large group only the completions whose rewards spread most are learned from.

Max-variance down-sampling of arXiv 2504.13818 [M]. Sampling is cheap and learning is not, so N are
sampled and m learned from. The subset is a group of its own, with its own mean and standard
deviation, and nothing corrects for the choice, which over-represents the extremes by design.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from groupwise.types import Group


def largest_variance(values: Sequence[float], size: int) -> list[int]:
    """The places of the `size` values with the largest variance, in rising order.

    Such a subset is the i largest and the size - i smallest values for some i (the variance is
    convex in each of its values), so size + 1 subsets are tried. Of equal ones the one with fewer
    large values wins, and of equal values the first.

    >>> largest_variance([1.0, 0.0, 1.0, 1.0, 0.9], 2), largest_variance([0, 0, 0, 1], 3)
    ([0, 1], [0, 1, 3])
    """
    if size >= len(values):
        return list(range(len(values)))
    order = sorted(range(len(values)), key=lambda place: (values[place], place))
    high = sorted(range(len(values)), key=lambda place: (-values[place], place))
    best: tuple[float, list[int]] | None = None
    for largest in range(size + 1):
        chosen = high[:largest]
        chosen += [place for place in order if place not in chosen][: size - largest]
        mean = sum(values[place] for place in chosen) / size
        spread = sum((values[place] - mean) ** 2 for place in chosen)
        if best is None or spread > best[0] + 1e-12 * abs(best[0]):
            best = (spread, sorted(chosen))
    assert best is not None
    return best[1]


def down_sample(group: Group, size: int) -> tuple[Group, Group | None]:
    """The group of the `size` scored rollouts that are learned from, and that of all others.

    If fewer are scored, all of those; if the group is not larger, all of it and None.
    """
    if len(group.rollouts) <= size:
        return group, None
    scored = [(n, each.reward) for n, each in enumerate(group.rollouts) if each.reward is not None]
    chosen = largest_variance([reward for _, reward in scored], size)
    places = {scored[place][0] for place in chosen}
    kept = tuple(each for n, each in enumerate(group.rollouts) if n in places)
    rest = tuple(each for n, each in enumerate(group.rollouts) if n not in places)
    return replace(group, rollouts=kept), Group(group.prompt, rest)
