"""A curriculum: levels in order, the next one opened once the newest is answered well enough."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.errors import RecipeError
from groupwise.selection.history import mean_accuracy
from groupwise.selection.settings import CurriculumSettings
from groupwise.types import Group, Prompt


class Curriculum:
    """Which levels are open. A step's prompts come from the newest one, a share from those before.

    The next level opens when the mean accuracy of the newest level's last `window` groups (sampled
    since it opened, kept or not) is `promote_at` or more.
    """

    def __init__(self, settings: CurriculumSettings, prompts: Sequence[Prompt]) -> None:
        """Raises RecipeError where a prompt has no level, an unknown one, or a level no prompt."""
        self.settings = settings
        self.level = 0
        self._recent: deque[float] = deque(maxlen=settings.window)
        self._level_of = {prompt.id: _place(prompt, settings) for prompt in prompts}
        present = set(self._level_of.values())
        missing = [str(name) for n, name in enumerate(settings.levels) if n not in present]
        if missing:
            raise RecipeError(
                f"selection.curriculum.levels names {', '.join(missing)}, which no training "
                f"prompt has in its column {settings.column!r}; leave them out, or add prompts"
            )

    @property
    def name(self) -> str:
        """The newest open level."""
        return str(self.settings.levels[self.level])

    def newest(self) -> list[str]:
        """Ids of the newest level."""
        return [each for each, place in self._level_of.items() if place == self.level]

    def passed(self) -> list[str]:
        """Ids of the levels before it."""
        return [each for each, place in self._level_of.items() if place < self.level]

    def rehearses(self, number: int) -> bool:
        """Whether the run's `number`-th prompt is from a level passed: an even spread of the share.

        >>> share = 0.25
        >>> [int((n + 1) * share) > int(n * share) for n in range(8)]
        [False, False, False, True, False, False, False, True]
        """
        share = self.settings.rehearse if self.level else 0.0
        return int((number + 1) * share) > int(number * share)

    def see(self, group: Group) -> None:
        """A sampled group; those of other levels than the newest do not count."""
        if self._level_of[group.prompt.id] != self.level:
            return
        accuracy = mean_accuracy(group)
        if accuracy is not None:
            self._recent.append(accuracy)

    def promote(self) -> bool:
        """Open the next level if the newest is answered well enough; True where it opened."""
        if len(self._recent) < self.settings.window or self.level + 1 == len(self.settings.levels):
            return False
        if sum(self._recent) / len(self._recent) < self.settings.promote_at:
            return False
        self.level += 1
        self._recent.clear()
        return True

    def state_dict(self) -> dict[str, Any]:
        return {"level": self.level, "recent": list(self._recent)}

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        self.level = int(data["level"])
        self._recent = deque(map(float, data["recent"]), maxlen=self.settings.window)


def _place(prompt: Prompt, settings: CurriculumSettings) -> int:
    """The place of a prompt's level. Raises RecipeError."""
    level = prompt.columns.get(settings.column)
    if level in settings.levels:
        return settings.levels.index(level)
    names = [str(name) for name in settings.levels]
    if isinstance(level, str | int) and names.count(str(level)) == 1:  # CSV knows texts alone
        return names.index(str(level))
    raise RecipeError(
        f"prompt {prompt.id!r} has the level {level!r} in its column {settings.column!r}, which "
        f"selection.curriculum.levels = {list(settings.levels)} does not name; name every level of "
        "the data, or another column"
    )
