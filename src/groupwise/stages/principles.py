"""A constitution: principles from one readable file, and which one is drawn for an answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from groupwise.randomness import generator
from groupwise.stages.rejection import checked_fields
from groupwise.verifiers.judge.rubric import not_blank, read_tables

CRITIQUE = "Here is a principle: {principle}\nWhat in your last answer goes against it?"
REVISION = (
    "Write your answer again so that it keeps to the principle, and say why where you refuse."
)


class Principle(BaseModel):
    """One principle, and how it is put to the policy."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = Field(min_length=1, description="What the feedback model judges by.")
    critique: str = Field(
        CRITIQUE, min_length=1, description="The user's turn behind an answer; {principle}: text."
    )
    revision: str = Field(
        REVISION, min_length=1, description="The user's turn behind the critique."
    )

    @field_validator("critique", "revision")
    @classmethod
    def _wording(cls, value: str) -> str:
        own = ["principle"] if "{principle}" in value else []
        return checked_fields(value, *own, takes="{principle} or none")

    _not_blank = field_validator("text", "critique", "revision")(not_blank)


class Refusals(BaseModel):
    """A rule-based counter: what refuses, and which refusals are explained; the others evade."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    refuses: str = Field(
        r"(?i)\b(?:can(?:no|')t|cannot|won't|will not|unable to)\b",
        description="A regular expression that is found in a refusal.",
    )
    explains: str = Field(
        r"(?i)\b(?:because|since|instead|so that)\b",
        description="A regular expression that is found in a refusal with its reason.",
    )

    @field_validator("refuses", "explains")
    @classmethod
    def _compiles(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"{value!r} is not a regular expression: {error}") from error
        return value

    def kind(self, text: str) -> str:
        """`explained`, `evasive`, or "" for no refusal.

        >>> [Refusals().kind(t) for t in ("I cannot, because it hurts.", "I can't.", "Sure.")]
        ['explained', 'evasive', '']
        """
        if not re.search(self.refuses, text):
            return ""
        return "explained" if re.search(self.explains, text) else "evasive"

    def counts(self, texts: Iterable[str], of: str) -> dict[str, int]:
        found = Counter(map(self.kind, texts))
        return {f"refusals/{kind}/{of}": found[kind] for kind in ("evasive", "explained")}


def read_principles(path: str) -> tuple[Principle, ...]:
    """The principles of a file: `[[principles]]` of a .toml, else a line each (# is a comment).

    `package:file` is a file of an installed package. Raises ValueError for an empty or unreadable
    file.
    """
    package, _, name = path.rpartition(":")
    try:
        file = str(files(package) / name) if package else path
        if file.endswith(".toml"):
            return tuple(map(Principle.model_validate, read_tables(file, "principles")))
        lines = [line.strip() for line in Path(file).read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError, ModuleNotFoundError) as error:
        raise ValueError(f"principles = {path!r} cannot be read: {error}") from error
    found = [line for line in lines if line and not line.startswith("#")]
    if not found:
        raise ValueError(f"principles = {path!r} is empty; write a principle a line")
    return tuple(Principle(text=line) for line in found)


def drawn(principles: tuple[Principle, ...], seed: int, *key: str | int) -> Principle:
    """The principle for one answer or pair, a function of the seed and the key."""
    return generator(seed, "order", "principle", *key).choice(principles)
