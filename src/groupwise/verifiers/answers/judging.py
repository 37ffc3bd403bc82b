"""One answer against one gold answer: read, compared, and why it is no answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from groupwise.verifiers.answers.comparing import Rule, same_words
from groupwise.verifiers.answers.evaluator import TooLargeError
from groupwise.verifiers.answers.reading import Value, read, words_alone
from groupwise.verifiers.answers.tokens import UnreadableError, normal, unwrapped, without_ending
from groupwise.verifiers.answers.units import singular

Judgement = Literal["equal", "different", "no_answer", "undecided", "bad_answer", "limit",
                    "timeout", "out_of_memory", "crash"]  # fmt: skip
_MODULUS = re.compile(r"\(?\\?[pb]?mod\{?(\w+)\}?\)?")
_ONE = re.compile(r"(?<=[_^])\{(\w)\}")


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgement and its reason."""

    kind: Judgement
    reason: str = ""


@lru_cache(maxsize=4096)
def read_gold(gold: str) -> Value | str:
    """The gold answer as it is read; the text it is compared with where the grammar has no rule.

    `UnreadableError` where its brackets are not balanced, so that it cannot be an answer.
    """
    try:
        return read(gold)
    except UnreadableError:
        text = _written(gold)
        if not text or not _is_balanced(text):
            raise
        return text


def judge(
    gold: str,
    given: str,
    *,
    words: Collection[str] = (),
    tolerance: float = 0.0,
    relative_tolerance: float = 0.0,
    exact: bool = True,
) -> Judged:
    """What `given` is against `gold`.

    `exact`: by rational arithmetic alone; what takes more is `undecided`. Without, what is beyond
    the bounds is `limit`.
    """
    try:
        wanted = read_gold(gold)
    except UnreadableError as error:
        return Judged("bad_answer", f"{gold[:60]!r} cannot be read: {error}")
    words_alike = same_words(_bare_words(gold), _bare_words(given))
    if isinstance(wanted, str):
        return Judged("equal" if words_alike or _written(given) == wanted else "different")
    if wanted.kind == "text" and words_alike:
        return Judged("equal")
    try:
        found = read(given, unit_letters=_has_unit(wanted))
    except UnreadableError as error:
        if _bare_words(gold) == _bare_words(given):
            return Judged("equal")
        return Judged("no_answer", f"{given[:60]!r} is not one answer: {error}")
    wanted, found = _as_words(wanted, gold, found, given)
    rule = Rule(exact, tolerance, relative_tolerance, words)
    try:
        if rule.same(wanted, found):
            return Judged("equal")
        mismatch = rule.mismatch(wanted, found)
    except TooLargeError:
        return Judged("limit")
    reason = f"{given[:60]!r} is {mismatch}" if mismatch else ""
    kind: Judgement = "no_answer" if mismatch else "different"
    return Judged("undecided" if rule.undecided else kind, reason)


def make() -> Callable[[tuple[Any, ...]], str]:
    """The function of a worker: the judgement of gold, given, the prompt's words."""

    def work(job: tuple[Any, ...]) -> str:
        gold, given, words = job
        return judge(gold, given, words=words, exact=False).kind

    work(("x+1", r"\sqrt{x}", frozenset()))
    return work


def prompt_words(text: str) -> frozenset[str]:
    """The words of a prompt: what it counts may stand behind a number."""
    return frozenset(singular(word) for word in re.findall(r"[^\W\d_]+", text[:20_000]))


def _written(text: str) -> str:
    """How an answer is compared that the grammar has no rule for: as written, without blanks."""
    text = "".join(without_ending(unwrapped(normal(text))).split()).strip("$")
    text = _MODULUS.sub(r"mod\1", text.replace(r"\rightarrow", r"\to"))
    return _ONE.sub(r"\1", text)


def _as_words(wanted: Value, gold: str, found: Value, given: str) -> tuple[Value, Value]:
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
        return wanted, read(_bare_words(given))
    except UnreadableError:
        return wanted, found


def _bare_words(text: str) -> str:
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
