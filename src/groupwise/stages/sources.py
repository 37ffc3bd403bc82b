"""Data sources of the stages that fit examples: where rows are, and what becomes of bad ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from groupwise.environments.chat_messages import message_fault
from groupwise.environments.checks import check_values
from groupwise.environments.readers import Row, Source, read_rows
from groupwise.errors import RecipeError
from groupwise.randomness import stream_key
from groupwise.stages.stage import ROWS, CheckContext, Rows, StageContext
from groupwise.texts import counted, listed
from groupwise.training.process import kept_directory
from groupwise.types import Message

E = TypeVar("E")

SHOWN = 3
"""Bad rows that a message names."""


class RowData(BaseModel):
    """One source of rows with a prompt and what follows it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    takes: ClassVar[frozenset[Rows]] = frozenset({"chats"})
    """What it reads of a stage."""
    columns: ClassVar[tuple[str, ...]] = ("prompt",)
    """Its fields that name a column."""

    path: str | None = Field(
        None,
        min_length=1,
        description="A .jsonl, .json, .csv, .tsv or .parquet file, a folder, a `datasets` name, or "
        "`module:function`, a generator of rows (dicts).",
    )
    stage: str | None = Field(
        None, description="In place of path: the rows that another stage of the pipeline made."
    )
    config: str | None = Field(None, description="The configuration of a `datasets` name.")
    split: str = Field("train", description="The split of a `datasets` name or folder.")
    limit: int | None = Field(None, ge=1, description="Use the first so many rows.")
    repeat: int = Field(1, ge=1, description="How often the rows count in one epoch.")
    prompt: str = Field(
        "prompt", description="The column with a prompt (a text or messages), without a chat."
    )
    system: str | None = Field(None, description="A system message before every chat.")
    chat: bool = Field(
        True,
        description="Text prompts become a user message, which the model's chat template writes; "
        "false keeps them as raw text, for base models.",
    )
    on_bad_row: Literal["refuse", "drop"] = Field(
        "refuse",
        description="A row that cannot be learned from (no assistant's message, too long for the "
        "model): refuse, or drop and count it.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> RowData:
        if (self.path is None) == (self.stage is None):
            raise ValueError("data: give path (a file or data set) or stage (its rows), one of two")
        for name in ("config", "split", *self.columns) if self.stage is not None else ():
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(
                    f"data.{name} = {getattr(self, name)!r}: the rows of a stage have columns of "
                    "their own; leave it out, or give path"
                )
        return self

    def rows(self, folder: Path | None, seed: int) -> tuple[list[Row], str, str | None]:
        """The rows, their source in words, and a remark on what is missing among them.

        `folder` is the stage's, None for a path. Raises RecipeError.
        """
        if folder is None:
            source = Source(str(self.path), self.config, self.split, seed, "data.path")
        else:
            source = Source(str(folder / ROWS), field="data.stage")
        with kept_directory():
            return read_rows(source, self.limit), source.named, None

    def turns(self, prompt: Any, answer: Any, called: str = "") -> tuple[list[Message], int]:
        """The chat of a prompt and what follows it (the column `called`), texts or messages, and
        the number of the prompt's messages. Raises ValueError saying what is wrong."""
        before = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        after = [{"role": "assistant", "content": answer}] if isinstance(answer, str) else answer
        for what, value in ((self.prompt, before), (called, after)):
            if not isinstance(value, list | tuple):
                raise ValueError(f"has the {what} {value!r:.60}; give a text or messages")
        messages = self.messages_of([*before, *after])
        return messages, len(messages) - len(after)

    def messages_of(self, messages: Any) -> list[Message]:
        """A chat, checked, with the system message. Raises ValueError."""
        if not isinstance(messages, list | tuple) or not messages:
            raise ValueError(f"has the messages {messages!r:.60}; give a list of messages")
        for number, message in enumerate(messages, start=1):
            fault = message_fault(message)
            if fault is not None:
                raise ValueError(f"message {number} {fault}")
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*system, *messages]


