"""A group size for each prompt: where the next completion is likeliest to give a group signal.

The sizes maximise the expected number of groups whose rewards differ, within a budget of tokens.
In the loss every prompt counts the same whatever its group's size.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence


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
