"""Several environments in one run: each with its own prompts, turns and verifier, mixed by weight.

Every visit goes to the source that is furthest behind its share, so any stretch of a run holds the
shares to within one prompt. Every source keeps its own order. Tools and limits belong to the
mixture as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from pydantic import Field

from groupwise.environments.base import Environment, Judged
from groupwise.environments.episode import Episode
from groupwise.environments.order import Cursor
from groupwise.environments.overlap import OnOverlap, asked
from groupwise.environments.settings import NamedEnvironment
from groupwise.errors import RecipeError
from groupwise.types import Prompt, Score
from groupwise.verifiers import Case, Verifier, score_cases
from groupwise.verifiers.core.composition import VerifierGroup
from groupwise.verifiers.core.names import Arguments

Load = Callable[..., Environment]
T = TypeVar("T")
SEPARATOR = "/"
"""Between a source's label and the prompt's id within it."""


class SourceSettings(NamedEnvironment):
    """One `[[environment.sources]]` entry."""

    label: str = Field(
        default="",
        pattern=r"^[\w.-]*$",
        description="What it is called in prompt ids, splits and metrics; default its name.",
    )
    weight: float = Field(
        default=1.0, gt=0, allow_inf_nan=False, description="Its share of the prompts, relative."
    )

    @property
    def key(self) -> str:
        return self.label or self.name.replace(":", ".")


class MixtureSettings(Arguments):
    """The arguments of `mixture`."""

    environment_name: ClassVar[str] = "mixture"

    sources: tuple[SourceSettings, ...] = Field(
        min_length=1, description="The environments, each a table with name, weight and arguments."
    )
    on_overlap: OnOverlap = Field(
        default="refuse",
        description="A held-out prompt of one source in the training data of another: "
        "refuse, drop it from training, or allow; counted in any case.",
    )


def mixed(
    settings: MixtureSettings, seed: int, verifiers: Sequence[Any], load: Load
) -> MixtureEnvironment:
    """The mixture of the sources, each loaded by `load`.

    Raises RecipeError naming the source that cannot be loaded.
    """
    if verifiers:
        raise RecipeError(
            "environment.verifiers are set beside environment.sources; give each source its own "
            "([[environment.sources.verifiers]])"
        )
    parts: dict[str, Environment] = {}
    for source in settings.sources:
        key = source.key
        if key in parts:
            raise RecipeError(
                f"two sources are called {key!r}; give one of them a label, for instance "
                f'label = "{key}_2"'
            )
        own = {"seed": seed, "verifiers": source.verifiers, "combine": source.combine}
        try:
            parts[key] = load(source.name, **own, **source.arguments)
        except RecipeError as error:
            for made in parts.values():
                made.close()
            raise RecipeError(f"source {key!r}: {error}") from error
    alone = next((key for key, part in parts.items() if part.player is not None), None)
    if alone is not None:
        for made in parts.values():
            made.close()
        raise RecipeError(
            f"source {alone!r} plays its rollouts by itself and cannot be mixed; make the mixture "
            "its environment.tasks"
        )
    return MixtureEnvironment(parts, settings)


class MixtureEnvironment(Environment):
    """The sources' prompts, their ids as `label/id`; held-out ones in a split for each source."""

    def __init__(self, parts: Mapping[str, Environment], settings: MixtureSettings) -> None:
        self.parts = dict(parts)
        self._weights = {source.key: source.weight for source in settings.sources}
        overlap = _kept_apart(self.parts, settings)
        splits: dict[str, list[Prompt]] = {"train": []}
        for key, part in self.parts.items():
            for split in part.splits:
                name = "train" if split == "train" else f"{split}_{key}"
                found = [_named(key, prompt) for prompt in part.prompts(split=split)]
                if found:
                    splits.setdefault(name, []).extend(found)
        total = sum(self._weights.values())
        facts: dict[str, Any] = {
            "shares": {key: weight / total for key, weight in self._weights.items()},
            "sources": {key: part.describe() for key, part in self.parts.items()},
            "overlap": overlap,
        }
        verifier = MixedVerifier({key: part.verifier for key, part in self.parts.items()})
        super().__init__("mixture", verifier, splits, facts)
        self.on_overlap = "allow"  # checked by each source and by these settings
        self.places = {
            f"{key}{SEPARATOR}{each}": where
            for key, part in self.parts.items()
            for each, where in part.places.items()
        }

    def cursor(self, seed: int) -> Cursor:
        return MixtureCursor(
            {key: part.cursor(seed) for key, part in self.parts.items()}, self._weights
        )

    def remove(self, ids: Collection[str], fact: str, split: str | None = None) -> None:
        """From the sources too, whose orders are the mixture's."""
        super().remove(ids, fact, split)
        for key, part in self.parts.items():
            own = [each.partition(SEPARATOR)[2] for each in ids if each.startswith(key + SEPARATOR)]
            if own:
                part.remove(own, fact, split)

    def start(self, prompt: Prompt) -> Episode:
        key, _, inner = prompt.id.partition(SEPARATOR)
        return self.parts[key].start(replace(prompt, id=inner))

    @property
    def _multi_turn(self) -> bool:
        return any(part._multi_turn for part in self.parts.values())

    def judged_for(self, prompt: Prompt) -> Judged:
        return self.parts[source_of(prompt)].judged_for(prompt)

    def set_judged(self, judged: Judged) -> None:
        for part in self.parts.values():
            part.set_judged(judged)

    @property
    def notes(self) -> list[str]:
        inner = [f"{key}: {note}" for key, part in self.parts.items() for note in part.notes]
        return [*super().notes, *inner]

    def close(self) -> None:
        super().close()
        for part in self.parts.values():
            part.close()


