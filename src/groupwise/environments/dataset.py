"""Prompts with answers from a file, a folder or a `datasets` name, checked before anything loads.

Columns are mapped by name, every other column reaches the verifiers. Rows that cannot be used are
refused with their place named; dropping them is opt-in and counted. Nothing is evaluated on
training rows: held-out prompts come from their own file or split, or from a seeded share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from groupwise.environments.base import Environment
from groupwise.environments.checks import (
    SHOWN,
    check_characters,
    check_columns,
    rejected_answers,
    rejected_message,
)
from groupwise.environments.identity import (
    normalised_text,
    overlapping,
    prompt_id,
    with_unique_ids,
)
from groupwise.environments.readers import Row, read_rows
from groupwise.errors import RecipeError
from groupwise.randomness import stream_key
from groupwise.types import Message, Prompt
from groupwise.verifiers import Verifier, VerifierSettings, compose
from groupwise.verifiers.names import validated

ROLES = ("system", "user", "assistant", "tool")
"""The roles a chat's messages may have."""


class DatasetSettings(BaseModel):
    """The arguments of `dataset`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    environment_name: ClassVar[str] = "dataset"

    path: str = Field(
        description="A .jsonl, .json, .csv, .tsv or .parquet file, a folder, or a `datasets` name."
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
        default=False,
        description="Wrap text prompts as one user message; without it they stay raw text.",
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
        description="One prompt, to the letter, with different gold answers: refuse, or allow.",
    )
    on_overlap: Literal["refuse", "drop", "allow"] = Field(
        default="refuse",
        description="A prompt in training and held-out data: refuse, drop it from training, or "
        "allow; counted in any case.",
    )

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

    @property
    def where(self) -> str:
        """What messages call the environment."""
        return f"environment {self.environment_name!r}"

    def prepared(self, row: Row, seed: int) -> Row:
        """A row as its columns are mapped; data sets of a known shape derive columns here."""
        return row


@dataclass(slots=True)
class _Task:
    """A prompt and the row it came from."""

    where: str
    prompt: Prompt


def make_dataset(
    arguments: Mapping[str, Any],
    seed: int,
    verifiers: Sequence[Mapping[str, Any] | VerifierSettings] = (),
) -> Environment:
    """The `dataset` environment; `RecipeError` naming column or row where the data will not do."""
    settings = validated(DatasetSettings, arguments, "environment 'dataset'")
    if not verifiers:
        raise RecipeError(
            f"{settings.where} needs a verifier; add [[environment.verifiers]] with, for instance, "
            'name = "number"'
        )
    return from_rows(settings, seed, verifiers)


def from_rows(
    settings: DatasetSettings,
    seed: int,
    verifiers: Sequence[Mapping[str, Any] | VerifierSettings],
) -> Environment:
    """The environment of the rows that the settings name; `RecipeError` as `make_dataset`."""
    verifier = compose(verifiers)
    rows = read_rows(settings.path, config=settings.config, split=settings.split)
    train = _tasks(rows[: settings.limit], settings, verifier, seed)
    heldout: list[_Task] = []
    if settings.heldout_path is not None or settings.heldout_split is not None:
        heldout = _tasks(_heldout_rows(settings), settings, verifier, seed)
    if settings.heldout_share is not None:
        if heldout:
            raise RecipeError(
                "environment.heldout_share is set together with heldout_path or heldout_split; "
                "keep one of them"
            )
        train, heldout = _split(train, settings.heldout_share, seed)
    return _checked(train, heldout, settings, verifier)


def _checked(
    train: list[_Task], heldout: list[_Task], settings: DatasetSettings, verifier: Verifier
) -> Environment:
    """Columns, gold answers, duplicates and overlap; then the environment with what was counted."""
    everything = [task.prompt for task in [*train, *heldout]]
    check_columns(verifier, everything, settings.where)
    num_rows = len(everything)
    train = _accepted(train, settings, verifier)
    heldout = _accepted(heldout, settings, verifier)
    dropped = num_rows - len(train) - len(heldout)
    overlap = overlapping((task.prompt for task in train), [task.prompt for task in heldout])
    if overlap:
        train = _without_overlap(train, heldout, overlap, settings)
    if settings.on_conflict == "refuse":
        _refuse_conflicts([*train, *heldout], settings)
    duplicates = len(train) - len({task.prompt.id for task in train})
    heldout_duplicates = len(heldout) - len({task.prompt.id for task in heldout})
    if settings.on_duplicate == "drop":
        train, heldout = (
            list({task.prompt.id: task for task in reversed(tasks)}.values())[::-1]
            for tasks in (train, heldout)
        )
    prompts, _ = with_unique_ids(task.prompt for task in [*train, *heldout])
    facts = {
        "duplicates": duplicates,
        "heldout_duplicates": heldout_duplicates,
        "conflicting_answers": _conflicting(train),
        "overlap": len(overlap),
        "dropped_bad_answers": dropped,
        "arguments": settings.model_dump(mode="json"),
    }
    splits = {"train": prompts[: len(train)], "heldout": prompts[len(train) :]}
    return Environment(settings.environment_name, verifier, splits, facts)


def _heldout_rows(settings: DatasetSettings) -> list[Row]:
    path = settings.heldout_path or settings.path
    field = "environment.heldout_path" if settings.heldout_path else "environment.heldout_split"
    split = settings.heldout_split or settings.split
    if (path, split) == (settings.path, settings.split):
        raise RecipeError(f"{field} = {path!r} is the training data itself; held-out rows differ")
    return read_rows(path, config=settings.config, split=split, field=field)


def _tasks(
    rows: Sequence[Row], settings: DatasetSettings, verifier: Verifier, seed: int
) -> list[_Task]:
    for row in rows:
        check_characters(row.values, row.where)
    prepared = (settings.prepared(row, seed) for row in rows)
    return [_Task(row.where, _prompt(row, settings, verifier)) for row in prepared]


def _prompt(row: Row, settings: DatasetSettings, verifier: Verifier) -> Prompt:
    if settings.template is not None:
        content: Any = _filled(settings.template, row)
    else:
        content = _column(row, settings.prompt, "environment.prompt")
    answer = None
    if settings.answer in row.values or verifier.needs_answer or settings.answer != "answer":
        answer = _answer(row, settings)
    columns = {name: value for name, value in row.values.items() if name != settings.prompt}
    messages: tuple[Message, ...] = ()
    text: str | None = None
    if isinstance(content, str) and content.strip():
        if settings.chat or settings.system:
            messages = ({"role": "user", "content": content},)
        else:
            text = content
    else:
        messages = _messages(content, row, settings)
    if settings.system and messages[0].get("role") != "system":
        messages = ({"role": "system", "content": settings.system}, *messages)
    return Prompt(prompt_id(messages, text, answer), messages, answer, text, columns)


def _messages(content: Any, row: Row, settings: DatasetSettings) -> tuple[Message, ...]:
    """A chat's messages; `RecipeError` where the value is neither a text nor a chat."""
    good = (
        isinstance(content, list)
        and content
        and all(isinstance(each, dict) and {"role", "content"} <= each.keys() for each in content)
    )
    if not good:
        raise RecipeError(
            f"{row.where}: column {settings.prompt!r} must be a text that is not empty, or a list "
            f"of messages with role and content; got {content!r:.80}"
        )
    for number, message in enumerate(content, start=1):
        if message["role"] not in ROLES:
            raise RecipeError(
                f"{row.where}: message {number} of column {settings.prompt!r} has the role "
                f"{message['role']!r}; legal: {', '.join(ROLES)}"
            )
    return tuple(dict(message) for message in content)


