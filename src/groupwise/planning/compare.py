"""Two methods on one recipe: what each holds in memory, kind by kind, and what that is at 7B."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from groupwise.planning.memory import training_bytes
from groupwise.planning.render import bytes_text
from groupwise.planning.run_plan import Plan

if TYPE_CHECKING:
    from rich.console import Console

_SEVEN_BILLION = 7e9

SEVEN_BILLION: tuple[tuple[str, float], ...] = (
    ("group baseline, no reference", training_bytes(_SEVEN_BILLION)),
    ("group baseline, reference", training_bytes(_SEVEN_BILLION, reference=True)),
    ("PPO: critic, reference, verifier", 2 * training_bytes(_SEVEN_BILLION) + 2 * _SEVEN_BILLION),
    (
        "PPO: critic, reference, reward model",
        training_bytes(_SEVEN_BILLION, reference=True, critic=True),
    ),
)
"""Bytes of weights, gradients, moments and frozen copies at 7e9 parameters in mixed precision."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The plans of one recipe under two algorithms, by name."""

    first: str
    second: str
    plans: tuple[Plan, Plan]

    @property
    def rows(self) -> list[tuple[str, int, int]]:
        """(kind, bytes of the first, bytes of the second), 0 where one has none of it."""
        found: dict[str, list[int]] = {}
        for side, made in enumerate(self.plans):
            for name, size in made.memory.rows:
                found.setdefault(name, [0, 0])[side] = size
        return [(name, sizes[0], sizes[1]) for name, sizes in found.items()]

    @property
    def saved(self) -> float:
        """The share of the second's peak that the first does without."""
        return 1.0 - self.plans[0].memory.peak / self.plans[1].memory.peak

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-able values."""
        return {
            "algorithms": [self.first, self.second],
            "memory": {name: [a, b] for name, a, b in self.rows},
            "peak": [made.memory.peak for made in self.plans],
            "checkpoint_bytes": [made.checkpoint_bytes for made in self.plans],
            "saved": self.saved,
            "at_7b": dict(SEVEN_BILLION),
        }

    def print(self, console: Console) -> None:
        """Two tables: this recipe by kind, and 7B by method."""
        from rich.table import Table

        table = Table(title=f"memory: {self.first} and {self.second}", title_justify="left")
        table.add_column("kind")
        for name in (self.first, self.second):
            table.add_column(name, justify="right")
        for name, a, b in self.rows:
            table.add_row(name, _text(a), _text(b))
        table.add_section()
        for label, kind in (
            ("peak while sampling", "peak_sampling"),
            ("peak while learning", "peak_learning"),
            ("peak", "peak"),
        ):
            table.add_row(label, *(_text(getattr(made.memory, kind)) for made in self.plans))
        table.add_row("a checkpoint", *(_text(made.checkpoint_bytes) for made in self.plans))
        console.print(table)
        console.print(
            f"{self.first} needs {abs(self.saved):.0%} {'less' if self.saved >= 0 else 'more'} "
            f"memory at its peak than {self.second}"
        )
        large = Table(
            title="7B in mixed precision, 16 bytes a trained parameter, without activations",
            title_justify="left",
        )
        large.add_column("method")
        large.add_column("memory", justify="right")
        for label, size in SEVEN_BILLION:
            large.add_row(label, _text(size))
        console.print(large)


def _text(size: float) -> str:
    return bytes_text(size) if size else "-"
