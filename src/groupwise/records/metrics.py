"""A step's line of metrics, held to the metric table.

`complete_step` adds every common key that is missing (as None) and refuses a name that the table
does not define, so no algorithm can drop, rename or invent a metric.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from groupwise.records.metric_table import METRICS, Metric
from groupwise.suggestions import nearest

Value = float | int | None
_LARGEST = 1.7976931348623157e308

COMMON_KEYS: tuple[str, ...] = tuple(m.name for m in METRICS if not m.is_pattern)
"""The keys that every line of `metrics.jsonl` has, whatever the algorithm."""

_BY_NAME: dict[str, Metric] = {m.name: m for m in METRICS if not m.is_pattern}
_PATTERNS: tuple[Metric, ...] = tuple(m for m in METRICS if m.is_pattern)


def find_metric(name: str) -> Metric:
    """The table's entry for a name, patterns included.

    Raises ValueError with the nearest names where there is none.

    >>> find_metric("verifier/number").name
    'verifier/<name>'
    """
    found = _known(name)
    if found is None:
        names = [m.name for m in METRICS]
        near = nearest(name, names)
        hint = f"did you mean {near}? " if near else ""
        raise ValueError(f"no metric is called {name!r}: {hint}the metrics are {', '.join(names)}")
    return found


def _known(name: str) -> Metric | None:
    return _BY_NAME.get(name) or next((m for m in _PATTERNS if m.matches(name)), None)


def is_measured(name: str) -> bool:
    """Whether a clock or the machine decides the metric; False for a name of another version."""
    found = _known(name)
    return found is not None and found.measured


def is_whole(name: str) -> bool:
    """Whether the metric is a count; False for a name of another version."""
    found = _known(name)
    return found is not None and found.whole


def clean_value(name: str, value: object) -> Value:
    """A number as JSON has it: NaN becomes None, an infinity the largest float of its sign.

    Raises TypeError for anything that is not a plain number (a tensor keeps a graph alive).
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        item = getattr(value, "item", None)
        if type(value).__module__ != "numpy" or item is None:
            raise TypeError(f"metric {name!r} must be a number or None, got {type(value).__name__}")
        return clean_value(name, item())
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if math.isinf(value):
            return math.copysign(_LARGEST, value)
    return value


def complete_step(step: int, values: Mapping[str, Value]) -> dict[str, Value]:
    """One step's line: `step`, every common key (None where it does not apply), then the patterns'.

    Raises ValueError for a name that the table does not define, or for a `step` that contradicts.

    >>> line = complete_step(3, {"reward": 0.5, "verifier/number": 0.5})
    >>> line["step"], line["reward"], line["kl"], line["verifier/number"]
    (3, 0.5, None, 0.5)
    """
    if values.get("step", step) != step:
        raise ValueError(f"the values are of step {values['step']}, not of step {step}")
    for name in values:
        find_metric(name)
    line: dict[str, Value] = dict.fromkeys(COMMON_KEYS)
    line["step"] = step
    for name in sorted(values, key=lambda n: (n not in _BY_NAME, n)):
        if name != "step":
            line[name] = clean_value(name, values[name])
    return line
