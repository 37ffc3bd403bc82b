"""Which of several completions is chosen, and how often that is right: pure functions of numbers.

Every choice returns all that are tied for first; a tie counts by the share of right ones.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

Combine = Literal["min", "product", "last", "mean"]


def best_of_n(scores: Sequence[float | None]) -> list[int]:
    """The places of the highest score; those without a score (None) are never chosen.

    >>> best_of_n([0.3, 0.85, None, 0.85])
    [1, 3]
    """
    top = max((score for score in scores if score is not None), default=None)
    return [place for place, score in enumerate(scores) if score is not None and score == top]


def vote(answers: Sequence[str | None], weights: Sequence[float | None] | None = None) -> list[str]:
    """The answers with the most completions, or with the largest sum of weights.

    An answer of None does not vote, nor does one with a weight of None.

    >>> vote(["7", "9", "7", "5"]), vote(["7", "9"], [0.3, 0.85])
    (['7'], ['9'])
    """
    shares = [1.0] * len(answers) if weights is None else weights
    sums: dict[str, list[float]] = {}
    for answer, share in zip(answers, shares, strict=True):
        if answer is not None and share is not None:
            sums.setdefault(answer, []).append(share)
    totals = {answer: math.fsum(own) for answer, own in sums.items()}
    top = max(totals.values(), default=0.0)
    return [answer for answer, total in totals.items() if total == top]


def above_mean(scores: Sequence[float | None]) -> list[int]:
    """The places of scores above their mean; all that have a score where none is above it.

    >>> above_mean([0.0, 1.0, 0.4]), above_mean([1.0, 1.0])
    ([1], [0, 1])
    """
    scored = {place: score for place, score in enumerate(scores) if score is not None}
    if not scored:
        return []
    mean = math.fsum(scored.values()) / len(scored)
    return [place for place, score in scored.items() if score > mean] or list(scored)


def combine_steps(values: Sequence[float], how: Combine) -> float:
    """One score from the scores of a completion's steps; 0 without a step.

    Minimum: Math-Shepherd (arXiv 2312.08935); product: Lightman et al. (arXiv 2305.20050).

    >>> combine_steps([0.9, 0.8, 0.4], "min"), combine_steps([0.5, 0.5], "product")
    (0.4, 0.25)
    """
    if not values:
        return 0.0
    return {
        "min": min(values),
        "product": math.prod(values),
        "last": values[-1],
        "mean": math.fsum(values) / len(values),
    }[how]


def best_of_n_kl(n: int) -> float:
    """log n - (n - 1) / n nats: the KL divergence of best-of-n from the policy, an upper bound that
    is exact where all scores differ.

    >>> round(best_of_n_kl(4), 6)
    0.636294
    """
    return math.log(n) - (n - 1) / n


def best_of_n_accuracy(
    scores: Sequence[float | None], correct: Sequence[bool], k: int
) -> float | None:
    """How often the best of k completions, drawn without replacement, is right, exactly.

    The highest score of k is s with probability [C(below + equal, k) - C(below, k)] / C(n, k), and
    any of those equal to s is then as likely. None where k is above their number.

    >>> best_of_n_accuracy([0.1, 0.9], [True, False], 1)
    0.5
    """
    if k > len(scores):
        return None
    levels = Counter(-math.inf if score is None else score for score in scores)
    right = Counter(s for s, is_right in zip(scores, correct, strict=True) if is_right)
    below, found = 0, 0.0
    for level in sorted(levels):
        equal = levels[level]
        ways = math.comb(below + equal, k) - math.comb(below, k)
        found += ways * right[level] / equal
        below += equal
    return found / math.comb(len(scores), k)
