"""Reads unchecked text, makes text encodable, limits its length, and counts two habits in it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

GRAM = 4
"""Token ids (or words) of a repeated stretch."""

_SELF_CHECKS = re.compile(
    r"\b(?:wait|hmm|let me (?:check|verify|double[- ]check|recheck)|double[- ]check|checking)\b"
    r"|\bcheck:",
    re.IGNORECASE,
)


def from_json(text: str | bytes, **options: Any) -> Any:
    """`json.loads`, whose every fault is a ValueError: also a value nested too deeply.

    >>> from_json("[" * 100_000)
    Traceback (most recent call last):
    ValueError: lists or objects nested too deeply
    """
    try:
        return json.loads(text, **options)
    except RecursionError as error:
        raise ValueError("lists or objects nested too deeply") from error


def from_toml(text: str) -> dict[str, Any]:
    """`tomllib.loads`, whose every fault is a ValueError: also a value nested too deeply."""
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("arrays or tables nested too deeply") from error


def whole_text(text: str) -> str:
    """The text with U+FFFD for every half of a surrogate pair; two halves that fit are joined.

    Neither UTF-8 nor a tokenizer takes a half, and a program that the policy wrote can print one.

    >>> whole_text("a" + chr(0xD83D)) == "a" + chr(0xFFFD)
    True
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def whole_texts(value: Any) -> Any:
    """`whole_text` of every text in mappings, lists and tuples, keys included."""
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, Mapping):
        return {whole_texts(key): whole_texts(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(whole_texts, value)) if type(value) in (list, tuple) else value
    return value


def visible(text: str) -> str:
    """The text with every character that a terminal would obey, hide or reorder by, written out.

    >>> visible("a\x1b[2J b\u202ec")
    'a\\\\x1b[2J b\\\\u202ec'
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shortened(text: str, characters: int) -> str:
    """At most so many characters, and how many more there were.

    >>> shortened("abcdef", 4)
    'abcd... (2 characters more)'
    """
    if len(text) <= characters:
        return text
    return f"{text[:characters]}... ({len(text) - characters} characters more)"


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "step"), counted(2, "step"), counted(3, "pass", "passes")
    ('1 step', '2 steps', '3 passes')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def repeated_share(units: Sequence[object]) -> float:
    """The share of a completion's stretches of four units that stood in it before; 0 where it has
    fewer than four stretches.

    >>> repeated_share([1, 2, 3, 4] * 2 + [5, 6, 7])
    0.125
    """
    grams = list(zip(*(units[at:] for at in range(GRAM))))
    return 1.0 - len(set(grams)) / len(grams) if len(grams) >= GRAM else 0.0


def checks_itself(text: str) -> bool:
    """Whether the text holds a phrase of self-checking, as long reasoning has them.

    >>> checks_itself("7. Wait, 3+4 is 7."), checks_itself("a waiter")
    (True, False)
    """
    return _SELF_CHECKS.search(text) is not None


def listed(counts: Mapping[str, int]) -> str:
    """
    >>> listed({"too long": 7, "empty": 1})
    'too long: 7, empty: 1'
    """
    return ", ".join(f"{what}: {number}" for what, number in counts.items())
