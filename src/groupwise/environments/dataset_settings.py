"""The arguments of `dataset`, which data sets of a known shape (shapes.py) refine. No behaviour."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from groupwise.environments.overlap import OnOverlap
from groupwise.environments.readers import Row
from groupwise.verifiers.core.names import Arguments


class DatasetSettings(Arguments):
    """The arguments of `dataset`."""

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
        description="A prompt in both training and held-out data, exactly or nearly: refuse, drop "
        "it from training, or allow; counted in any case.",
    )
    near_overlap: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="From which share of a held-out prompt's words, in runs of 8 that a training "
        "prompt has too, it counts as nearly the same; 0 looks for equal prompts alone.",
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
