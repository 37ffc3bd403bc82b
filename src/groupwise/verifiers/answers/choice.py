"""Multiple choice: a letter, or the text of an option; one and only one.

The prompt's `choices` column holds the options' texts where the verifier is to read them. Naming
several options, or a letter with another option's text, is wrong, not half right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.answers import TAG, bad_answer, no_answer, verdict
from groupwise.verifiers.answers.cleaning import cleaned, plain
from groupwise.verifiers.answers.extraction import after_reasoning, last_box, last_tagged, repaired
from groupwise.verifiers.core.contract import Case, SettingsVerifier

_PHRASE = re.compile(
    r"(?:answer|choice|option)\s*+(?:(?:is|:|=)\s*+)?(?::\s*+)?(?=\S)", re.IGNORECASE
)
_LETTER = re.compile(
    r"(?:option|choice|answer)?\s*[(\[]?([A-Za-z])(?:[)\].:,!]+|(?=\s)|\Z)\s*", re.I
)
_CHOOSING = re.compile(r"(?:I|we)\s+(?:would\s+)?(?:choose|pick|select|say)\s+", re.IGNORECASE)
# Behind a letter: it is taken back, or the next line goes on about others.
_DENIED = re.compile(
    r"\W*+(?:(?:is|was|seems)\s+)?(?:(?:not|no|never|wrong|incorrect|false)\b|isn.?t\b)|\s*\?", re.I
)
_GOES_ON = re.compile(r"\s*(?:or|and|but|maybe|perhaps|possibly)\b", re.IGNORECASE)
_REASON = re.compile(r"(?:because|since|as)\b", re.IGNORECASE)
# A letter that another option could be named by; not the one of "Vitamin C".
_OTHER = re.compile(
    r"(?:\A|[.,;/&|+(\n]|\b(?:or|and|but|maybe|perhaps|possibly|also|either|nor|not|than))"
    r"\s{0,3}[(\[]?([A-Z])(?![\w'’])"
)
_QUOTED = "\"'“”‘’ "
_ALTERNATIVES = re.compile(r"[(\[]?\b[A-Z]\b[)\]]?\s*(?:,|/|\bor\b|\band\b|&)\s*[(\[]?\b[A-Z]\b")


class Choice(SettingsVerifier):
    """The chosen option is the gold one.

    Read, in this order: the last box, the last answer tag, what follows the last "answer is", the
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
    tag: str = Field(default="answer", min_length=1, description="The answer's tag.")
    reasoning_tag: str = Field(default="think", description=TAG)

    def score_case(self, case: Case) -> Score:
        options = self._options(case.prompt)
        gold = self._gold(case.prompt.answer, options)
        if gold is None:
            return bad_answer(f"the answer {case.prompt.answer!r} is none of the options")
        text = after_reasoning(repaired(case.whole), self.reasoning_tag)
        given = None if text is None else self._answer(text)
        if not given:
            return no_answer("no option is named")
        if self._names_several(given, options):
            return Score(0.0, "incorrect", f"several options in {given[:60]!r}")
        chosen = self._chosen(given, options)
        if chosen is None:
            return no_answer(f"{given[:60]!r} is no option")
        return verdict(chosen == gold, chosen, gold)

    def _options(self, prompt: Prompt) -> tuple[str, ...]:
        found = self.choices or prompt.columns.get(self.choices_column) or ()
        if isinstance(found, dict):  # {"text": [...], "label": [...]}
            found = found.get("text", ())
        return tuple(str(each) for each in found)

    def _letters(self, options: Sequence[str]) -> str:
        return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: len(options) or self.num_choices]

    def _gold(self, answer: object, options: Sequence[str]) -> str | None:
        letters = self._letters(options)
        if isinstance(answer, int) and not isinstance(answer, bool):
            return letters[answer] if 0 <= answer < len(letters) else None
        return None if answer is None else self._chosen(str(answer), options)

    def _answer(self, text: str) -> str | None:
        if r"\boxed" in text:
            return last_box(text)
        tagged = last_tagged(text, self.tag)
        if tagged is not None or f"<{self.tag}>" in text:
            return tagged
        phrases = list(_PHRASE.finditer(text))
        if phrases:
            line, _, rest = text[phrases[-1].end() :].strip().partition("\n")
            return f"{line} {rest.strip()}" if _GOES_ON.match(rest) else line
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return _CHOOSING.sub("", lines[-1]) if lines else None

    def _names_several(self, answer: str, options: Sequence[str]) -> bool:
        """Whether more letters than the first one stand for options.

        Letters inside an option's own text do not (`D. Both A and B`), and an `A` or `I` before a
        word in small letters is taken for an English word.
        """
        written = cleaned(answer).replace("$", " ").strip()
        match = _LETTER.match(written)
        rest = "" if match is None else written[match.end() :]
        texts = [plain(option) for option in options]
        if plain(written) in texts or (rest and plain(rest) in texts):
            return False
        if _ALTERNATIVES.search(answer):
            return True
        if match is None:
            return False
        others = set(self._letters(options)) - {match.group(1).upper()}
        return any(
            found.group(1) in others
            and not (found.group(1) in "AI" and re.match(r" [a-z]", rest[found.end() :]))
            for found in _OTHER.finditer(rest)
        )

    def _chosen(self, answer: str, options: Sequence[str]) -> str | None:
        """The letter that an answer names, by itself, by its text, or by both where they agree."""
        answer = cleaned(answer).replace("$", " ").strip(_QUOTED)
        letters = self._letters(options)
        texts = [plain(option) for option in options]
        if plain(answer) in texts:
            return letters[texts.index(plain(answer))]
        match = _LETTER.match(answer)
        if match is None or match.group(1).upper() not in letters:
            return None
        letter, rest = match.group(1).upper(), answer[match.end() :].strip()
        if rest and match.group(1).islower():
            return None  # "a dog": an article
        if _DENIED.match(rest):
            return None
        if rest and texts:
            own = texts[letters.index(letter)]
            others = [text for text in texts if text != own]
            if _REASON.match(rest) and not any(text in plain(rest) for text in others):
                return letter
            return letter if own in (plain(rest), plain(rest.strip("-–— ():"))) else None
        return letter if not rest or len(rest.split()) <= 12 else None

    def gold_completion(self, prompt: Prompt) -> str:
        letter = self._gold(prompt.answer, self._options(prompt))
        return f"The answer is ({letter or prompt.answer})"
