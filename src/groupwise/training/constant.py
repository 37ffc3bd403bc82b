"""Notices a verifier that says the same about every completion, step after step.

Such a part of the reward teaches nothing; a format that no completion can have (its opening tag
stands in the prompt, say) looks just like that. Left out: groups without signal (a metric).
"""

from __future__ import annotations

from collections.abc import Sequence

from groupwise.types import Group

STEPS = 20
"""After so many steps with one value a warning is due."""


class ConstantWatch:
    """Counts, per verifier, the steps in a row whose every value was the same."""

    def __init__(self, steps: int = STEPS) -> None:
        self._steps = steps
        self._runs: dict[str, tuple[float, int]] = {}

    def see(self, groups: Sequence[Group]) -> list[str]:
        """The warnings due after a step's groups, each once for as long as the value stays."""
        values: dict[str, set[float]] = {}
        for group in groups:
            for rollout in group.rollouts:
                for name, value in rollout.score.parts.items():
                    if value is not None:
                        values.setdefault(name, set()).add(value)
        found = []
        for name, seen in values.items():
            value = next(iter(seen))
            last, count = self._runs.get(name, (value, 0))
            count = count + 1 if len(seen) == 1 and last == value else int(len(seen) == 1)
            self._runs[name] = (value, count)
            if count == self._steps:
                found.append(
                    f"verifier {name!r} gave {value:g} to every completion of the last "
                    f"{count} steps, so it teaches nothing; read some completions and its reasons"
                )
        return found
