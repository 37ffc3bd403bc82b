"""Two methods on one recipe: what each holds in memory, kind by kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from groupwise.planning.render import bytes_text, table
from groupwise.planning.run_plan import Plan

if TYPE_CHECKING:
    from rich.console import Console


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
        }

    def print(self, console: Console) -> None:
        """A table by kind, and the difference in a sentence."""
        kinds = [(name, _text(a), _text(b)) for name, a, b in self.rows]
        peaks = {f"peak while {kind}": f"peak_{kind}" for kind in ("sampling", "learning")}
        totals = [
            (label, *(_text(getattr(made.memory, kind)) for made in self.plans))
            for label, kind in (*peaks.items(), ("peak", "peak"))
        ]
        totals.append(("a checkpoint", *(_text(made.checkpoint_bytes) for made in self.plans)))
        title = f"memory: {self.first} and {self.second}"
        console.print(table(title, ("kind", self.first, self.second), (kinds, totals)))
        console.print(
            f"{self.first} needs {abs(self.saved):.0%} {'less' if self.saved >= 0 else 'more'} "
            f"memory at its peak than {self.second}"
        )


def _text(size: float) -> str:
    return bytes_text(size) if size else "-"
