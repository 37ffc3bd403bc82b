"""Small checks over a text: `regex`, `format`, `length` and `repetition`.

None of them says whether an answer is right (but for a pattern's group `answer`); gate them on a
verifier that does. A form without content earns nothing, so that a bonus cannot be farmed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import regex
from pydantic import Field, field_validator, model_validator

from groupwise.texts import counted
from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.extraction import after_reasoning, boxes, last_box, repaired
from groupwise.verifiers.answers.numbers import parse_number
from groupwise.verifiers.answers.tokens import plain
from groupwise.verifiers.core.contract import Case, SettingsVerifier
from groupwise.verifiers.core.scores import (
    TAG,
    BadAnswer,
    accepted_answers,
    graded,
    no_answer,
    verdict,
)


class TextVerifier(SettingsVerifier):
    """A verifier of what follows the reasoning; nothing written is no answer."""

    reasoning_tag: str = Field(default="think", min_length=1, description=TAG)

    @abstractmethod
    def judge(self, text: str, case: Case) -> Score:
        """The score of a text that is not blank; the row was checked (`check_row`)."""

    def score_case(self, case: Case) -> Score:
        self.check_row(case.prompt)
        text = after_reasoning(case.whole, self.reasoning_tag)
        if text is None:
            return no_answer(f"<{self.reasoning_tag}> is never closed")
        return self.judge(text, case) if text.strip() else no_answer("nothing was written")


class Regex(TextVerifier):
    """A regular expression matches the text.

    A group named `answer`, if there is one, must equal the gold answer (or an accepted one). It
    runs under a time limit, so that a text cannot make it backtrack for ever.
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

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            regex.compile(pattern)
        except regex.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return pattern

    @cached_property
    def _compiled(self) -> Any:
        flags = (regex.IGNORECASE * self.ignore_case) | (regex.MULTILINE * self.multiline)
        return regex.compile(self.pattern, flags | (regex.DOTALL * self.dot_all))

    @property
    def needs_answer(self) -> bool:
        return "answer" in regex.compile(self.pattern).groupindex

    def judge(self, text: str, case: Case) -> Score:
        method = self._compiled.fullmatch if self.full_match else self._compiled.search
        try:
            match = method(text.strip(), timeout=self.time_limit)
        except TimeoutError:
            return Score(0.0, "timeout", f"matching overran {self.time_limit:g} s")
        if match is None:
            return no_answer("no match")
        if not self.needs_answer:
            return Score(1.0, "correct", "matched")
        golds = [self._normal(each) for each in accepted_answers(case.prompt.answer)]
        given = self._normal(match.group("answer") or "")
        return verdict(given in golds, given, " or ".join(golds))

    def check_row(self, prompt: Prompt) -> None:
        if self.needs_answer:
            accepted_answers(prompt.answer)

    def _normal(self, text: str) -> str:
        text = " ".join(text.split())
        return text.casefold() if self.ignore_case else text


def is_empty(content: str) -> bool:
    r"""Whether there is nothing to read: white space, invisible signs, bare dressing, dots.

    >>> is_empty(r"\text{ }"), is_empty(" ... "), is_empty("[]"), is_empty(r"\{\}")
    (True, True, False, False)
    """
    content = content.strip()
    bare = r"\{" not in content and not content.strip("{} ")
    seen = (sign.isprintable() and not sign.isspace() for sign in plain(content))
    return bare or not any(seen)


