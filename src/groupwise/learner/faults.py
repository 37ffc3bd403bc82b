"""What an update survives: memory that runs out in its pass, numbers that are not finite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from groupwise.errors import GroupwiseError, NonFiniteError
from groupwise.learner.settings import OptimizerSettings

Part = TypeVar("Part")
Result = TypeVar("Result")

_NO_MEMORY = ("can't allocate memory", "out of memory", "bad_alloc")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, as PyTorch says it on each device, or Python."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(each in str(error) for each in _NO_MEMORY)


@dataclass
class PassFaults:
    """The faults of one run's passes: it retries, skips, or raises, and counts.

    `micro_batch_tokens` is what is left of `training.micro_batch_tokens`, `in_a_row` the skipped
    updates since the last one that was made; both belong to a checkpoint. `notes` are (about,
    message), for the record.
    """

    settings: OptimizerSettings
    micro_batch_tokens: int = 0
    in_a_row: int = 0
    notes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def __post_init__(self) -> None:
        self.micro_batch_tokens = self.settings.micro_batch_tokens

    def within_memory(
        self,
        divide: Callable[[int], Sequence[Part]],
        attempt: Callable[[Sequence[Part]], Result],
        where: str,
    ) -> Result:
        """`attempt(divide(tokens))`; where memory runs out in it the tokens are halved, for the
        rest of the run, and it is called again. It must start from nothing each time.

        Raises GroupwiseError naming `where` once more parts do not help: one row is too large.
        """
        while True:
            parts = divide(self.micro_batch_tokens)
            try:
                return attempt(parts)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                reason = (str(error) or type(error).__name__).splitlines()[0]
            # Outside the handler: the error held the frames, and they the pass's activations.
            self._halve(divide, len(parts), where, reason)

    def _halve(
        self, divide: Callable[[int], Sequence[Part]], num_parts: int, where: str, reason: str
    ) -> None:
        tokens = self.micro_batch_tokens
        while tokens > 1:
            tokens //= 2
            if len(divide(tokens)) > num_parts:
                self.notes.append(
                    (
                        "memory",
                        f"{where}: memory ran out in a pass ({reason}); it is made again, and "
                        f"from now on micro-batches have at most {tokens} tokens in place of "
                        f"{self.micro_batch_tokens}. They only add up: the gradient is the same",
                    )
                )
                self.micro_batch_tokens = tokens
                return
        raise GroupwiseError(
            f"{where}: memory ran out in a pass whose micro-batches cannot be smaller: a single "
            f"row, or group that belongs together, does not fit ({reason}). Nothing was updated "
            "and the last checkpoint is intact. Free some memory, shorten the rows, or set "
            "model.gradient_checkpointing = true"
        )

    def skip(self, error: NonFiniteError) -> None:
        """Counts an update that is left out. Raises the error where `training.skip_nonfinite` is
        used up."""
        allowed = self.settings.skip_nonfinite
        if self.in_a_row >= allowed:
            if not allowed:
                raise error
            raise NonFiniteError(
                f"{error}. The {self.in_a_row} updates before it were skipped for the same cause, "
                f"and training.skip_nonfinite = {allowed}"
            ) from error
        self.in_a_row += 1
        what = str(error).partition(";")[0]
        self.notes.append(
            (
                "nonfinite",
                f"{what}: the update is skipped, weights and optimiser are untouched "
                f"({self.in_a_row} in a row; training.skip_nonfinite = {allowed})",
            )
        )

    def take_notes(self) -> list[tuple[str, str]]:
        """What there is to say since the last call."""
        notes, self.notes = self.notes, []
        return notes

    def state_dict(self) -> dict[str, int]:
        return {"micro_batch_tokens": self.micro_batch_tokens, "in_a_row": self.in_a_row}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave; nothing of it is in checkpoints of older versions."""
        self.micro_batch_tokens = state.get("micro_batch_tokens", self.micro_batch_tokens)
        self.in_a_row = state.get("in_a_row", 0)
