"""The verifiers of one final answer by exact rules, and `FinalAnswer`, which finds it."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.extraction import after_reasoning, last_box, last_tagged, repaired
from groupwise.verifiers.answers.final_answer import MAX_ANSWER, last_line, stated_answer
from groupwise.verifiers.answers.gold import unboxed, without_box
from groupwise.verifiers.answers.judging import Judged, judge, prompt_words
from groupwise.verifiers.answers.numbers import last_number, parse_number
from groupwise.verifiers.answers.tokens import normal, plain, unwrapped
from groupwise.verifiers.answers.units import same_unit
from groupwise.verifiers.core.contract import AnswerVerifier, Case
from groupwise.verifiers.core.scores import TAG, BadAnswer, no_answer, verdict

TOLERANCE = "Largest absolute difference that still counts as equal; 0 compares exactly."
RELATIVE = "The same as a share of the gold answer's size."
Judge = Callable[[str, str, Prompt], Score]
"""What an answer is worth against a gold answer, for a prompt."""
Tolerance = Annotated[float, Field(ge=0, allow_inf_nan=False, description=TOLERANCE)]
Relative = Annotated[float, Field(ge=0, allow_inf_nan=False, description=RELATIVE)]


class FinalAnswer(AnswerVerifier):
    """Finds the final answer and leaves its judgement to `judge`."""

    tag: str = Field(default="answer", min_length=1, description="The answer's tag.")
    reasoning_tag: str = Field(default="think", description=TAG)

    def stated(self, text: str) -> str | None:
        """The answer of a text without its reasoning."""
        return stated_answer(text, self.tag, self.unmarked)

    def unmarked(self, text: str) -> str | None:
        """The answer of a text without box and tag."""
        return last_line(text)

    @abstractmethod
    def judge(self, given: str, gold: str, prompt: Prompt) -> Score:
        """The score of an answer that was found; `BadAnswer` for an unusable gold one."""

    def located(self, text: str) -> str | Score:
        """The answer as it is written, or the score of a completion that has none."""
        rest = after_reasoning(repaired(text), self.reasoning_tag)
        if rest is None:
            return no_answer(f"<{self.reasoning_tag}> is never closed")
        given = self.stated(rest)
        if given is None or not given.strip():
            return no_answer("no answer is given")
        if len(given) > MAX_ANSWER:
            return Score(0.0, "limit", f"an answer of {len(given)} characters")
        return given

    def compare(self, case: Case, gold: str) -> Score:
        return self.judged(case, gold, self.judge)

    def judged(self, case: Case, gold: str, judge: Judge) -> Score:
        """What `judge` says of the answer that is found."""
        given, gold = self.located(case.whole), unboxed(gold)
        if isinstance(given, Score):
            judge("", gold, case.prompt)  # an unusable gold answer comes first
            return given
        return judge(given, gold, case.prompt)

    def write(self, gold: str) -> str:
        return f"<{self.tag}>{without_box(gold)}</{self.tag}>"


def score_of(found: Judged, given: str, gold: str) -> Score:
    """A judgement as a score; `BadAnswer` for an unusable gold answer."""
    match found.kind:
        case "bad_answer":
            raise BadAnswer(found.reason)
        case "equal" | "different" | "undecided":
            return verdict(found.kind == "equal", given, gold)
        case "limit":
            return Score(0.0, "limit", f"{given[:60]!r} has a value beyond the bounds")
    return Score(0.0, found.kind, found.reason or f"{given[:60]!r} is not one answer")


class Exact(AnswerVerifier):
    """The whole text after the reasoning is the answer, character by character.

    Outer white space never counts; runs of white space count as one blank unless told otherwise.
    """

    verifier_name: ClassVar[str] = "exact"

    ignore_case: bool = Field(default=False, description="Compare without case.")
    collapse_whitespace: bool = Field(
        default=True, description="Read runs of white space as one blank."
    )
    reasoning_tag: str = Field(default="think", description=TAG)

    def compare(self, case: Case, gold: str) -> Score:
        text = after_reasoning(case.whole, self.reasoning_tag)
        given, wanted = self._normal(text or ""), self._normal(gold)
        return verdict(given == wanted, given, wanted) if given else no_answer("nothing is written")

    def _normal(self, text: str) -> str:
        text = " ".join(text.split()) if self.collapse_whitespace else text.strip()
        return text.casefold() if self.ignore_case else text

    def write(self, gold: str) -> str:
        return gold


class _Compared(FinalAnswer):
    """An answer that is the gold one by exact arithmetic, within a tolerance, or as written."""

    tolerance: Tolerance = 0.0
    relative_tolerance: Relative = 0.0

    def judge(self, given: str, gold: str, prompt: Prompt) -> Score:
        found = judge(
            gold,
            given,
            words=prompt_words(prompt.text or ""),
            tolerance=self.tolerance,
            relative_tolerance=self.relative_tolerance,
        )
        return score_of(found, given, gold)


class Number(_Compared):
    """A number: the last box, else the last answer tag, else the last number of the text.

    In a box or tag the number is all there is. In a text, words around the last number are not
    read; a number that is a piece of a formula (`4\\sqrt{2}`, `(0,1)`, `12:00`) is no answer.
    """

    verifier_name: ClassVar[str] = "number"

    def unmarked(self, text: str) -> str | None:
        found = last_number(text)
        return None if found is None else f"{found.value} {found.unit}".strip()

    def judge(self, given: str, gold: str, prompt: Prompt) -> Score:
        if parse_number(gold) is None:
            raise BadAnswer(f"the answer {gold[:60]!r} is not a number")
        return super().judge(given, gold, prompt)

    def write(self, gold: str) -> str:
        return without_box(gold)


class Tagged(_Compared):
    """The content of the last `<answer>...</answer>` after the reasoning; of a box in it, that."""

    verifier_name: ClassVar[str] = "tagged"

    def stated(self, text: str) -> str | None:
        given = last_tagged(text, self.tag)
        return last_box(given) if given is not None and r"\boxed" in given else given


class Boxed(_Compared):
    """The content of the last balanced `\\boxed{...}` after the reasoning is the answer."""

    verifier_name: ClassVar[str] = "boxed"

    def stated(self, text: str) -> str | None:
        return last_box(text)

    def write(self, gold: str) -> str:
        return f"\\boxed{{{without_box(gold)}}}"


class Text(FinalAnswer):
    """The final answer is the gold answer, letter by letter; a number by its value.

    Quotation marks around it, their kind, markdown and a final period do not count; runs of white
    space are one blank. A unit belongs to the text, and so do zeros in front of a number.
    """

    verifier_name: ClassVar[str] = "text"

    ignore_case: bool = Field(default=False, description="Compare without case.")

    def judge(self, given: str, gold: str, prompt: Prompt) -> Score:
        wanted, found = self._normal(gold), self._normal(given)
        if not found:
            return no_answer("nothing is written")
        return verdict(found == wanted or _same_number(wanted, found), found, wanted)

    def _normal(self, text: str) -> str:
        text = _BOLD.sub("", normal(text)).translate(_QUOTES)
        text = " ".join(text.split()).strip(" .$")
        if len(text) > 1 and text[0] in "\"'" and text[-1] in "\"'":
            text = text[1:-1].strip(" .")
        return text.casefold() if self.ignore_case else text


_QUOTES = str.maketrans("“”„‘’", '"""\'\'')
_BOLD = re.compile(r"\*\*|__|`")
_ZEROS = re.compile(r"[+-]?0\d")