def _column(row: Row, name: str, field: str) -> Any:
    if name not in row.values:
        available = ", ".join(row.values) or "none"
        raise RecipeError(f"{field} = {name!r}: {row.where} has no such column; it has {available}")
    return row.values[name]


def _answer(row: Row, settings: DatasetSettings) -> Any:
    answer = _column(row, settings.answer, "environment.answer")
    if settings.answer_pattern is None or answer is None:
        return answer
    match = re.search(settings.answer_pattern, str(answer))
    return None if match is None else match.group(1).strip()


def _filled(template: str, row: Row) -> str:
    try:
        return template.format(**row.values)
    except (KeyError, IndexError, ValueError) as error:
        raise RecipeError(
            f"environment.template cannot be filled from {row.where} ({error!r}); columns are "
            f"{', '.join(row.values)}; a brace that stays is written twice"
        ) from error


def _accepted(tasks: list[_Task], settings: DatasetSettings, verifier: Verifier) -> list[_Task]:
    """The tasks whose gold answer the verifier accepts; refused or dropped otherwise."""
    rejected = rejected_answers(verifier, [task.prompt for task in tasks])
    if rejected and settings.on_bad_answer == "refuse":
        rows = [
            f"{tasks[position].where} (answer {_raw(tasks[position], settings)!r:.60}): {reason}"
            for position, reason in rejected
        ]
        raise RecipeError(
            f"{settings.where}: {rejected_message(rows)}. Correct them, or set "
            'on_bad_answer = "drop"'
        )
    bad = {position for position, _ in rejected}
    return [task for position, task in enumerate(tasks) if position not in bad]


