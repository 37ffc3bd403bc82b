"""The recipe's `[selection]` table: which prompts are sampled, and which rollouts get a gradient.

Everything is off by default. Dynamic sampling and other filters belong to the algorithm
(`algorithm.filters`).
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class PoolSettings(_Table):
    """`[selection.pool]`: only prompts whose recent pass rate is within bounds are sampled."""

    low: float = Field(
        0.0, ge=0, le=1, description="Prompts that are passed less often than this are left out."
    )
    high: float = Field(
        1.0, ge=0, le=1, description="Prompts that are passed more often than this are left out."
    )
    visits: int = Field(
        1, ge=1, description="A prompt is judged after so many visits within selection.window."
    )
    revisit: int = Field(
        50,
        ge=0,
        description="Steps after which a prompt that is left out is tried again; 0 = never.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> PoolSettings:
        if self.low > self.high:
            raise ValueError(
                f"low = {self.low} is above high = {self.high}; for example low = 0.1, high = 0.9"
            )
        return self


class CurriculumSettings(_Table):
    """`[selection.curriculum]`: levels in order, the next one opened by accuracy."""

    column: str = Field("level", description="The prompts' column that holds the level.")
    levels: tuple[str | int, ...] = Field(
        min_length=2, description="The levels in order, for example ['easy', 'medium', 'hard']."
    )
    promote_at: float = Field(
        0.8, gt=0, le=1, description="Mean accuracy on the newest level that opens the next."
    )
    window: int = Field(
        64, ge=1, description="The newest level's last groups, which that mean is over."
    )
    rehearse: float = Field(
        0.2, ge=0, lt=1, description="Share of the prompts that come from the levels passed."
    )

    @model_validator(mode="after")
    def _each_once(self) -> CurriculumSettings:
        if len(set(self.levels)) != len(self.levels):
            raise ValueError(f"levels = {list(self.levels)} names one twice; name each once")
        return self


class SizeSettings(_Table):
    """`[selection.sizes]`: a group size for each prompt, within one budget of tokens a step."""

    low: int = Field(4, ge=2, description="Smallest group.")
    high: int = Field(32, ge=2, description="Largest group.")
    tokens: int | None = Field(
        None,
        ge=1,
        description="Expected completion tokens that one sampling of prompts_per_step prompts may "
        "cost; unset = what groups of sampling.group_size would.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> SizeSettings:
        if self.low > self.high:
            raise ValueError(f"low = {self.low} is above high = {self.high}; lower low")
        return self


class LengthSettings(_Table):
    """`[selection.length]`: `max_tokens` grows to `sampling.max_tokens`."""

    start: int = Field(ge=1, description="max_tokens before the first optimiser update.")
    updates: int = Field(
        ge=1, description="Optimiser updates after which sampling.max_tokens is reached, linearly."
    )


class ReplaySettings(_Table):
    """`[selection.replay]`: groups with rare successes are learned from again."""

    at_most: float = Field(
        0.25,
        gt=0,
        lt=1,
        description="A group is kept for replay where its accuracy is above 0 and at most this.",
    )
    capacity: int = Field(64, ge=1, description="Groups kept; the oldest makes room.")
    per_step: int = Field(1, ge=1, description="Replayed groups that join a step at most.")
    uses: int = Field(2, ge=1, description="How often one group is replayed at most.")
    max_staleness: int = Field(
        8, ge=1, description="Steps since it was sampled after which a group is dropped."
    )


class SelectionSettings(_Table):
    """The `[selection]` table."""

    order: Literal["epochs", "weighted"] = Field(
        "epochs",
        description="epochs: every prompt once before any twice. weighted: drawn by expected "
        "signal, 4 p (1 - p) of the smoothed recent pass rate p.",
    )
    floor: float = Field(
        0.05, gt=0, le=1, description="order = weighted: the least weight of a prompt (most: 1)."
    )
    window: int = Field(
        8, ge=1, description="Visits of a prompt that its recent pass rate looks back on."
    )
    pool: PoolSettings | None = Field(None, description="Bounds on the recent pass rate.")
    curriculum: CurriculumSettings | None = Field(None, description="Levels opened in order.")
    sizes: SizeSettings | None = Field(None, description="A group size for each prompt.")
    train_on: int | None = Field(
        None,
        ge=2,
        description="Completions of a group that are learned from: those with the largest variance "
        "of rewards; unset = all.",
    )
    length: LengthSettings | None = Field(None, description="A schedule for max_tokens.")
    replay: ReplaySettings | None = Field(None, description="Rare successes, learned from again.")
    no_signal_alarm: float = Field(
        0.6,
        gt=0,
        le=1,
        description="A warning is written where the share of sampled groups without signal is at "
        "least this over 10 steps.",
    )

    @model_validator(mode="after")
    def _groups_are_whole(self) -> SelectionSettings:
        if self.train_on is not None and self.sizes is not None and self.train_on > self.sizes.low:
            raise ValueError(
                f"train_on = {self.train_on} is above sizes.low = {self.sizes.low}: the smallest "
                "groups would lack completions; give at most sizes.low"
            )
        return self

    def to_table(self) -> dict[str, Any]:
        """What is set, JSON-able."""
        return self.model_dump(mode="json", exclude_none=True)


def max_tokens_at(update: int, length: LengthSettings | None, final: int) -> int:
    """The limit on a completion's tokens after so many optimiser updates.

    start + (final - start) * update / updates, rounded, then final: a function of the count of
    updates alone, so refills and skipped steps do not move it and a resumed run has the same.

    >>> length = LengthSettings(start=16, updates=8)
    >>> [max_tokens_at(update, length, 32) for update in (0, 1, 4, 8, 100)]
    [16, 18, 24, 32, 32]
    """
    if length is None or update >= length.updates:
        return final
    return round(length.start + (final - length.start) * update / length.updates)
