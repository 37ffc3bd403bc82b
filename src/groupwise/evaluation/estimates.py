"""Estimates from counts of right answers: pass@k, majority votes, means and their 95 % intervals;
how different completions are.

Pure functions of numbers, so that every figure of an evaluation can be checked by hand.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence

from groupwise.intervals import Z, wilson_interval


def pass_at_k(*, num_samples: int, num_correct: int, k: int) -> float | None:
    """Probability that at least one of k completions, drawn without replacement, is correct.

    1 - C(n - c, k) / C(n, k), in whole numbers until the last division (Chen et al. 2021,
    arXiv 2107.03374, eq. 1). None where k > n: there is no unbiased estimate. Raises TypeError for
    a number that is not whole, ValueError for one out of range.

    >>> round(pass_at_k(num_samples=10, num_correct=3, k=5), 6)
    0.916667
    """
    for name, value in (("num_samples", num_samples), ("num_correct", num_correct), ("k", k)):
        if not hasattr(value, "__index__"):
            raise TypeError(f"{name} = {value!r}; give a count, a whole number (int)")
    if not 0 <= num_correct <= num_samples:
        raise ValueError(f"num_correct = {num_correct} is not within 0 and {num_samples}")
    if k < 1:
        raise ValueError(f"k = {k}; give 1 or more")
    if k > num_samples:
        return None
    every = math.comb(num_samples, k)
    return (every - math.comb(num_samples - num_correct, k)) / every


def no_signal_share(*, num_samples: int, num_correct: int, size: int) -> float | None:
    """Probability that `size` completions, drawn without replacement, are all right or all wrong.

    (C(c, G) + C(n - c, G)) / C(n, G), an unbiased estimate of p^G + (1 - p)^G: a group of that size
    has equal rewards, so no advantage. None where size > n: there is no unbiased estimate.

    >>> no_signal_share(num_samples=4, num_correct=2, size=2)
    0.3333333333333333
    """
    if not 0 <= num_correct <= num_samples:
        raise ValueError(f"num_correct = {num_correct} is not within 0 and {num_samples}")
    if size < 1:
        raise ValueError(f"size = {size}; give 1 or more")
    if size > num_samples:
        return None
    alike = math.comb(num_correct, size) + math.comb(num_samples - num_correct, size)
    return alike / math.comb(num_samples, size)


def maj_at_k(
    votes: Sequence[Hashable | None], correct: Sequence[bool], *, k: int | None = None
) -> float | None:
    """Probability that the most frequent answer of k completions is correct, exactly.

    `votes[i]` is completion i's answer (None = no answer, it does not vote), `correct[i]` whether
    it is right; k completions are drawn without replacement (all by default). A tie counts by the
    share of correct answers among the tied; no vote at all counts 0. None where k > n.

    >>> maj_at_k(["7", "7", "8"], [True, True, False]), maj_at_k(["7", "8"], [True, False])
    (1.0, 0.5)
    """
    if len(votes) != len(correct):
        raise ValueError(
            f"{len(votes)} votes and {len(correct)} verdicts; give one verdict per vote"
        )
    number = len(votes) if k is None else k
    if number < 1:
        raise ValueError(f"k = {number}; give 1 or more")
    if number > len(votes):
        return None
    silent = sum(vote is None for vote in votes)
    classes = Counter((vote, right) for vote, right in zip(votes, correct) if vote is not None)
    sizes = [(count, right) for (_, right), count in classes.items()]
    credit = 0.0
    for top in range(1, number + 1):
        credit += sum(
            ways * math.comb(silent, number - drawn) * right / (right + wrong)
            for (drawn, right, wrong), ways in _draws(sizes, top, number).items()
            if right + wrong
        )
    return credit / math.comb(len(votes), number)


def _draws(
    sizes: Sequence[tuple[int, bool]], top: int, limit: int
) -> dict[tuple[int, int, int], int]:
    """Ways to draw from answer classes with no class above `top`.

    Keyed by (completions drawn, correct classes at `top`, wrong classes at `top`).
    """
    states = {(0, 0, 0): 1}
    for size, is_right in sizes:
        following: dict[tuple[int, int, int], int] = {}
        for (drawn, right, wrong), ways in states.items():
            for taken in range(min(size, top, limit - drawn) + 1):
                at_top = taken == top
                key = (
                    drawn + taken,
                    right + (at_top and is_right),
                    wrong + (at_top and not is_right),
                )
                following[key] = following.get(key, 0) + ways * math.comb(size, taken)
        states = following
    return states


def mean_interval(means: Sequence[float], num_samples: int) -> tuple[float, float]:
    """95 % interval of the mean of per-prompt shares; prompts are the independent trials.

    `means` [P] are the prompts' shares, `num_samples` the completions behind all of them. Wilson's
    interval with the effective sample size p (1 - p) / var(mean), var(mean) from the spread between
    prompts (ddof 1), at most `num_samples`, times (z / t)^2 for the few degrees of freedom (Korn
    and Graubard 1998). Without spread: P trials at a mean of 0 or 1, else all completions. With one
    completion a prompt it is Wilson's interval itself.

    Prompts count as drawn from a larger population: where they are all there is, it is too wide.
    """
    count = len(means)
    if not count:
        raise ValueError("an interval needs at least one prompt")
    mean = min(1.0, max(0.0, math.fsum(means) / count))
    if num_samples <= count or count == 1:
        return wilson_interval(mean, count)
    variance = math.fsum((m - mean) ** 2 for m in means) / (count - 1) / count
    if variance > 0:
        trials = min(mean * (1 - mean) / variance, float(num_samples))
    else:
        trials = float(count if mean in (0.0, 1.0) else num_samples)
    return wilson_interval(mean, trials * (Z / _student_t(count - 1)) ** 2)


def _student_t(degrees: int) -> float:
    """The 97.5 % quantile of Student's t: exact for 1 and 2, else Fisher's expansion (< 0.2 %)."""
    if degrees == 1:
        return 12.706204736174698
    if degrees == 2:
        return 4.302652729696142
    return (
        Z
        + (Z**3 + Z) / (4 * degrees)
        + (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * degrees**2)
        + (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / (384 * degrees**3)
        + (79 * Z**9 + 776 * Z**7 + 1482 * Z**5 - 1920 * Z**3 - 945 * Z) / (92160 * degrees**4)
    )


def mean_or_none(values: Sequence[float]) -> float | None:
    """The mean, None of nothing."""
    return math.fsum(values) / len(values) if values else None


def distinct_n(rows: Sequence[Sequence[Hashable]], n: int) -> float | None:
    """Different runs of n words or ids divided by all of them (Li et al. 2016, arXiv 1510.03055);
    None without a run.

    >>> distinct_n([[1, 2], [1, 3]], 1)
    0.75
    """
    runs = [tuple(row[i : i + n]) for row in rows for i in range(len(row) - n + 1)]
    return len(set(runs)) / len(runs) if runs else None


def answer_entropy(
    answers: Sequence[str | None], shares: Sequence[float] | None = None
) -> float | None:
    """Entropy in nats of the answers; those of None are left out. None where no answer is left.

    >>> round(answer_entropy(["7", "7", "8", None]), 6)
    0.636514
    """
    weights = [1.0] * len(answers) if shares is None else shares
    masses: Counter[str] = Counter()
    for answer, weight in zip(answers, weights, strict=True):
        if answer is not None:
            masses[answer] += weight  # type: ignore[assignment]
    total = math.fsum(masses.values())
    if total <= 0:
        return None
    return -math.fsum(m / total * math.log(m / total) for m in masses.values() if m > 0)
