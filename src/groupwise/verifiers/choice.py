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
from groupwise.verifiers.answers import TAG, bad_answer, no_answer, verdict
from groupwise.verifiers.cleaning import cleaned, plain
from groupwise.verifiers.contract import Case, SettingsVerifier
from groupwise.verifiers.extraction import after_reasoning, last_box, last_tagged, repaired

_PHRASE = re.compile(
    r"(?:answer|choice|option)\s*+(?:(?:is|:|=)\s*+)?(?::\s*+)?(?=\S)", re.IGNORECASE
)
_LETTER = re.compile(
    r"(?:option|choice|answer)?\s*[(\[]?([A-Za-z])(?:[)\].:,]+|(?=\s)|\Z)\s*", re.I
)
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
        if _ALTERNATIVES.search(given):
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
            return text[phrases[-1].end() :].strip().partition("\n")[0]
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else None

    def _chosen(self, answer: str, options: Sequence[str]) -> str | None:
        """The letter that an answer names, by itself, by its text, or by both where they agree."""
        answer = cleaned(answer).replace("$", " ").strip()
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
        if rest and texts:
            return letter if plain(rest) == texts[letters.index(letter)] else None
        return letter if not rest or len(rest.split()) <= 12 else None

    def gold_completion(self, prompt: Prompt) -> str:
        letter = self._gold(prompt.answer, self._options(prompt))
        return f"The answer is ({letter or prompt.answer})"
