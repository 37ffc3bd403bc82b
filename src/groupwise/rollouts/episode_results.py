"""Validates what a user-defined episode returns beside its messages: verdict, rewards, counts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from groupwise.texts import whole_text
from groupwise.types import Score
from groupwise.verifiers import as_score

_COUNT_NAME = re.compile(r"(?!tools/(?:\Z|/))[^/\n][^\n]*")
_MOST = 1e300


def _plain(value: Any) -> Any:
    """The number in a scalar of numpy or torch."""
    return value.item() if getattr(value, "shape", None) == () else value


def _is_number(value: object) -> bool:
    number: Any = value if isinstance(value, Real) else math.nan
    return bool(abs(number) <= _MOST)


def checked_result(result: Any, name: str) -> Score | None:
    """The episode's verdict, None for none; a number is read as a verifier's. Raises ValueError."""
    if result is None or isinstance(result, Score):
        return result
    result = _plain(result)
    if not _is_number(result):
        raise ValueError(f"result = {result!r:.80}; give a Score, a finite number, or None")
    return as_score(name, 0, float(result))


def checked_rewards(rewards: Any) -> list[float]:
    """The rewards of its turns as finite numbers. Raises ValueError."""
    if not isinstance(rewards, list | tuple):
        raise ValueError(f"rewards = {rewards!r:.80}; give a list, one number for every completion")
    rewards = [_plain(value) for value in rewards]
    for place, value in enumerate(rewards):
        if not _is_number(value):
            raise ValueError(f"rewards[{place}] = {value!r:.80}; give a finite number")
    return [float(value) for value in rewards]


def checked_counts(counts: Any) -> dict[str, float]:
    """Its counts as finite numbers by metric name. Raises ValueError."""
    if not isinstance(counts, Mapping):
        raise ValueError(f"counts = {counts!r:.80}; give finite numbers by name")
    taken = dict(counts)  # a method that was left behind may still be counting
    counts = {name: _plain(value) for name, value in taken.items()}
    for name, value in counts.items():
        named = isinstance(name, str) and _COUNT_NAME.fullmatch(name)
        if not named or not _is_number(value):
            raise ValueError(f"counts[{name!r}] = {value!r:.80}; give a finite number under a name")
        if name.startswith("tools/") and not isinstance(value, Integral):
            raise ValueError(f"counts[{name!r}] = {value!r:.80}; give a whole number of tool calls")
    return {
        whole_text(name): int(value) if isinstance(value, Integral) else float(value)
        for name, value in counts.items()
    }
