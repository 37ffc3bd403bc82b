"""The verifier of a mixture: every case goes to the verifier of the source its prompt is from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.types import Prompt, Score
from groupwise.verifiers import Case, Verifier, score_cases
from groupwise.verifiers.core.composition import VerifierGroup

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
        found: list[Score | None] = [None] * len(cases)
        for key, rows in _by_source([case.prompt for case in cases]).items():
            scores = score_cases(self.parts[key], [cases[row] for row in rows])
            for row, score in zip(rows, scores, strict=True):
                found[row] = score
        return found

    def check_answers(self, prompts: Sequence[Prompt]) -> list[str | None]:
        found: list[str | None] = [None] * len(prompts)
        for key, rows in _by_source(prompts).items():
            reasons = self.parts[key].check_answers([prompts[row] for row in rows])
            for row, reason in zip(rows, reasons, strict=True):
                found[row] = reason
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


def _by_source(prompts: Sequence[Prompt]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for row, prompt in enumerate(prompts):
        found.setdefault(source_of(prompt), []).append(row)
    return found
