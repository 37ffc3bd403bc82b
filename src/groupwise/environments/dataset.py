"""Prompts with answers from a file, a folder, a generator or a `datasets` name, checked before
anything loads.

Columns are mapped by name, every other column reaches the verifiers. Rows that cannot be used are
refused with their place named; dropping them is opt-in and counted. Nothing is evaluated on
training rows: held-out prompts come from their own file or split, or from a seeded share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import PurePath
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from groupwise.environments.base import Environment
from groupwise.environments.checks import check_answers, check_columns, check_values, first_of
from groupwise.environments.identity import normalised_text, prompt_id, with_unique_ids
from groupwise.environments.overlap import OnOverlap, Placed, keep_apart
from groupwise.environments.prompt_rows import prompt_of
from groupwise.environments.readers import Row, Source, is_file, read_rows
from groupwise.errors import RecipeError
from groupwise.randomness import stream_key
from groupwise.types import Prompt
from groupwise.verifiers import Verifier, VerifierTables, compose
from groupwise.verifiers.core.names import Arguments


class DatasetSettings(Arguments):
    """The arguments of `dataset`, which data sets of a known shape (shapes.py) refine."""

    environment_name: ClassVar[str] = "dataset"

    path: str = Field(
        min_length=1,
        description="A .jsonl, .json, .csv, .tsv or .parquet file, a folder, a `datasets` name, or "
        "`module:function`, a generator of rows (dicts).",
    )
    config: str | None = Field(default=None, description="The configuration of a `datasets` name.")
    split: str = Field(default="train", description="The split of a `datasets` name or folder.")
    prompt: str = Field(default="prompt", description="The column with the prompt.")
    answer: str = Field(default="answer", description="The column with the gold answer.")
    answer_pattern: str | None = Field(
        default=None,
        description="A regular expression whose first group is the answer within that column, for "
        "instance `#### (.+)`.",
    )
    template: str | None = Field(
        default=None,
        description="The prompt's text from several columns, as `{question} Think, then answer.`; "
        "in place of `prompt`.",
    )
    chat: bool = Field(
        default=True,
        description="Text prompts become one user message, which the model's chat template writes; "
        "false keeps them as raw text, for base models.",
    )
    tools_column: str = Field(
        default="tools",
        description="The column with tool schemas (a list, or its JSON text) that the chat "
        'template writes into the prompt of the row, if there is such a column; "" for none.',
    )
    system: str | None = Field(
        default=None, description="A system message before every chat prompt; implies chat."
    )
    heldout_path: str | None = Field(
        default=None, description="Where held-out prompts come from; same columns."
    )
    heldout_split: str | None = Field(
        default=None, description="The split of heldout_path, or of path where that is not set."
    )
    heldout_share: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Share of the rows held out, chosen by the seed and the prompt's text, so "
        "equal prompts stay together.",
    )
    limit: int | None = Field(default=None, ge=1, description="Use the first so many rows.")
    on_bad_answer: Literal["refuse", "drop"] = Field(
        default="refuse",
        description="A gold answer that its own verifier rejects: refuse, or drop and count.",
    )
    on_duplicate: Literal["keep", "drop"] = Field(
        default="keep", description="Equal prompt and answer within a split: keep, or drop."
    )
    on_conflict: Literal["refuse", "allow"] = Field(
        default="refuse",
        description="Equal prompts with different gold answers: refuse, or allow.",
    )
    on_overlap: OnOverlap = Field(
        default="refuse",
        description="A prompt in both training and held-out data: refuse, drop it from training, "
        "or allow; counted in any case.",
    )

    @field_validator("path", "heldout_path", mode="before")
    @classmethod
    def _as_text(cls, path: Any) -> Any:
        """Accepts a `pathlib.Path`."""
        return str(path) if isinstance(path, PurePath) else path

    @field_validator("answer_pattern")
    @classmethod
    def _has_a_group(cls, pattern: str | None) -> str | None:
        """A regular expression with a group."""
        if pattern is not None:
            try:
                groups = re.compile(pattern).groups
            except re.error as error:
                raise ValueError(f"not a regular expression: {error}") from error
            if groups < 1:
                raise ValueError("no group in it; put the answer's part in parentheses")
        return pattern

    @model_validator(mode="after")
    def _one_heldout(self) -> DatasetSettings:
        if self.heldout_share is not None and (self.heldout_path or self.heldout_split):
            raise ValueError(
                "heldout_share is set together with heldout_path or heldout_split; keep one of them"
            )
        return self

    @property
    def where(self) -> str:
        """What messages call the environment."""
        return f"environment {self.environment_name!r}"

    def prepared(self, row: Row, seed: int) -> Row:
        """A row as its columns are mapped; data sets of a known shape derive columns here."""
        return row


def from_rows(settings: DatasetSettings, seed: int, verifiers: VerifierTables = ()) -> Environment:
    """The environment of the rows that the settings name.

    Raises RecipeError naming the column or row that cannot be used.
    """
    if not verifiers:
        raise RecipeError(
            f"{settings.where} needs a verifier; add [[environment.verifiers]] with, for instance, "
            'name = "number"'
        )
    _check_splits(settings)
    verifier = compose(verifiers)
    source = Source(settings.path, settings.config, settings.split, seed)
    train = _placed(read_rows(source, settings.limit), settings, verifier, seed)
    heldout = _placed(_heldout_rows(settings, seed), settings, verifier, seed)
    if settings.heldout_share is not None:
        train, heldout = _split(train, settings.heldout_share, seed)
    everything = [*train, *heldout]
    places, prompts = [each.where for each in everything], [each.prompt for each in everything]
    check_columns(verifier, prompts, settings.where, places)
    if settings.on_bad_answer == "drop":
        train, heldout = (_accepted(each, verifier) for each in (train, heldout))
    else:
        advice = '. Correct them, or set on_bad_answer = "drop"'
        check_answers(verifier, prompts, settings.where, places, settings.answer, advice)
    dropped = len(everything) - len(train) - len(heldout)
    if not train:
        raise RecipeError(
            f"{settings.where}: no training prompt is left; the verifier rejects all "
            f"{dropped} gold answers that were dropped"
        )
    facts: dict[str, object] = {"dropped_bad_answers": dropped}
    kept = keep_apart(train, heldout, settings.on_overlap, settings.where)
    facts["overlap"] = kept.overlap
    if settings.on_overlap == "drop":
        facts["dropped_overlap"] = len(kept.dropped)
        train = [each for place, each in enumerate(train) if place not in kept.dropped]
        if not train:
            raise RecipeError(
                f"{settings.where}: no training prompt is left; all {len(kept.dropped)} are also "
                'held out, and on_overlap = "drop" takes them out of training'
            )
    if settings.on_conflict == "refuse" and (conflicts := _conflicting([*train, *heldout], _asked)):
        raise RecipeError(
            f"{settings.where}: the same prompt has different gold answers: {first_of(conflicts)}. "
            'Correct them, or set on_conflict = "allow"'
        )
    for fact, side in (("duplicates", train), ("heldout_duplicates", heldout)):
        first = {each.prompt.id: each for each in reversed(side)}
        facts[fact] = len(side) - len(first)
        if settings.on_duplicate == "drop":
            side[:] = reversed(first.values())
    facts["conflicting_answers"] = len(_conflicting(train, normalised_text))
    facts["arguments"] = settings.model_dump(mode="json")
    unique, _ = with_unique_ids(each.prompt for each in chain(train, heldout))
    splits = {"train": unique[: len(train)], "heldout": unique[len(train) :]}
    made = Environment(settings.environment_name, verifier, splits, facts)
    made.on_overlap = settings.on_overlap
    made.places = {
        prompt.id: each.where for prompt, each in zip(unique, chain(train, heldout), strict=True)
    }
    return made


def _check_splits(settings: DatasetSettings) -> None:
    """`RecipeError` where a split or a configuration is named of a file, which has none."""
    for field, path in (
        ("config", settings.path),
        ("split", settings.path),
        ("heldout_split", settings.heldout_path or settings.path),
    ):
        value = getattr(settings, field)
        if value not in (None, "train") and is_file(path):
            advice = "configurations; leave config out"
            if field != "config":
                advice = "splits; name another file in heldout_path, or set heldout_share"
            raise RecipeError(
                f"environment.{field} = {value!r}: {path!r} is one file and has no {advice}"
            )


def _heldout_rows(settings: DatasetSettings, seed: int) -> list[Row]:
    """The rows of `heldout_path` or `heldout_split`; none where neither is set."""
    given = "heldout_path" if settings.heldout_path else "heldout_split"
    value = getattr(settings, given)
    if value is None:
        return []
    path, split = settings.heldout_path or settings.path, settings.heldout_split or settings.split
    if (path, split) == (settings.path, settings.split):
        raise RecipeError(
            f"environment.{given} = {value!r} is the training data itself; held-out rows differ"
        )
    field = "environment.heldout_path" if settings.heldout_path else "environment.path"
    return read_rows(Source(path, settings.config, split, seed, field))


def _placed(
    rows: Sequence[Row], settings: DatasetSettings, verifier: Verifier, seed: int
) -> list[Placed]:
    """The prompts of rows; `RecipeError` naming the first row that cannot be one."""
    for row in rows:
        check_values(row.values, row.where)
    prepared = (settings.prepared(row, seed) for row in rows)
    return [Placed(row.where, prompt_of(row, settings, verifier)) for row in prepared]


def _accepted(placed: list[Placed], verifier: Verifier) -> list[Placed]:
    """Those whose gold answer the verifier accepts."""
    reasons = verifier.check_answers([each.prompt for each in placed])
    return [each for each, reason in zip(placed, reasons, strict=True) if reason is None]


def _split(placed: list[Placed], share: float, seed: int) -> tuple[list[Placed], list[Placed]]:
    """A seeded share of the distinct prompts, with all their copies, held out."""
    texts = [normalised_text(each.prompt) for each in placed]
    order = sorted(set(texts), key=lambda text: (stream_key(seed, "data", "heldout", text), text))
    num = round(share * len(order))
    if len(order) == 1:
        raise RecipeError(
            f"environment.heldout_share = {share}: there is one prompt, which cannot be on both "
            "sides; give more rows"
        )
    if not 0 < num < len(order):
        raise RecipeError(
            f"environment.heldout_share = {share} of {len(order)} distinct prompts holds out "
            f"{num}; give a share that leaves at least one on each side, for instance "
            f"{max(1, len(order) // 5) / max(len(order), 2):.3g}"
        )
    held = set(order[:num])
    sides: tuple[list[Placed], list[Placed]] = ([], [])
    for each, text in zip(placed, texts, strict=True):
        sides[text in held].append(each)
    return sides


def _asked(prompt: Prompt) -> str:
    return prompt_id(prompt.messages, prompt.text)


def _conflicting(placed: Sequence[Placed], key: Callable[[Prompt], str]) -> list[str]:
    """The rows of each prompt that comes with more than one answer, for a message."""
    rows: dict[str, dict[str, str]] = {}
    for where, prompt in placed:
        answers = rows.setdefault(key(prompt), {})
        answers.setdefault(str(prompt.answer).strip(), where)
    return [
        " and ".join(f"{where} (answer {answer!r:.60})" for answer, where in answers.items())
        for answers in rows.values()
        if len(answers) > 1
    ]
