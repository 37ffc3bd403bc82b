"""What a stage that fits fixed examples gives: its settings, and a loss that is a sum over them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from pydantic import Field, model_validator
from torch import Tensor

from groupwise.errors import RecipeError
from groupwise.learner import OptimizerSettings
from groupwise.policies import Policy

E_contra = TypeVar("E_contra", contravariant=True)


class FittingSettings(OptimizerSettings):
    """The `[training]` table of a stage that fits fixed examples; one step is one update."""

    learning_rate: float = Field(2e-5, gt=0, description="Peak learning rate.")
    examples_per_step: int = Field(16, ge=1, description="Examples of one optimiser update.")
    epochs: float | None = Field(
        None,
        gt=0,
        description="How often the examples are learned from: once, without this and `steps`.",
    )
    steps: int | None = Field(None, ge=0, description="Updates, in place of epochs.")
    evaluate_every: int = Field(
        0,
        ge=0,
        description="Steps between evaluations of the loss on the held-out examples; 0 = only "
        "before the first and after the last step.",
    )
    patience: int | None = Field(
        None,
        ge=1,
        description="Stop after so many evaluations in a row without a lower loss on the held-out "
        "examples, and keep the weights with the lowest one. Never stops early if left out.",
    )
    min_improvement: float = Field(
        0.0, ge=0, description="By how much the loss must fall to count as lower."
    )

    @model_validator(mode="after")
    def _one_length(self) -> FittingSettings:
        if self.steps is not None and self.epochs is not None:
            raise ValueError(
                f"training.steps = {self.steps} and training.epochs = {self.epochs:g} both say how "
                "long the stage is; give one of the two"
            )
        return self

    def total_steps(self, num_examples: int) -> int:
        """Updates of the whole stage."""
        if self.steps is not None:
            return self.steps
        return math.ceil(self.num_passes * num_examples / self.examples_per_step)

    @property
    def num_passes(self) -> float:
        """Epochs of a stage without `steps`."""
        return 1.0 if self.epochs is None else self.epochs

    def check(self, num_heldout: int | None, num_examples: int | None = None) -> None:
        """Raises RecipeError where fields contradict each other; None = not known yet."""
        total = self.steps if num_examples is None else self.total_steps(num_examples)
        if self.schedule_updates is not None and self.schedule_updates < (total or 0):
            raise RecipeError(
                f"training.schedule_updates = {self.schedule_updates}: the stage has {total} "
                f"updates, and those after the schedule's end would have the rate 0; give {total} "
                "or more"
            )
        if num_heldout != 0:
            if self.patience is not None and not self.evaluate_every:
                raise RecipeError(
                    f"training.patience = {self.patience}: the loss is evaluated after the last "
                    "step alone; set training.evaluate_every, for example to 20"
                )
            return
        for name in ("patience", "evaluate_every"):
            if getattr(self, name):
                raise RecipeError(
                    f"training.{name} = {getattr(self, name)}: no example is held out, so there is "
                    "no loss to watch; set heldout_share, for example to 0.1"
                )


class Objective(Protocol[E_contra]):
    """A loss over examples: sum of `sum_loss` divided by the sum of `count`, over an update."""

    def count(self, example: E_contra) -> float:
        """What the loss is divided by, one example's share: its trained tokens, or 1."""
        ...

    def trained(self, example: E_contra) -> int:
        """Tokens that the loss is of, for the record."""
        ...

    def size(self, example: E_contra) -> int:
        """Tokens that a pass runs over, for the micro-batch budget."""
        ...

    def digest(self, example: E_contra) -> bytes:
        """What identifies the example: its ids and masks, for the data's hash."""
        ...

    def sum_loss(
        self, policy: Policy, examples: Sequence[E_contra]
    ) -> tuple[Tensor, Mapping[str, float]]:
        """The undivided loss of a micro-batch, a scalar with gradient, and sums to be recorded as
        `fit/<name>`, divided as the loss is."""
        ...


def micro_batches(sizes: Sequence[int], budget: int, *, padded: bool) -> list[list[int]]:
    """Indices in parts of at most `budget` tokens, the longest first; a longer one is alone.

    `padded`: every example of a part counts as long as the longest.

    >>> micro_batches([3, 9, 2, 4], 7, padded=False), micro_batches([3, 2, 2], 6, padded=True)
    ([[1], [3, 0], [2]], [[0, 1], [2]])
    """
    parts: list[list[int]] = []
    room = 0
    for index in sorted(range(len(sizes)), key=lambda each: (-sizes[each], each)):
        taken = sizes[parts[-1][0]] if parts and padded else sizes[index]
        if not parts or taken > room:
            parts.append([])
            room, taken = budget, sizes[index]
        parts[-1].append(index)
        room -= taken
    return parts