def _raw(task: _Task, settings: DatasetSettings) -> Any:
    """The answer as its column has it, before `answer_pattern`."""
    return task.prompt.columns.get(settings.answer, task.prompt.answer)


def _without_overlap(
    train: list[_Task], heldout: list[_Task], overlap: list[Prompt], settings: DatasetSettings
) -> list[_Task]:
    if settings.on_overlap == "allow":
        return train
    texts = {normalised_text(prompt) for prompt in overlap}
    if settings.on_overlap == "drop":
        return [task for task in train if normalised_text(task.prompt) not in texts]
    rows = [task.where for task in heldout if normalised_text(task.prompt) in texts]
    shown = "; ".join(rows[:5]) + (f"; and {len(rows) - 5} more" if len(rows) > 5 else "")
    raise RecipeError(
        f"{settings.where}: {len(rows)} held-out prompts are also in the training data ({shown}); "
        'set on_overlap = "drop" to take them out of training, or "allow"'
    )


def _split(tasks: list[_Task], share: float, seed: int) -> tuple[list[_Task], list[_Task]]:
    """A seeded share of the distinct prompts, with all their copies, held out."""
    texts = {normalised_text(task.prompt) for task in tasks}
    order = sorted(texts, key=lambda text: (stream_key(seed, "data", "heldout", text), text))
    num = round(share * len(order))
    if not 0 < num < len(order):
        raise RecipeError(
            f"environment.heldout_share = {share} of {len(order)} distinct prompts holds out "
            f"{num}; give a share that leaves at least one on each side, for instance "
            f"{max(1, len(order) // 5) / max(len(order), 2):.3g}"
        )
    held = set(order[:num])
    train = [task for task in tasks if normalised_text(task.prompt) not in held]
    return train, [task for task in tasks if normalised_text(task.prompt) in held]


def _refuse_conflicts(tasks: Sequence[_Task], settings: DatasetSettings) -> None:
    """`RecipeError` naming the rows that ask the same to the letter and want another answer."""
    rows: dict[str, dict[str, str]] = {}
    for task in tasks:
        answers = rows.setdefault(prompt_id(task.prompt.messages, task.prompt.text), {})
        answers.setdefault(str(task.prompt.answer).strip(), task.where)
    conflicts = [
        " and ".join(f"{where} (answer {answer!r:.60})" for answer, where in answers.items())
        for answers in rows.values()
        if len(answers) > 1
    ]
    if conflicts:
        shown = "; ".join(conflicts[:SHOWN])
        more = f"; and {len(conflicts) - SHOWN} more" if len(conflicts) > SHOWN else ""
        raise RecipeError(
            f"{settings.where}: the same prompt has different gold answers: {shown}{more}. Correct "
            'them, or set on_conflict = "allow"'
        )


def _conflicting(tasks: Sequence[_Task]) -> int:
    """Distinct prompts that come with more than one answer."""
    answers: dict[str, set[str]] = {}
    for task in tasks:
        answers.setdefault(normalised_text(task.prompt), set()).add(repr(task.prompt.answer))
    return sum(len(each) > 1 for each in answers.values())