class MixtureCursor:
    """Each visit goes to the source with the largest `weight share * (visits + 1) - its visits`.

    >>> from groupwise.environments.order import PromptCursor
    >>> parts = {"a": PromptCursor(["x"], 0), "b": PromptCursor(["y"], 0)}
    >>> cursor = MixtureCursor(parts, {"a": 3.0, "b": 1.0})
    >>> [cursor.at(index)[1] for index in range(8)]
    ['a/x', 'a/x', 'b/y', 'a/x', 'a/x', 'a/x', 'b/y', 'a/x']
    """

    def __init__(self, parts: Mapping[str, Cursor], weights: Mapping[str, float]) -> None:
        self._parts = dict(parts)
        total = sum(weights.values())
        self._shares = {key: weights[key] / total for key in self._parts}
        self._visits: list[tuple[str, int]] = []
        self._counts = dict.fromkeys(self._parts, 0)

    def __len__(self) -> int:
        """All sources' prompts."""
        return sum(len(part) for part in self._parts.values())

    def at(self, index: int) -> tuple[int, str]:
        """The source's epoch, and the prompt's id."""
        while len(self._visits) <= index:
            behind = {
                key: share * (len(self._visits) + 1) - self._counts[key]
                for key, share in self._shares.items()
            }
            key = max(behind, key=behind.__getitem__)
            self._visits.append((key, self._counts[key]))
            self._counts[key] += 1
        key, place = self._visits[index]
        epoch, found = self._parts[key].at(place)
        return epoch, f"{key}{SEPARATOR}{found}"


class MixedVerifier(VerifierGroup):
    """Scores keep their order. A source's verifier sees its own cases only, all of a call at once.

    Its name is `mixed`; parts of the scores keep the names that the sources give them.
    """

    def __init__(self, parts: Mapping[str, Verifier]) -> None:
        self.parts = dict(parts)

    @property
    def name(self) -> str:
        return "mixed"

    @property
    def arguments(self) -> Mapping[str, Any]:
        return {key: json.loads(part.signature()) for key, part in self.parts.items()}

    @property
    def members(self) -> Sequence[Verifier]:
        return tuple(self.parts.values())

    @property
    def gives_steps(self) -> bool:
        return all(part.gives_steps for part in self.parts.values())

    @property
    def judges_singly(self) -> bool:
        return all(part.judges_singly for part in self.parts.values())

    def score(self, cases: Sequence[Case]) -> list[Score | None]:
        return self._by_source([case.prompt for case in cases], cases, score_cases)

    def check_answers(self, prompts: Sequence[Prompt]) -> list[str | None]:
        return self._by_source(prompts, prompts, lambda part, own: part.check_answers(own))

    def _by_source(
        self, prompts: Sequence[Prompt], items: Sequence[T], do: Callable[[Verifier, list[T]], Any]
    ) -> list[Any]:
        """What `do` gives for each source's items, back in their order."""
        places: dict[str, list[int]] = {}
        for place, prompt in enumerate(prompts):
            places.setdefault(source_of(prompt), []).append(place)
        found: list[Any] = [None] * len(items)
        for key, own in places.items():
            results = do(self.parts[key], [items[place] for place in own])
            for place, each in zip(own, results, strict=True):
                found[place] = each
        return found

    def gold_completion(self, prompt: Prompt) -> str | None:
        return self.parts[source_of(prompt)].gold_completion(prompt)

    def warnings(self) -> list[str]:
        """What the sources' verifiers warn of."""
        found = []
        for key, part in self.parts.items():
            warnings = getattr(part, "warnings", None)
            each = warnings() if callable(warnings) else list(warnings or ())
            found += [f"{key}: {warning}" for warning in each]
        return found


def source_of(prompt: Prompt) -> str:
    """The label of the source that a prompt of a mixture is from."""
    return prompt.id.partition(SEPARATOR)[0]


def _named(key: str, prompt: Prompt) -> Prompt:
    return replace(prompt, id=f"{key}{SEPARATOR}{prompt.id}")


def _kept_apart(parts: Mapping[str, Environment], settings: MixtureSettings) -> int:
    """Keeps every source's held-out prompts out of the others' training data, and counts them."""
    num = 0
    for key, part in parts.items():
        held = [each for split in part.splits if split != "train" for each in part.placed(split)]
        for other, source in parts.items():
            if other != key:
                where = f"environment 'mixture', sources {key!r} and {other!r}"
                num += source.keep_out(held, settings.on_overlap, where, asked)
    return num
