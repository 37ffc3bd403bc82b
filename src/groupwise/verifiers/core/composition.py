"""Several verifiers as one: weights, gates, thresholds, a sum or a product.

The invariant a reader can rely on: a scored row's `value` is the sum (or product) of
weight x part over its non-None `parts`, so the parts are what decoupled normalisation needs. A part
is what counted: thresholded, and 0 where its gate was closed. Left out: what each one looks for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

from groupwise.errors import RecipeError, VerifierError
from groupwise.types import Outcome, Prompt, Score, StepReward
from groupwise.verifiers.core.contract import Case, OnError, Verifier, VerifierLogs, score_cases
from groupwise.verifiers.core.names import unknown_name
from groupwise.waiting.deadlines import BackgroundCall

Combine = Literal["sum", "product"]
_GATES = ("correct", "parsed")
_FAILED_TO_JUDGE = frozenset({"bad_answer", "verifier_timeout", "infrastructure_error"})


@dataclass(frozen=True, slots=True)
class Component:
    """One verifier within a composition. `gate` is `label`, `label:correct` or `label:parsed`.

    `deadline`: seconds for one batch (see `score_cases`); 0 is none.
    """

    verifier: Verifier
    weight: float = 1.0
    label: str = ""
    gate: str | None = None
    threshold: float | None = None
    on_error: OnError = "stop"
    deadline: float = 0.0

    @property
    def key(self) -> str:
        """Its name among the parts."""
        return self.label or self.verifier.name

    @property
    def gate_key(self) -> str | None:
        return None if self.gate is None else _split_gate(self.gate)[0]

    def table(self) -> dict[str, Any]:
        """Everything that changes its value, JSON-able."""
        return {
            "label": self.key,
            "name": self.verifier.name,
            "arguments": dict(self.verifier.arguments),
            "weight": self.weight,
            "gate": self.gate,
            "threshold": self.threshold,
            "on_error": self.on_error,
        }


class Composite(Verifier):
    """The weighted sum (or product) of components; each is kept as a named part.

    A component that does not apply to a row is left out of that row's sum. One that could not
    judge it (bad answer, verifier timeout, infrastructure error) leaves the whole row unscored,
    unless its weight is 0: a failure to judge is never a wrong answer. The outcome is that of the
    component with the largest weight among those that scored, `incorrect` where its gate is closed.
    A product has no negative factors: they would turn the sign of the others. Rewards of steps are
    weighted and gated like their component's value, and those that end at the same character are
    added.
    """

    def __init__(self, components: Sequence[Component], combine: Combine = "sum") -> None:
        """`RecipeError` where labels collide, a gate names no component, or nothing counts."""
        if combine not in get_args(Combine):
            raise unknown_name("way to combine verifiers", str(combine), get_args(Combine))
        if not components:
            raise RecipeError("a composition needs at least one verifier")
        keys = [component.key for component in components]
        for key in keys:
            if keys.count(key) > 1:
                raise RecipeError(
                    f"two verifiers are called {key!r}; give one of them a label of its own, "
                    f'for instance label = "{key}_2"'
                )
        for component in components:
            _check_gate(component, keys)
        if combine == "product" and any(component.weight < 0 for component in components):
            raise RecipeError(
                "a product of verifiers has a negative weight, which turns the sign of all of "
                'them; give weights above 0, or combine = "sum"'
            )
        if all(component.weight == 0 for component in components):
            raise RecipeError("every verifier has weight 0; give one of them weight = 1.0")
        self.components = tuple(components)
        self.combine = combine

    def combined(self, combine: Combine) -> Composite:
        """The same components, combined that way; `RecipeError` for any other than the two."""
        return Composite(self.components, combine)

    @property
    def name(self) -> str:
        return "+".join(component.key for component in self.components)

    @property
    def arguments(self) -> Mapping[str, Any]:
        tables = [component.table() for component in self.components]
        return {"combine": self.combine, "components": tables}

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the parts, in order."""
        return tuple(component.key for component in self.components)

    @property
    def weights(self) -> dict[str, float]:
        """Weight by part name."""
        return {component.key: component.weight for component in self.components}

    @property
    def required_columns(self) -> frozenset[str]:
        return frozenset().union(*(each.verifier.required_columns for each in self.components))

    @property
    def needs_answer(self) -> bool:
        return any(component.verifier.needs_answer for component in self.components)

    @property
    def waits(self) -> bool:
        return all(component.verifier.waits for component in self.components)

    @property
    def gives_steps(self) -> bool:
        return any(each.verifier.gives_steps for each in self.components if each.weight != 0)

    @property
    def judges_singly(self) -> bool:
        # With "skip", a batch in which every row fails stops the run: it has to be a whole step's.
        return all(
            each.verifier.judges_singly and each.on_error == "stop" for each in self.components
        )

    def score(self, cases: Sequence[Case]) -> list[Score]:
        return [self._total(row) for row in zip(*self._columns(cases))]

    def _columns(self, cases: Sequence[Case]) -> list[list[Score]]:
        """Each component's scores; those that wait for something do so beside the others."""

        def scores(component: Component) -> list[Score]:
            found = score_cases(
                component.verifier, cases, component.on_error, deadline=component.deadline
            )
            if component.threshold is None:
                return found
            return [_thresholded(score, component.threshold) for score in found]

        apart = len(self.components) > 1
        begun = {
            place: BackgroundCall(partial(scores, component))
            for place, component in enumerate(self.components)
            if apart and component.verifier.waits
        }
        here = {
            place: scores(component)
            for place, component in enumerate(self.components)
            if place not in begun
        }
        places = range(len(self.components))
        return [begun[place].result() if place in begun else here[place] for place in places]

    def _total(self, scores: Sequence[Score]) -> Score:
        by_key = {component.key: score for component, score in zip(self.components, scores)}
        parts: dict[str, float | None] = {}
        terms: list[float] = []
        for component, score in zip(self.components, scores):
            value = _counted(component, score, by_key)
            parts[component.key] = value
            if component.weight != 0 and value is not None:
                terms.append(component.weight * value)
        reason = "; ".join(
            f"{component.key}: {score.reason or score.outcome}"
            for component, score in zip(self.components, scores)
        )
        failed = self._failed(scores)
        if failed is not None or not terms:
            return Score(None, failed or "not_applicable", reason, parts)
        if self.combine == "product" and min(terms) < 0:
            raise VerifierError(
                f"a product of verifiers has a negative factor ({parts}): one turns the others' "
                "sign and two would earn; let each give 0 or more, or take the sum"
            )
        value = math.prod(terms) if self.combine == "product" else math.fsum(terms)
        steps = self._steps(scores, by_key)
        return Score(value, self._outcome(scores, by_key), reason, parts, steps)

    def _steps(
        self, scores: Sequence[Score], by_key: Mapping[str, Score]
    ) -> tuple[StepReward, ...] | None:
        values: dict[int, float] = {}
        given = [
            (component, score.steps)
            for component, score in zip(self.components, scores)
            if component.weight != 0 and score.steps is not None
        ]
        for component, steps in given:
            weight = component.weight if _gate_open(component, by_key) else 0.0
            for step in steps:
                values[step.end] = values.get(step.end, 0.0) + weight * step.value
        if not given:
            return None
        return tuple(StepReward(value, end) for end, value in sorted(values.items()))

    def _failed(self, scores: Sequence[Score]) -> Outcome | None:
        for component, score in zip(self.components, scores):
            if component.weight != 0 and score.outcome in _FAILED_TO_JUDGE:
                return score.outcome
        return None

    def _outcome(self, scores: Sequence[Score], by_key: Mapping[str, Score]) -> Outcome:
        scored = [pair for pair in zip(self.components, scores) if pair[1].value is not None]
        main, score = max(scored, key=lambda pair: abs(pair[0].weight))
        if score.outcome in ("correct", "partial") and _gate_open(main, by_key) is False:
            return "incorrect"
        return score.outcome

    def check_answers(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """The first component's objection to each prompt, named."""
        found: list[str | None] = [None] * len(prompts)
        for component in self.components:
            for row, reason in enumerate(component.verifier.check_answers(prompts)):
                if reason is not None and found[row] is None:
                    found[row] = f"{component.key}: {reason}"
        return found

    def gold_completion(self, prompt: Prompt) -> str | None:
        main = max(self.components, key=lambda component: abs(component.weight))
        return main.verifier.gold_completion(prompt)

    def warnings(self) -> list[str]:
        """Weights that let something else than correctness dominate, in words; for the plan.

        None for a product: there nothing earns where another part is 0, whatever the weights.
        """
        if self.combine == "product":
            return []
        counted = [component for component in self.components if component.weight != 0]
        main = max(counted, key=lambda component: abs(component.weight))
        rest = [c for c in counted if c is not main and c.gate_key != main.key]
        total = sum(abs(component.weight) for component in rest)
        if rest and total >= abs(main.weight):
            names = ", ".join(f"{component.key} ({component.weight:g})" for component in rest)
            return [
                f"verifiers {names} together weigh {total:g}, as much as {main.key} "
                f"({main.weight:g}) or more: a completion can earn more by them than by being "
                f"right; lower their weights or gate them on {main.key!r}"
            ]
        return []

    def begin_step(self, step: int) -> None:
        for component in self.components:
            component.verifier.begin_step(step)

    def take_logs(self) -> VerifierLogs:
        logs = VerifierLogs()
        for component in self.components:
            logs.add(component.verifier.take_logs())
        return logs

    def close(self) -> None:
        for component in self.components:
            component.verifier.close()


def main_part(verifier: Verifier) -> Verifier:
    """The verifier that matters most: of a composition the heaviest part, without its process."""
    while True:
        if isinstance(verifier, Composite):
            verifier = max(verifier.components, key=lambda each: abs(each.weight)).verifier
        elif isinstance(inner := getattr(verifier, "verifier", None), Verifier):
            verifier = inner
        else:
            return verifier


def _split_gate(gate: str) -> tuple[str, str]:
    label, colon, condition = gate.rpartition(":")
    if colon and condition in _GATES:
        return label, condition
    return gate, "correct"


def _check_gate(component: Component, keys: Sequence[str]) -> None:
    label = component.gate_key
    if label is None:
        return
    if label == component.key:
        raise RecipeError(f"verifier {component.key!r} is gated on itself; name another one")
    if label not in keys:
        raise unknown_name(f"gate of verifier {component.key!r}:", label, keys)


def _counted(component: Component, score: Score, by_key: Mapping[str, Score]) -> float | None:
    """The part's value: 0 behind a closed gate, None where it or its gate is None."""
    value = score.value
    if value is None:
        return None
    is_open = _gate_open(component, by_key)
    return None if is_open is None else value if is_open else 0.0


def _thresholded(score: Score, threshold: float) -> Score:
    """1 and correct at or above the threshold, 0 below; an unscored row stays one."""
    if score.value is None:
        return score
    if score.value >= threshold:
        return replace(score, value=1.0, outcome="correct")
    outcome = "incorrect" if score.outcome in ("correct", "partial") else score.outcome
    return replace(score, value=0.0, outcome=outcome)


def _gate_open(component: Component, by_key: Mapping[str, Score]) -> bool | None:
    """Whether the component counts; None where its gate has no verdict."""
    if component.gate is None:
        return True
    label, condition = _split_gate(component.gate)
    gate = by_key[label]
    if gate.value is None:
        return None
    return gate.outcome == "correct" if condition == "correct" else gate.outcome in _PARSED


_PARSED = frozenset({"correct", "incorrect", "partial"})
