"""How long completions are, as equally likely values: a record's, or log-normal ones."""

from __future__ import annotations

import math
from statistics import NormalDist, fmean

import numpy as np

from groupwise.errors import RecipeError
from groupwise.records import Run

_STEPS = 20
"""A record's newest steps, which are read: lengths move during training."""
_POINTS = 2000


def lognormal(mean: float, spread: float, limit: int) -> tuple[int, ...]:
    """Lengths cut at `limit`, with this mean after the cut; `spread` is the standard deviation of
    their logarithm. They are rounded so that their sum keeps its fractions.

    >>> round(fmean(lognormal(300, 0.8, 1024))), max(lognormal(300, 0.8, 1024))
    (300, 1024)
    >>> lognormal(2.5, 0, 4)[:4]
    (3, 2, 3, 2)
    """
    if not 1 <= mean <= limit:
        raise RecipeError(
            f"--mean-tokens {mean:g}: give a mean from 1 to sampling.max_tokens ({limit})"
        )
    if not 0 <= spread <= 3:
        raise RecipeError(f"--spread {spread:g}: give a standard deviation of logs from 0 to 3")
    shape = [math.exp(spread * NormalDist().inv_cdf((i + 0.5) / _POINTS)) for i in range(_POINTS)]
    low, high = math.exp(-4 * spread), limit * math.exp(4 * spread)  # all are 1, and the limit
    for _ in range(60):  # the mean rises with the median
        median = math.sqrt(low * high)
        found = np.clip(median * np.array(shape), 1, limit)
        low, high = (median, high) if fmean(found) < mean else (low, median)
    whole = np.diff(np.floor(np.cumsum(found) + 0.5), prepend=0)
    return tuple(np.clip(whole, 1, limit).astype(int).tolist())


def recorded_lengths(run: Run) -> tuple[int, ...]:
    """Those of a record's newest steps. Raises RecipeError where it has no rollouts."""
    steps = sorted(run.rollout_files())[-_STEPS:]
    rows = run.rollouts(steps, ["kind", "completion_ids"]).to_pylist() if steps else []
    kinds = ("training", "waiting", "discarded")  # the others were sampled in an earlier step
    found = [max(1, len(row["completion_ids"])) for row in rows if row["kind"] in kinds]
    if not found:
        raise RecipeError(f"{run.folder} records no rollouts; give --mean-tokens and --spread")
    return tuple(found)
