"""The 95 % interval of a share, which evaluations, audits and reports show beside it."""

from __future__ import annotations

import math

Z = 1.959963984540054
"""The 97.5 % quantile of the normal distribution: two-sided 95 %."""


def wilson_interval(mean: float, trials: float) -> tuple[float, float]:
    """Wilson's 95 % score interval of a share seen in `trials` independent trials.

    `trials` may be a fraction (an effective sample size). Never empty, within [0, 1] (Wilson 1927).

    >>> [round(bound, 4) for bound in wilson_interval(0.5, 10)]
    [0.2366, 0.7634]
    """
    if trials <= 0:
        raise ValueError(f"trials = {trials}; an interval needs at least one")
    if not 0 <= mean <= 1:
        raise ValueError(f"mean = {mean}; a share is within 0 and 1")
    scale = 1 + Z * Z / trials
    centre = (mean + Z * Z / (2 * trials)) / scale
    half = Z / scale * math.sqrt(mean * (1 - mean) / trials + (Z / (2 * trials)) ** 2)
    return max(0.0, centre - half), min(1.0, centre + half)
