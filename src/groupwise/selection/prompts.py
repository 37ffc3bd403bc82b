"""Which prompt comes next: in epochs or by weight, from a pool, by a curriculum.

Everything is a function of (seed, what was sampled so far): nothing random is carried, so a resumed
run continues with the same prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from groupwise.environments import Cursor, Environment, PromptCursor
from groupwise.randomness import stream_key, uniforms
from groupwise.selection.curriculum import Curriculum
from groupwise.selection.history import History
from groupwise.selection.settings import PoolSettings, SelectionSettings
from groupwise.types import Group

Wanted = Callable[[str], bool]


class PromptPicker:
    """Chooses prompts, numbers their visits, and records how each went.

    A source is an order of prompts with a place in it: the environment's own, or with a curriculum
    one of the newest level and one of the levels below it.
    """

    def __init__(self, environment: Environment, settings: SelectionSettings, seed: int) -> None:
        """Raises RecipeError as `curriculum_of`."""
        self.settings = settings
        self.seed = seed
        self.history = History(settings.window)
        self.curriculum = curriculum_of(environment, settings)
        self.taken = 0
        self.index: dict[str, int] = {}
        self._ids = [prompt.id for prompt in environment.prompts()]
        self._sources: dict[str, Cursor] = {}
        if self.curriculum is None:
            self._sources["all"] = environment.cursor(seed)
        self._keys: dict[str, int] = {}

    def take(self, count: int, step: int, wanted: Wanted) -> list[tuple[str, int]]:
        """`count` prompt ids with the number of their visit, from 0.

        A prompt that `wanted` refuses or that is outside the pool is skipped. If none is left,
        prompts are taken in order, so that one that the policy has forgotten comes back.
        """
        eligible = self._eligible(step, wanted)
        names = [self._source_at(self.taken + place) for place in range(count)]
        pick = self._weighted if self.settings.order == "weighted" else self._in_order
        each = dict.fromkeys(names)  # in their order: a set's differs from process to process
        picked = {name: iter(pick(name, names.count(name), eligible)) for name in each}
        self.taken += count
        chosen = [next(picked[name]) for name in names]
        return [(each, self.history.next_visit(each, step)) for each in chosen]

    def see(self, groups: Sequence[Group]) -> None:
        """What was sampled, kept or not."""
        for group in groups:
            self.history.see(group)
            if self.curriculum is not None:
                self.curriculum.see(group)

    def source(self, name: str) -> Cursor:
        """The order of a source."""
        if name not in self._sources:
            self._sources[name] = PromptCursor(self._ids_of(name), self.seed)
        return self._sources[name]

    def _ids_of(self, name: str) -> list[str]:
        if self.curriculum is None:
            return self._ids
        return self.curriculum.passed() if name.startswith("below") else self.curriculum.newest()

    def _source_at(self, number: int) -> str:
        """The source of the run's `number`-th prompt."""
        if self.curriculum is None:
            return "all"
        where = "below" if self.curriculum.rehearses(number) else "level"
        return f"{where} {self.curriculum.name}"

    def _eligible(self, step: int, wanted: Wanted) -> Wanted:
        pool = self.settings.pool
        if pool is None:
            return wanted
        return lambda each: wanted(each) and in_pool(each, step, self.history, pool)

    def _in_order(self, name: str, count: int, eligible: Wanted) -> list[str]:
        """The next `count` of a source's epochs that may be sampled."""
        cursor = self.source(name)
        chosen: list[str] = []
        skipped = 0
        while len(chosen) < count:
            _, found = cursor.at(self.index.get(name, 0))
            self.index[name] = self.index.get(name, 0) + 1
            fits = eligible(found)
            if fits or skipped >= len(cursor):
                chosen.append(found)
            skipped = 0 if fits else skipped + 1
        return chosen

    def _weighted(self, name: str, count: int, eligible: Wanted) -> list[str]:
        """`count` draws by weight, none twice while others are left.

        The largest values of log(u)/w, u keyed by (seed, prompt, number of the draw), which is
        drawing one after the other without putting back (Efraimidis and Spirakis 2006).
        """
        ids = self._ids_of(name)
        allowed = [each for each in ids if eligible(each)] or ids
        weights = np.array([signal_weight(self.history.smoothed(each)) for each in allowed])
        weights = np.maximum(weights, self.settings.floor)
        keys = np.array([self._key(each) for each in allowed], dtype=np.uint64)
        chosen: list[str] = []
        number = self.taken
        while len(chosen) < count:
            draws = uniforms(keys, np.full(len(keys), number, dtype=np.int64)).astype(np.float64)
            race = np.log(np.maximum(draws, 2.0**-25)) / weights
            best = np.argsort(-race, kind="stable")[: count - len(chosen)]
            chosen.extend(allowed[place] for place in best.tolist())
            number += 1
        return chosen

    def _key(self, prompt_id: str) -> int:
        if prompt_id not in self._keys:
            self._keys[prompt_id] = stream_key(self.seed, "order", "weighted", prompt_id)
        return self._keys[prompt_id]

    def state_dict(self) -> dict[str, Any]:
        curriculum = None if self.curriculum is None else self.curriculum.state_dict()
        return {
            "taken": self.taken,
            "index": dict(self.index),
            "history": self.history.state_dict(),
            "curriculum": curriculum,
        }

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        self.taken = int(data["taken"])
        self.index = {str(name): int(index) for name, index in data["index"].items()}
        self.history.load_state_dict(data["history"])
        if self.curriculum is not None:
            self.curriculum.load_state_dict(data["curriculum"])


def curriculum_of(environment: Environment, settings: SelectionSettings) -> Curriculum | None:
    """The curriculum over an environment's prompts, None where there is none.

    Raises RecipeError for levels that the data does not have.
    """
    if settings.curriculum is None:
        return None
    return Curriculum(settings.curriculum, environment.prompts())


def in_pool(prompt_id: str, step: int, history: History, pool: PoolSettings) -> bool:
    """Whether a prompt's recent pass rate is within the bounds, is not known, or is due again."""
    rate = history.rate(prompt_id, pool.visits)
    if rate is None or pool.low <= rate <= pool.high:
        return True
    return pool.revisit > 0 and step - history[prompt_id].last_step >= pool.revisit


def signal_weight(rate: float) -> float:
    """4 p (1 - p): the variance of a right-or-wrong reward, 1 at its largest.

    >>> [round(signal_weight(p), 2) for p in (0.0, 0.1, 0.5, 0.9)]
    [0.0, 0.36, 1.0, 0.36]
    """
    return 4.0 * rate * (1.0 - rate)