class Format(SettingsVerifier):
    """The asked form, once, with a readable answer inside.

    `boxed`: exactly one box after the reasoning. `tagged`: exactly one pair of answer tags, nothing
    behind it. `think`: one closed reasoning section, then text. `think_answer`: one closed
    reasoning section, then one pair of answer tags, and nothing else.
    """

    verifier_name: ClassVar[str] = "format"

    kind: Literal["boxed", "tagged", "think", "think_answer"] = Field(
        default="boxed", description="Which form is asked for."
    )
    content: Literal["auto", "number", "text"] = Field(
        default="auto",
        description="What must be inside: number, text (anything), or auto: a number if the gold "
        "answer is one.",
    )
    tag: str = Field(default="answer", min_length=1, description="The answer's tag.")
    reasoning_tag: str = Field(default="think", min_length=1, description=TAG)

    def score_case(self, case: Case) -> Score:
        content = self._content(repaired(case.whole))
        if content is None:
            return no_answer(f"not the {self.kind} form, once and alone")
        if is_empty(content):
            return no_answer(f"the {self.kind} form is empty")
        if self._needs_number(case.prompt) and parse_number(content) is None:
            return no_answer(f"no number can be read in {content.strip()[:60]!r}")
        return Score(1.0, "correct", f"{self.kind} form")

    def _needs_number(self, prompt: Prompt) -> bool:
        if self.content != "auto" or self.kind == "think":
            return self.content == "number"
        golds = _golds(prompt)
        return bool(golds) and all(parse_number(gold) is not None for gold in golds)

    def _content(self, text: str) -> str | None:
        """What stands inside the form; None if it is not there, or not once."""
        reasoning = ""
        answer = after_reasoning(text, self.reasoning_tag)
        if self.kind in ("think", "think_answer"):
            opening, closing = f"<{self.reasoning_tag}>", f"</{self.reasoning_tag}>"
            reasoning, closed, answer = text.strip().removeprefix(opening).partition(closing)
            again = any(tag in reasoning + answer for tag in (opening, closing))
            if not closed or again or is_empty(reasoning):
                return None
        if answer is None or self.kind == "think":
            return answer
        if self.kind == "boxed":
            found = boxes(answer)
            return found[0] if len(found) == 1 else None
        before, opened, rest = answer.partition(f"<{self.tag}>")
        content, closed, behind = rest.partition(f"</{self.tag}>")
        alone = not behind.strip() and not (self.kind == "think_answer" and before.strip())
        again = any(f"{sign}{self.tag}>" in reasoning + before + content for sign in ("<", "</"))
        return content if opened and closed and alone and not again else None

    def gold_completion(self, prompt: Prompt) -> str:
        answer = next(iter(_golds(prompt)), "answer")
        thought = f"<{self.reasoning_tag}>thought</{self.reasoning_tag}>"
        written = f"<{self.tag}>{answer}</{self.tag}>" if "answer" in self.kind else answer
        return {
            "boxed": f"\\boxed{{{answer}}}",
            "tagged": f"<{self.tag}>{answer}</{self.tag}>",
        }.get(self.kind, thought + written)


def _golds(prompt: Prompt) -> tuple[str, ...]:
    """The accepted answers, out of their boxes; none if the prompt has none."""
    try:
        return tuple(last_box(each) or each for each in accepted_answers(prompt.answer))
    except BadAnswer:
        return ()


class Length(SettingsVerifier):
    """1 within [min_tokens, max_tokens], falling to 0 over `slack` tokens on either side.

    Tokens are counted in the completion's ids. DAPO's soft overlong punishment is part of the
    algorithm.
    """

    verifier_name: ClassVar[str] = "length"

    max_tokens: int = Field(ge=1, description="The budget, in tokens of the completion.")
    min_tokens: int = Field(default=0, ge=0, description="Fewest tokens that get the full value.")
    slack: int = Field(default=0, ge=0, description="Over how many tokens the value falls.")

    @model_validator(mode="after")
    def _ordered(self) -> Length:
        if self.min_tokens > self.max_tokens:
            raise ValueError(f"min_tokens = {self.min_tokens} is above max_tokens")
        return self

    def score_case(self, case: Case) -> Score:
        if case.text and not case.completion_ids:
            raise ValueError("length counts tokens, but a case has text and no completion_ids")
        num = len(case.completion_ids)
        excess = max(num - self.max_tokens, self.min_tokens - num, 0)
        value = 1.0 if excess == 0 else max(0.0, 1 - excess / self.slack) if self.slack else 0.0
        return graded(value, counted(num, "token"))


class Repetition(SettingsVerifier):
    """The share of n-grams that are not repeats of an earlier one: 1 if none is.

    >>> Repetition(ngram=2).unique_share("a b a b a b".split())
    0.4
    """

    verifier_name: ClassVar[str] = "repetition"

    ngram: int = Field(default=4, ge=1, description="How many words or tokens make one n-gram.")
    unit: Literal["words", "tokens"] = Field(
        default="words", description="Words of the text without case, or the completion's ids."
    )

    def score_case(self, case: Case) -> Score:
        words: Sequence[object] = case.text.casefold().split()
        share = self.unique_share(case.completion_ids if self.unit == "tokens" else words)
        return graded(share, f"{share:.0%} of {self.ngram}-grams are new")

    def unique_share(self, units: Sequence[object]) -> float:
        """Distinct n-grams over all n-grams; 1 if there is none."""
        total = len(units) - self.ngram + 1
        if total < 1:
            return 1.0
        return len({tuple(units[start : start + self.ngram]) for start in range(total)}) / total
