"""Multiple choice: a letter, or the text of an option; one and only one.

The prompt's `choices` column holds the options' texts where the verifier is to read them. The
answer as a whole must name one option: its letter, its text, or both where they agree.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.final_answer import FinalAnswer
from groupwise.verifiers.answers.tokens import normal, plain, unwrapped
from groupwise.verifiers.core.contract import Case
from groupwise.verifiers.core.scores import BadAnswer, no_answer, verdict

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
