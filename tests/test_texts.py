"""Text of others made fit to encode: halves of surrogate pairs, and length."""

from __future__ import annotations

import doctest

import groupwise.texts
from groupwise.texts import shortened, whole_text, whole_texts

HALF, BAD = "\ud83d", "\ufffd"


def test_halves_are_replaced_and_nothing_else_is_changed() -> None:
    assert whole_text(f"a{HALF}b") == f"a{BAD}b"
    assert whole_text(HALF) == BAD
    assert whole_text("\udc00\ud800") == BAD * 2
    assert whole_text("\ud83d\ude00") == "😀"  # two halves that fit
    for text in ("", "a\x00b", "\ufeffx", "日本 😀", "\u2028"):
        assert whole_text(text) is text


def test_whole_values() -> None:
    value = {"content": [HALF, {"name": HALF}], HALF: (1, HALF), "n": None}
    assert whole_texts(value) == {"content": [BAD, {"name": BAD}], BAD: (1, BAD), "n": None}


def test_shortened_says_how_much() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd", 1) == "a... (3 characters more)"


def test_examples() -> None:
    assert doctest.testmod(groupwise.texts).failed == 0
