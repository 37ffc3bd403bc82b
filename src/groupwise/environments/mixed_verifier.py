"""The verifier of a mixture: every case goes to the verifier of the source its prompt is from."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from groupwise.types import Prompt, Score
from groupwise.verifiers import Case, Verifier, score_cases
from groupwise.verifiers.core.composition import VerifierGroup

T = TypeVar("T")
SEPARATOR = "/"
"""Between a source's label and the prompt's id within it."""


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