def absent(values: Mapping[str, Any], name: str) -> str:
    """What is wrong with a row whose column is missing, null or empty."""
    if name not in values:
        return f"has no {name!r}; its columns are {', '.join(values)}"
    given = values[name]
    what = "null" if given is None else "empty" if given in ("", [], {}) else repr(given)[:40]
    return f"has no {name!r}: it is {what}; give a text or messages"


@dataclass(slots=True)
class Found(Generic[E]):
    """Examples of a source, and what was dropped, by reason."""

    examples: list[E] = field(default_factory=list[E])
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    rows: int = 0
    hash: str = ""
    """SHA-256 of the rows as they were read."""

    def warn(self, context: StageContext) -> None:
        for reason, number in self.dropped.items():
            context.warn(f"{number} of {self.rows} rows dropped: a row {reason}")


def examples_of(
    data: RowData, rows: Sequence[Row], named: str, make: Callable[[Row], Iterable[E]]
) -> Found[E]:
    """The examples that `make` makes of rows; it raises ValueError for one that is bad.

    Raises RecipeError naming rows that cannot be used, where they are not dropped.
    """
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row.values, sort_keys=True, default=str).encode())
    found, bad = Found[E](rows=len(rows), hash=digest.hexdigest()), list[str]()
    for row in rows:
        try:
            check_values(row.values, "the row")
            examples = list(make(row))
        except (ValueError, RecipeError) as error:
            bad.append(f"{row.where}: {error}")
            reason = str(error).partition(";")[0]
            found.dropped[reason] = found.dropped.get(reason, 0) + 1
            continue
        found.examples += examples * data.repeat
    if bad and data.on_bad_row == "refuse":
        more = f" (and {len(bad) - SHOWN} more)" if len(bad) > SHOWN else ""
        raise RecipeError(
            f"{named}: {'; '.join(bad[:SHOWN])}{more}. Correct the rows, or "
            'set on_bad_row = "drop" in that table of data'
        )
    if not found.examples:
        raise RecipeError(
            f"{named}: all {counted(len(rows), 'row was', 'rows were')} dropped: "
            f"{listed(found.dropped)}"
        )
    return found


def split_off(
    found: Iterable[Found[E]], share: float, seed: int, key: Callable[[E], bytes]
) -> tuple[list[E], list[E]]:
    """Training and held-out examples, by the seed and a key, so that examples with one key stay
    together. Raises RecipeError where one side is empty."""
    train, heldout = list[E](), list[E]()
    for example in (each for source in found for each in source.examples):
        place = stream_key(seed, "data", "heldout", key(example).hex())
        (heldout if place < share * 2.0**64 else train).append(example)
    if not train or (share and not heldout):
        raise RecipeError(
            f"heldout_share = {share} holds out {len(heldout)} of "
            f"{counted(len(train) + len(heldout), 'example')}; "
            "give a share that leaves at least one on each side"
        )
    return train, heldout


def check_sources(data: Sequence[RowData], context: CheckContext) -> None:
    """Raises RecipeError for a stage that makes no rows of the kind that is read."""
    for source in data:
        if source.stage is None:
            continue
        kind = context.kinds[source.stage]
        if not kind.makes & source.takes:
            made = f"makes {' and '.join(sorted(kind.makes))}" if kind.makes else "makes no rows"
            raise RecipeError(
                f"data.stage = {source.stage!r}: a stage of the kind {kind.kind!r} {made}, and "
                f"{' or '.join(sorted(source.takes))} are read here; name one that makes them"
            )


def count_guarded(context: StageContext, prompts: Sequence[tuple[int, ...]]) -> int:
    """How many examples have a prompt of the guard set; a warning says so."""
    seen = sum(each in context.guard_prompts for each in prompts)
    if seen:
        context.warn(
            f"{seen} of {len(prompts)} examples have a prompt of the guard set, whose figures "
            "may then be memory; leave these rows out, or give [guard] other prompts"
        )
    return seen


def source_list(value: Any) -> Any:
    """One table is a list of one. Raises ValueError for a text."""
    if isinstance(value, str) or (
        isinstance(value, list) and any(isinstance(e, str) for e in value)
    ):
        raise ValueError(f'is {value!r:.60}; give a table, as {{ path = "chats.jsonl" }}')
    return [value] if isinstance(value, Mapping) else value
