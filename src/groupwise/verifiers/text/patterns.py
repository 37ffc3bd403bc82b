"""Words and patterns in a completion: `regex` and `contains_all`.

Both read what follows the reasoning. A pattern runs under a time limit, so that a text cannot make
it backtrack for ever.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Any, ClassVar

import regex
from pydantic import Field, field_validator

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.extraction import after_reasoning
from groupwise.verifiers.core.contract import Case, SettingsVerifier
from groupwise.verifiers.core.scores import (
    TAG,
    BadAnswer,
    accepted_answers,
    answer_members,
    no_answer,
)


class Regex(SettingsVerifier):
    """A regular expression matches the text.

    A group named `answer`, if there is one, must equal the gold answer (or an accepted one).
    """

    verifier_name: ClassVar[str] = "regex"

    pattern: str = Field(min_length=1, description="The pattern, searched in the text.")
    full_match: bool = Field(default=False, description="Whether it must cover the whole text.")
    ignore_case: bool = Field(default=False, description="Match, and compare, without case.")
    multiline: bool = Field(default=False, description="Let ^ and $ match at every line.")
    dot_all: bool = Field(default=True, description="Let . match a line's end.")
    time_limit: float = Field(
        default=1.0, gt=0, description="Seconds for one text; overrunning is `timeout`, value 0."
    )
    reasoning_tag: str = Field(default="think", description=TAG)

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            regex.compile(pattern)
        except regex.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return pattern

    @property
    def needs_answer(self) -> bool:
        return "answer" in regex.compile(self.pattern).groupindex

    def score_case(self, case: Case) -> Score:
        golds = [self._normal(each) for each in self._golds(case.prompt)]
        text = after_reasoning(case.whole, self.reasoning_tag)
        if text is None:
            return no_answer(f"<{self.reasoning_tag}> is never closed")
        compiled = _compiled(self.pattern, self.ignore_case, self.multiline, self.dot_all)
        method = compiled.fullmatch if self.full_match else compiled.search
        try:
            match = method(text.strip(), timeout=self.time_limit)
        except TimeoutError:
            return Score(0.0, "timeout", f"matching overran {self.time_limit:g} s")
        if match is None:
            return no_answer("no match")
        if not self.needs_answer:
            return Score(1.0, "correct", "matched")
        given = self._normal(match.group("answer") or "")
        right = given in golds
        return Score(float(right), "correct" if right else "incorrect", f"matched {given[:60]!r}")

    def _golds(self, prompt: Prompt) -> tuple[str, ...]:
        return accepted_answers(prompt.answer) if self.needs_answer else ()

    def check_row(self, prompt: Prompt) -> None:
        self._golds(prompt)

    def _normal(self, text: str) -> str:
        text = " ".join(text.split())
        return text.casefold() if self.ignore_case else text


@cache
def _compiled(pattern: str, ignore_case: bool, multiline: bool, dot_all: bool) -> Any:
    flags = (regex.IGNORECASE * ignore_case) | (regex.MULTILINE * multiline)
    return regex.compile(pattern, flags | (regex.DOTALL * dot_all))


class ContainsAll(SettingsVerifier):
    """Every wanted word or phrase is in the text, and no other option is.

    Whole words, without case. Listing every option does not help: an option that is not wanted or
    too many words make it wrong, so state `options` or `max_words`. Words are looked for, not
    understood: `not Paris` contains Paris.
    """

    verifier_name: ClassVar[str] = "contains_all"

    items: tuple[str, ...] = Field(
        default=(), description="What must be there; the gold answer (a text or a list) if empty."
    )
    options: tuple[str, ...] = Field(
        default=(), description="All that could be named; those not wanted must not be there."
    )
    options_column: str = Field(
        default="options", description="The column with the options; it may be absent."
    )
    max_words: int | None = Field(
        default=None, ge=1, description="Longest text that still counts, in words."
    )
    reasoning_tag: str = Field(default="think", description=TAG)

    @property
    def needs_answer(self) -> bool:
        return not self.items

    def score_case(self, case: Case) -> Score:
        wanted = [_words(item) for item in self._items(case.prompt)]
        if not all(wanted):
            raise BadAnswer(f"no word to look for in the answer {case.prompt.answer!r:.60}")
        words = _words(after_reasoning(case.whole, self.reasoning_tag) or "")
        if not words:
            return no_answer("nothing was written")
        if self.max_words is not None and len(words.split()) > self.max_words:
            return Score(0.0, "limit", f"{len(words.split())} words, above {self.max_words}")
        missing = [item for item in wanted if not _contains(words, item)]
        if missing:
            return Score(0.0, "incorrect", f"missing: {', '.join(missing)}")
        options: Any = self.options or case.prompt.columns.get(self.options_column)
        stated = [] if options is None or not len(options) else answer_members(options)
        others = [_words(texts[0]) for texts in stated]
        hedged = [each for each in others if each not in wanted and _contains(words, each)]
        hedged = [each for each in hedged if not any(_contains(item, each) for item in wanted)]
        if hedged:
            return Score(0.0, "incorrect", f"also named: {', '.join(hedged)}")
        return Score(1.0, "correct", "all there")

    def _items(self, prompt: Prompt) -> tuple[str, ...]:
        return self.items or tuple(texts[0] for texts in answer_members(prompt.answer))

    def gold_completion(self, prompt: Prompt) -> str:
        return ", ".join(self._items(prompt))


def _words(text: str) -> str:
    """The text's words, without case and punctuation, one blank between two."""
    text = unicodedata.normalize("NFKC", text).casefold().replace("−", "-")
    return " ".join(re.findall(r"(?:(?<![\w)])-(?=\d))?\w+(?:[.,]\d+)*", text))


def _contains(words: str, item: str) -> bool:
    return bool(item) and f" {item} " in f" {words} "
