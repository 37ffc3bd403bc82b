"""What to write instead: the nearest name to one that does not exist, and what a field expects."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic.fields import FieldInfo

_EXPECTED = {
    "int_parsing": "expected a whole number",
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_parsing": "expected a number",
    "float_type": "expected a number",
    "finite_number": "expected a finite number",
    "bool_parsing": "expected true or false",
    "bool_type": "expected true or false",
    "string_type": "expected a text",
    "string_too_short": "expected at least {min_length} character(s)",
    "dict_type": "expected a table",
    "model_type": "expected a table",
    "too_short": "expected at least {min_length} item(s)",
    "tuple_type": "expected a list",
    "list_type": "expected a list",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "expected {expected}",
}


def expectation(item: Mapping[str, Any], info: FieldInfo | None = None) -> str:
    """What one of pydantic's errors asks for, with the field's default as a legal value.

    >>> expectation({"type": "greater_than", "ctx": {"gt": 0.0}, "msg": "..."})
    'must be above 0'
    """
    context = {
        key: f"{value:g}" if isinstance(value, float) else value
        for key, value in item.get("ctx", {}).items()
    }
    if item["type"] in _EXPECTED:
        words = _EXPECTED[item["type"]].format(**context)
    elif item["type"] == "value_error":
        words = str(item["ctx"]["error"])
    else:
        words = f"{item['msg'][0].lower()}{item['msg'][1:]}"
    default = None if info is None or info.is_required() or info.default_factory else info.default
    usual = "" if default is None or isinstance(default, tuple) else f"; the default is {default!r}"
    return words + usual


def nearest(name: str, legal: Iterable[str]) -> str | None:
    """The most similar name, None where nothing is similar. Swapped neighbours count as one slip.

    >>> nearest("gpro", ["gtpo", "gopo", "grpo"]), nearest("x", ["clip"])
    ('grpo', None)
    """
    near = difflib.get_close_matches(name, list(legal), n=5)
    return min(near, key=lambda other: slips(name, other), default=None)


def nearest_field(name: str, fields: Sequence[str]) -> str | None:
    """The field whose last part is the name's, else the most similar one."""
    same = [each for each in fields if each.rpartition(".")[2] == name.rpartition(".")[2]]
    return same[0] if same else nearest(name, fields)


def unknown(what: str, name: str, legal: Iterable[str]) -> str:
    """The message for a name that is not one of the legal ones.

    >>> unknown("weight = 'per_tokne'", "per_tokne", ["per_token", "constant"])
    "weight = 'per_tokne' is not known; did you mean 'per_token'?"
    """
    names = sorted(legal)
    near = nearest(name, names)
    hint = f"did you mean {near!r}?" if near else f"one of {', '.join(names) or 'none'}"
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


def list_text(value: Any) -> str:
    """The list that a value meant for one was probably to be, as TOML."""
    if isinstance(value, str) and re.fullmatch(r"\(.*\)", value.strip()):
        return f"[{value.strip()[1:-1]}]"
    return json.dumps([value], default=str)


def converted(given: Any, made: Any, field: str = "") -> Iterator[str]:
    """What is wrong with values that pydantic read as a number, or as true or false, though they
    are of another type."""
    if isinstance(given, Mapping):
        table = made[0] if isinstance(made, tuple) and len(made) == 1 else made
        for key, item in given.items():
            inner = table.get(key) if isinstance(table, Mapping) else getattr(table, key, None)
            yield from converted(item, inner, f"{field}.{key}" if field else key)
    elif isinstance(given, list | tuple) and isinstance(made, list | tuple):
        for place, (item, inner) in enumerate(zip(given, made, strict=False)):
            yield from converted(item, inner, f"{field}.{place}")
    elif isinstance(made, int | float) and (
        isinstance(given, str)
        or (isinstance(given, int | float) and isinstance(given, bool) != isinstance(made, bool))
    ):
        wanted = "true or false" if isinstance(made, bool) else "a number"
        yield f"{field} = {given!r}: expected {wanted}; write {json.dumps(made)}"


def differences(a: Any, b: Any, field: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The innermost fields in which two nestings of tables and lists differ, with both values.

    >>> list(differences({"a": [{"x": 1}, {"x": 2}]}, {"a": [{"x": 1}, {"x": 3}]}))
    [('a.1.x', 2, 3)]
    """
    if isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        a, b = dict(enumerate(a)), dict(enumerate(b))
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in {**a, **b}:
            yield from differences(a.get(key), b.get(key), f"{field}.{key}" if field else str(key))
    elif a != b:
        yield field or "the recipe", a, b