def _same_number(gold: str, given: str) -> bool:
    """Equal numbers of one unit, none of them a text of digits such as 007."""
    first, second = parse_number(gold), parse_number(given)
    if first is None or second is None or any(_ZEROS.match(each) for each in (gold, given)):
        return False
    units = same_unit(first.unit, second.unit) if first.unit else not second.unit
    return units and first.value == second.value


_LEAD = re.compile(r"\b(?:answer|choice|option)\b[ \t*]*+(?:is|:|=)?[ \t*]*+:?\s*+(?=\S)", re.I)
_NOUN = re.compile(r"(?:option|choice|answer)\s+(?=[(\[]?[A-Za-z]\b)", re.IGNORECASE)
_LETTER = re.compile(r"[(\[]?([A-Za-z])(?![\w'’])[)\].:,!]*\s*")
_OTHER = re.compile(r"(?<![\w'’])(?![AI] [a-z])[A-Z](?![\w'’])")
_REASON = re.compile(r"(?:because|since|as)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=\w\w)[.!](?=\s|\Z)|\n")
_QUOTED = "\"'“”‘’ "
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class Choice(FinalAnswer):
    """The chosen option is the gold one.

    Read in the last box, else the last answer tag, else behind the last "answer is", else in the
    last line. The gold answer is a letter, an option's text, or an index counted from 0.
    """

    verifier_name: ClassVar[str] = "choice"

    choices: tuple[str, ...] = Field(
        default=(), description="The options' texts, where they are the same for every prompt."
    )
    choices_column: str = Field(
        default="choices", description="The column with the options' texts; it may be absent."
    )
    num_choices: int = Field(
        default=10, ge=2, le=26, description="How many letters count where no texts are known."
    )

    def unmarked(self, text: str) -> str | None:
        leads = list(_LEAD.finditer(text))
        if leads:
            return text[leads[-1].end() :]
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else None

    def score_case(self, case: Case) -> Score:
        answer = case.prompt.answer
        if isinstance(answer, int) and not isinstance(answer, bool):  # an index, from 0
            letters = self._letters(self._options(case.prompt))
            if not 0 <= answer < len(letters):
                raise BadAnswer(f"the answer {answer} is not an index of {len(letters)} options")
            return self.compare(case, letters[answer])
        return super().score_case(case)

    def judge(self, given: str, gold: str, prompt: Prompt) -> Score:
        options = self._options(prompt)
        wanted, chosen = self._chosen(gold, options), self._chosen(given, options)
        if wanted is None:
            raise BadAnswer(f"the answer {gold[:60]!r} is none of the options")
        if chosen is None:
            return no_answer(f"{given[:60]!r} does not name one option")
        return verdict(chosen == wanted, chosen, wanted)

    def _options(self, prompt: Prompt) -> tuple[str, ...]:
        found = self.choices or prompt.columns.get(self.choices_column) or ()
        if isinstance(found, dict):  # {"text": [...], "label": [...]}
            found = found.get("text", ())
        return tuple(str(each) for each in found)

    def _letters(self, options: Sequence[str]) -> str:
        return _LETTERS[: len(options) or self.num_choices]

    def _chosen(self, answer: str, options: Sequence[str]) -> str | None:
        """The letter of the one option that the answer as a whole names."""
        answer = unwrapped(normal(answer)).replace("$", " ").strip(_QUOTED)
        answer = _NOUN.sub("", answer, count=1)
        letters, texts = self._letters(options), [plain(option) for option in options]
        ends = [len(answer), *(match.start() for match in _SENTENCE_END.finditer(answer))]
        for end in ends[:1] + sorted(ends[1:]):
            text = plain(answer[:end].strip(_QUOTED))
            if text in texts:
                return letters[texts.index(text)]
        match = _LETTER.match(answer)
        if match is None or match.group(1).upper() not in letters:
            return None
        letter, rest = match.group(1).upper(), answer[match.end() :].strip()
        if rest and match.group(1).islower():
            return None  # "a dog": an article
        if not rest or _REASON.match(rest):
            return letter
        if texts:
            own = texts[letters.index(letter)]
            first = _SENTENCE_END.split(rest)[0]
            parts = (rest, rest.strip("-–— ():"), first, first.strip("-–— ():"))
            return letter if own in map(plain, parts) else None
        others = [each for each in _OTHER.findall(rest) if each in letters]
        delimited = answer[: match.end()].rstrip()[-1:] in ".):"
        return letter if delimited and not others else None

    def write(self, gold: str) -> str:
        return f"<{self.tag}>{gold}</{self.tag}>"

    def gold_completion(self, prompt: Prompt) -> str | None:
        answer = prompt.answer
        if isinstance(answer, int) and not isinstance(answer, bool):
            return self.write(_LETTERS[answer] if 0 <= answer < len(_LETTERS) else "")
        return super().gold_completion(prompt)
