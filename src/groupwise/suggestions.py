"""The nearest of the legal names to a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, legal: Iterable[str]) -> str | None:
    """The most similar name, None where nothing is similar. Swapped neighbours count as one slip.

    >>> nearest("gpro", ["gtpo", "gopo", "grpo"]), nearest("x", ["clip"])
    ('grpo', None)
    """
    near = difflib.get_close_matches(name, list(legal), n=5)
    return min(near, key=lambda other: slips(name, other), default=None)


def unknown(what: str, name: str, legal: Iterable[str]) -> str:
    """The message for a name that is not one of the legal ones.

    >>> unknown("weight = 'per_tokne'", "per_tokne", ["per_token", "constant"])
    "weight = 'per_tokne' is not known; did you mean 'per_token'?"
    """
    names = sorted(legal)
    near = nearest(name, names)
    hint = f"did you mean {near!r}?" if near else f"one of {', '.join(names)}"
    return f"{what} is not known; {hint}"


def slips(a: str, b: str) -> int:
    """Insertions, deletions, changes and swaps of neighbours from one word to another."""
    rows = [list(range(len(b) + 1))]
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            cost = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and y == a[i - 2]:
                cost = min(cost, rows[-2][j - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]
