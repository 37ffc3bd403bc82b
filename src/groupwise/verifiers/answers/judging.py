"""One answer against one gold answer, as far as exact arithmetic decides."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from groupwise.verifiers.answers.comparing import Exact, Percent, Rule, exact, same_words
from groupwise.verifiers.answers.numbers import parse_number, same_number
from groupwise.verifiers.answers.reading import Value, read, words_alone
from groupwise.verifiers.answers.tokens import (
    UnreadableError,
    normal,
    unwrapped,
    without_ending,
)
from groupwise.verifiers.answers.units import singular

Judgement = Literal["equal", "different", "no_answer", "undecided", "bad_answer"]
_NAMED = re.compile(r"^\s*\\?[A-Za-z](?:_\{?\w\}?)?\s*=\s*(?=[^=])")


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgement, its reason, and whether single letters were read as units."""

    kind: Judgement
    reason: str = ""
    unit_letters: bool = False


@lru_cache(maxsize=4096)
def read_gold(gold: str) -> Value | str:
    """The gold answer as it is read; the text it is compared with where the grammar has no rule.

    `UnreadableError` where its brackets are not balanced, so that it cannot be an answer.
    """
    try:
        return read(gold)
    except UnreadableError:
        text = written(gold)
        if not text or not _is_balanced(text):
            raise
        return text


def judge(
    gold: str,
    given: str,
    *,
    percent: Percent = "ignore",
    words: Collection[str] = (),
    tolerance: float = 0.0,
    relative_tolerance: float = 0.0,
) -> Judged:
    """What `given` is against `gold`; `undecided` where it takes more than rational arithmetic."""
    try:
        wanted = read_gold(gold)
    except UnreadableError as error:
        return Judged("bad_answer", f"{gold[:60]!r} cannot be read: {error}")
    if isinstance(wanted, str):
        same = written(given) == wanted
        return Judged("equal" if same else "different")
    if wanted.kind == "text" and same_words(bare_words(gold), bare_words(given)):
        return Judged("equal")
    letters = _has_unit(wanted)
    if tolerance or relative_tolerance:
        return _within(gold, given, percent, words, tolerance, relative_tolerance)
    try:
        found = read(given, unit_letters=letters)
    except UnreadableError as error:
        if bare_words(gold) == bare_words(given):
            return Judged("equal")
        return Judged("no_answer", f"{given[:60]!r} is not one answer: {error}")
    wanted, found = as_words(wanted, gold, found, given)
    formulas = Exact()
    rule = Rule(formulas, percent, words)
    if rule.same(wanted, found):
        return Judged("equal")
    mismatch = rule.mismatch(wanted, found)
    reason = f"{given[:60]!r} is {mismatch}" if mismatch else ""
    if formulas.undecided:
        return Judged("undecided", reason, letters)
    return Judged("no_answer" if mismatch else "different", reason)


def same_value(gold: str, mutant: str) -> bool:
    r"""Whether two answers are exactly one rational value: `\binom52` and `\binom53`.

    A mutant of that kind is right, and accepting it no fault.
    """
    try:
        first, second = read(gold), read(mutant)
    except UnreadableError:
        return False
    if first.kind != "expression" or second.kind != "expression" or first.unit != second.unit:
        return False
    assert first.node is not None
    assert second.node is not None
    value = exact(first.node)
    return value is not None and value == exact(second.node)


def prompt_words(text: str) -> frozenset[str]:
    """The words of a prompt: what it counts may stand behind a number."""
    return frozenset(singular(word) for word in re.findall(r"[^\W\d_]+", text[:20_000]))


_ONE = re.compile(r"(?<=[_^])\{(\w)\}")


def written(text: str) -> str:
    """How an answer is compared that the grammar has no rule for: as written, without blanks."""
    text = normal(text).replace(r"\rightarrow", r"\to")
    return _ONE.sub(r"\1", "".join(without_ending(text).split()).strip("$"))


def _within(
    gold: str, given: str, percent: Percent, words: Collection[str], absolute: float, share: float
) -> Judged:
    first = parse_number(_NAMED.sub("", gold))
    second = parse_number(_NAMED.sub("", given), words)
    if first is None:
        return judge(gold, given, percent=percent, words=words)
    if second is None:
        return Judged("no_answer", f"{given[:60]!r} is not a number")
    right = same_number(
        first, second, tolerance=absolute, relative_tolerance=share, percent=percent
    )
    return Judged("equal" if right else "different")


def as_words(wanted: Value, gold: str, found: Value, given: str) -> tuple[Value, Value]:
    """Both as words where one of them is words and the other could be: `no` is not n times o."""
    if (wanted.kind == "text") == (found.kind == "text"):
        return wanted, found
    if wanted.kind == "text":
        words = words_alone(given)
        return wanted, found if words is None else Value("text", name=words)
    words = words_alone(gold)
    if words is not None:
        return Value("text", name=words), found
    try:
        return wanted, read(bare_words(given))
    except UnreadableError:
        return wanted, found


def bare_words(text: str) -> str:
    r"""The answer without fonts and dollars: `Alice, Bob` of `\text{Alice, Bob}`."""
    words = unwrapped(normal(text)).replace("$", " ").replace(",", ", ")
    return " ".join(without_ending(words).split())


def _has_unit(value: Value) -> bool:
    return bool(value.unit) or any(map(_has_unit, value.items))


def _is_balanced(text: str) -> bool:
    stack: list[str] = []
    for bracket in re.findall(r"\\?[{}()\[\]]", text):
        bracket = bracket[-1]
        if bracket in "{([":
            stack.append(bracket)
        elif not stack or (bracket == "}") != (stack.pop() == "{"):
            return False
    return not stack
