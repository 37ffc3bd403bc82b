r"""The `math` verifier: exact where it can be, algebra in killable workers where it must be.

The answer is taken by our own rules (last balanced box after the reasoning). Equal text, integers,
fractions, decimals and units are decided here, exactly; everything else goes to math-verify in a
worker (`math_worker.py`) under a deadline and a memory limit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, Literal

from pydantic import Field

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.answers import (
    PERCENT,
    TAG,
    Percent,
    bad_answer,
    no_answer,
    verdict,
)
from groupwise.verifiers.answers.cleaning import cleaned, plain, without_fonts
from groupwise.verifiers.answers.comparison import gold_text, same_answer
from groupwise.verifiers.answers.extraction import after_reasoning, displayed, last_box, repaired
from groupwise.verifiers.answers.numbers import last_number, parse_number
from groupwise.verifiers.answers.polynomials import parse_polynomial
from groupwise.verifiers.core.contract import Case, SettingsVerifier
from groupwise.waiting.processes import Reply, WorkerPool, shared_pool

WORKER = "groupwise.verifiers.answers.math_worker:make"
MAX_CHARACTERS = 2000
"""Longer answers are not compared: outcome `limit`."""

_PHRASE = re.compile(r"answers?\s*(?:is|are|:|=)\s*:?\s*", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\n|[.!?](?=\s|\Z)")
_FORMULA = re.compile(r"\$\$?([^$]+)\$\$?")
_WORDS = re.compile(r"[^\W\d_][^\W\d_'-]*(?: [^\W\d_][^\W\d_'-]*)*")
_NUMBERS = re.compile(r"[-+]?\d(?:[-+\d.,/ ]|\b(?:or|and)\b)*")
_DENIAL = re.compile(
    r"(?:(?:[a-z]+\s+)?(?:not|never)|n['’]t|neither|anything but)\b", re.IGNORECASE
)
_GOES_ON = re.compile(r"(?:\.\.\.|\\[lc]?dots|…)\s*\Z")
_OFFERED = re.compile(
    r"[,\s]*(?:(?:or|and|maybe|perhaps|possibly|either)\b[,\s]*)+(?:[a-z]+\s*[=:]?\s*)?", re.I
)
_WORDS_BESIDE = re.compile(r"\\(?:text[a-z]*|mbox|mathrm)\s*\{([^{}]*)\}")
_DENYING = frozenset({
    "not", "no", "wrong", "false", "incorrect", "never", "maybe", "possibly", "perhaps", "probably",
    "either", "neither", "nor", "approximately", "approx", "about", "than", "except", "unless",
    "none", "nothing",
})  # fmt: skip
_BASED = re.compile(
    r"\(?([0-9][0-9A-Za-z]*|[0-9A-Z]{2,}|[0-9a-f]{2,}(?=\)?_\{16))\)?_(?:\{\(?(\d{1,2})\)?\}|(\d))"
)
_HEDGE = re.compile(r"(?<![A-Za-z\\])(?:or|and)(?![A-Za-z])")


Formula = tuple[int, int, str]
"""Start, end and content."""


class Math(SettingsVerifier):
    """A mathematical answer, equal to the gold one by exact arithmetic or by algebra.

    A decimal is equal to a fraction or a root only where it is exactly equal. Of several boxes the
    last counts; without a box, the first formula or the number behind the last "answer is", else
    the last formula or number of the text.
    """

    verifier_name: ClassVar[str] = "math"

    percent: Percent = Field(default="ignore", description=PERCENT)
    box: Literal["preferred", "required"] = Field(
        default="preferred", description="Whether an answer without a box is read at all."
    )
    time_limit: float = Field(
        default=5.0,
        gt=0,
        description="Seconds for one comparison. One that overruns is tried again; twice is "
        "`timeout`, value 0.",
    )
    workers: int | None = Field(
        default=None, ge=1, description="Worker processes; by default one a core, at most 8."
    )
    reasoning_tag: str = Field(default="think", description=TAG)

    @property
    def _pool(self) -> WorkerPool:
        return shared_pool(WORKER, self.workers)

    @property
    def judges_singly(self) -> bool:
        return True

    def score_case(self, case: Case) -> Score:
        (score,) = self.score([case])
        return score

    def score(self, cases: Sequence[Case]) -> list[Score]:
        """Decides what it can here; the rest of the batch runs in the workers together."""
        scores: dict[int, Score] = {}
        jobs: dict[int, tuple[str, str]] = {}
        for row, case in enumerate(cases):
            gold = gold_text(case.prompt.answer)
            given = self._answer(case.whole)
            decided = self._decide(gold, given, case)
            if decided is not None:
                scores[row] = decided
            elif gold is not None and given is not None:
                jobs[row] = (_prepared(gold), _prepared(given))
        if jobs:
            replies = self._pool.map(list(jobs.values()), self.time_limit, tries=2)
            for (row, (gold, given)), reply in zip(jobs.items(), replies):
                scores[row] = _score_of(reply, gold, given, self.time_limit)
        return [scores[row] for row in range(len(cases))]

    def _answer(self, text: str) -> str | None:
        rest = after_reasoning(repaired(text), self.reasoning_tag)
        if rest is None:
            return None
        if r"\boxed" in rest or r"\fbox" in rest or self.box == "required":
            return last_box(rest)
        return unboxed_answer(rest)

    def _decide(self, gold: str | None, given: str | None, case: Case) -> Score | None:
        """A verdict without algebra, or None where it takes algebra."""
        if gold is None:
            return bad_answer(f"the answer {case.prompt.answer!r} is empty")
        if len(gold) > MAX_CHARACTERS:
            return bad_answer(f"the answer has {len(gold)} characters, above {MAX_CHARACTERS}")
        if given is None or not plain(given):
            return no_answer("no answer with content after the reasoning")
        if len(given) > MAX_CHARACTERS:
            return Score(0.0, "limit", f"an answer of {len(given)} characters")
        based = _same_in_base(gold, given)
        if based is not None:
            return verdict(based, given, gold)
        if same_answer(gold, given, percent=self.percent):
            return verdict(True, given, gold)
        if "=" not in gold and _is_false(given):
            return verdict(False, given, gold)
        if _GOES_ON.search(given) and not _GOES_ON.search(gold):
            return verdict(False, given, gold)
        if _is_taken_back(given, gold):
            return verdict(False, given, gold)
        numbers = parse_number(gold), parse_number(given)
        if None not in numbers or (_is_text(gold) and _is_text(given)):
            return verdict(False, given, gold)
        return None

    def check_answers(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """Golds that are numbers or words pass; the others must be parsed by math-verify."""
        reasons: list[str | None] = []
        jobs: dict[int, tuple[str, None]] = {}
        for row, prompt in enumerate(prompts):
            gold = gold_text(prompt.answer)
            decided = self._decide(gold, gold, Case(prompt, ""))
            good = decided is not None and decided.outcome == "correct"
            reasons.append(None if good or decided is None else decided.reason)
            if good and gold is not None and parse_number(gold) is None and not _is_text(gold):
                jobs[row] = (_prepared(gold), None)
        if jobs:
            replies = self._pool.map(list(jobs.values()), self.time_limit, tries=2)
            for (row, (gold, _)), reply in zip(jobs.items(), replies):
                if reply != Reply("ok", "equal"):
                    reasons[row] = f"{gold!r} cannot be read as mathematics ({reply.kind})"
        return reasons

    def gold_completion(self, prompt: Prompt) -> str:
        return f"\\boxed{{{gold_text(prompt.answer) or ''}}}"


def unboxed_answer(text: str) -> str | None:
    """The answer of a text without a box: behind the last "answer is", else its last formula."""
    phrases = list(_PHRASE.finditer(text))
    if phrases:
        rest = text[phrases[-1].end() :]
        end = _SENTENCE_END.search(rest)
        phrase = (rest[: end.start()] if end else rest).strip()
        if _DENIAL.match(phrase):
            return phrase
        found = _formulas(phrase)
        if found:
            return _with_offered(phrase, found, 0)
        if parse_number(phrase) is not None or _NUMBERS.fullmatch(phrase):
            return phrase
        if len(phrase) <= 60 and last_number(phrase) is None:
            return phrase or None
        text = phrase
    found = _formulas(text)
    if found:
        return _with_offered(text, found, len(found) - 1)
    number = last_number(text)
    return None if number is None else f"{number.value} {number.unit}".strip().replace(" %", "%")


def _with_offered(text: str, found: list[Formula], place: int) -> str:
    """A formula, with those that are offered beside it by `or` and its like, as a list."""
    first = last = place
    while first > 0 and _OFFERED.fullmatch(text[found[first - 1][1] : found[first][0]]):
        first -= 1
    while last + 1 < len(found) and _OFFERED.fullmatch(text[found[last][1] : found[last + 1][0]]):
        last += 1
    return ", ".join(content for _, _, content in found[first : last + 1])


def _formulas(text: str) -> list[Formula]:
    """`$...$`, `\\(...\\)` and `\\[...\\]`, in order, empty ones left out."""
    found = [(match.start(), match.end(), match.group(1)) for match in _FORMULA.finditer(text)]
    found += [each for each in displayed(text) if text[each[0] + 1] in "(["]
    formulas: list[Formula] = []
    position = 0
    for start, end, content in sorted(found):
        if start >= position:
            formulas.append((start, end, content.strip()))
            position = end
    return [formula for formula in formulas if formula[2]]


def _is_taken_back(given: str, gold: str) -> bool:
    """Whether words beside a formula deny it or hide it, which algebra does not read."""
    words = {
        word for text in _WORDS_BESIDE.findall(given) for word in re.findall("[a-z]+", text.lower())
    }
    said = set(re.findall("[a-z]+", gold.lower()))
    return r"phantom" in given or bool((words & _DENYING) - said)


def _same_in_base(gold: str, given: str) -> bool | None:
    """Whether numbers with a base written below them are the same; None where neither has one.

    Where gold has a base, its digits are the answer, with that base or none; else the value is.
    """
    first, second = _based(gold), _based(given)
    if first is None and second is None:
        return None
    if first is None:
        number = parse_number(gold)
        return None if number is None or second is None else number.value == int(*second)
    if second is None:
        return plain(given).lstrip("0").casefold() == first[0]
    return first == second


def _based(answer: str) -> tuple[str, int] | None:
    """Digits (small, no zeros in front) and base, where an answer is a number with its base."""
    match = _BASED.fullmatch(plain(answer).replace(" ", ""))
    if match is None:
        return None
    digits, base = match.group(1).casefold(), int(match.group(2) or match.group(3))
    if not 2 <= base <= 36 or any(int(digit, 36) >= base for digit in digits):
        return None
    return digits.lstrip("0") or "0", base


def _is_false(equation: str) -> bool:
    """Whether an equation has two sides that are different numbers."""
    sides = cleaned(equation).split("=")
    return len({value for value in map(_value, sides) if value is not None}) > 1


def _value(side: str) -> Fraction | None:
    """The value of a number, or of a sum, product or power of whole numbers."""
    number = parse_number(side)
    if number is not None:
        return number.value
    try:
        return parse_polynomial(side).constant
    except (ValueError, ZeroDivisionError):
        return None


def _is_text(answer: str) -> bool:
    """Whether an answer is words, not a formula: compared as text alone."""
    words = cleaned(answer).replace("$", " ").strip().rstrip(".")
    long = any(len(word) > 3 for word in words.split())
    return bool(_WORDS.fullmatch(" ".join(words.split()))) and (long or r"\text" in answer)


def _prepared(answer: str) -> str:
    """What math-verify reads: no `$`, one list where several answers are offered."""
    text = without_fonts(repaired(answer)).replace("\\$", " ").replace("$", " ").strip().rstrip(".")
    if text.count(r"\pm") == 1 and r"\mp" not in text and not text.startswith(r"\pm"):
        text = ", ".join(text.replace(r"\pm", sign) for sign in "+-")
    return _HEDGE.sub(",", text) if _HEDGE.search(text) and "\\text" not in text else text


def _score_of(reply: Reply, gold: str, given: str, time_limit: float) -> Score:
    if reply.kind == "ok":
        if reply.value == "bad_answer":
            return bad_answer(f"the answer {gold!r} cannot be read as mathematics")
        if reply.value == "no_answer":
            return no_answer(f"{given[:60]!r} cannot be read as mathematics")
        return verdict(reply.value == "equal", given, gold)
    if reply.kind == "timeout":
        return Score(0.0, "timeout", f"comparing overran {time_limit:g} s twice")
    if reply.kind == "out_of_memory":
        return Score(0.0, "out_of_memory", "comparing needed more memory than a worker has")
    return Score(0.0, "crash", f"comparing failed: {reply.value}")
