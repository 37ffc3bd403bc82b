"""How many completions a prompt gets, and which of them are learned from.

Group sizes maximise the expected number of groups whose rewards differ, within a budget of tokens.
In the loss every prompt counts the same whatever its group's size.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace

from groupwise.types import Group


def signal_chance(rate: float, size: int) -> float:
    """1 - p^G - (1 - p)^G: the chance that a group has right and wrong completions.

    >>> [round(signal_chance(0.1, size), 3) for size in (2, 8, 32)]
    [0.18, 0.57, 0.966]
    """
    return float(1.0 - rate**size - (1.0 - rate) ** size)


def group_sizes(
    rates: Sequence[float], costs: Sequence[float], *, budget: float, low: int, high: int
) -> list[int]:
    """The size of each prompt's group, from its pass rate and its expected tokens a completion.

    Every group starts at `low`; then each further completion goes to the prompt with the largest
    gain p^G (1 - p) + (1 - p)^G p in that chance for a token, until none fits the budget. The gain
    falls with G, so this is the best use of the budget up to the last completion. Even rates need
    few completions and lopsided ones many, so hard prompts get the larger groups; one that is never
    passed would gain nothing, which is why `rates` should be smoothed. `low` is kept even where the
    budget does not reach that far. Raises ValueError for a rate outside 0 and 1 or a cost of 0.

    >>> group_sizes([0.5, 0.1], [10, 10], budget=160, low=2, high=16)
    [5, 11]
    """
    if any(not 0 <= rate <= 1 for rate in rates) or any(cost <= 0 for cost in costs):
        raise ValueError("rates are within 0 and 1, and a completion costs more than 0 tokens")
    sizes = [low] * len(rates)
    spent = sum(low * cost for cost in costs)

    def gain(place: int) -> float:
        rate, size = rates[place], sizes[place]
        return float(rate**size * (1 - rate) + (1 - rate) ** size * rate) / costs[place]

    waiting = [(-gain(place), place) for place in range(len(rates)) if low < high]
    heapq.heapify(waiting)
    while waiting:
        _, place = heapq.heappop(waiting)
        if spent + costs[place] > budget:
            continue
        spent += costs[place]
        sizes[place] += 1
        if sizes[place] < high:
            heapq.heappush(waiting, (-gain(place), place))
    return sizes


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

    Max-variance down-sampling, arXiv 2504.13818 [M]: the subset has its own mean and standard
    deviation, and nothing corrects for the choice, which over-represents the extremes by design.
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
