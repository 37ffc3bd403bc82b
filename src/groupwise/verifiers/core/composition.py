"""Several verifiers as one: weights, gates, thresholds, a sum or a product.

A scored row's `value` is the sum (or product) of weight x part over its `parts` that are not None,
so the parts are what decoupled normalisation needs. A part is what counted: thresholded, and 0
behind a closed gate. What a part is made of (`rubric/clear`) stands beside it and is only reported.
"""

from __future__ import annotations

import math
import threading
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

from groupwise.errors import RecipeError, VerifierError
from groupwise.suggestions import unknown
from groupwise.types import Outcome, Prompt, Score, StepReward
from groupwise.verifiers.core.contract import Case, OnError, Verifier, VerifierLogs, score_cases
from groupwise.verifiers.core.names import unknown_name
from groupwise.waiting.deadlines import BackgroundCall

Combine = Literal["sum", "product"]
_IN_TURN = threading.RLock()
"""Held while parts that do not wait judge: they need not be thread-safe."""
_PARSED = frozenset({"correct", "incorrect", "partial", "no_verdict"})
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
    correct_from: float | None = None
    on_error: OnError = "stop"
    deadline: float = 0.0

    @property
    def key(self) -> str:
        """Its name among the parts."""
        return self.label or self.verifier.name

    @property
    def gate_key(self) -> str:
        """The component that its gate reads; empty without a gate."""
        return (self.gate or "").removesuffix(":correct").removesuffix(":parsed")

    @property
    def gives_verdicts(self) -> bool:
        bound = self.threshold if self.correct_from is None else self.correct_from
        return bound is not None or self.verifier.gives_verdicts

    def scores(self, cases: Sequence[Case]) -> list[Score]:
        """Its scores; with a threshold, 1 and correct at or above it, 0 below; `correct_from`
        does the same to the outcome alone."""
        found = score_cases(self.verifier, cases, self.on_error, deadline=self.deadline)
        if self.correct_from is not None:
            found = [_judged(score, self.correct_from) for score in found]
        if self.threshold is None:
            return found
        found = [_judged(score, self.threshold) for score in found]
        ones = [float(score.outcome == "correct") for score in found]
        return [s if s.value is None else replace(s, value=one) for s, one in zip(found, ones)]

    def is_open(self, by_key: Mapping[str, Score]) -> bool | None:
        """Whether its gate is open; None if the gate has no verdict."""
        if self.gate is None:
            return True
        gate = by_key[self.gate_key]
        if gate.value is None:
            return None
        parsed = self.gate.endswith(":parsed")
        return gate.outcome in _PARSED if parsed else gate.outcome == "correct"

    def counted(self, by_key: Mapping[str, Score]) -> float | None:
        """The part's value: 0 behind a closed gate, None if it or its gate has none."""
        value, is_open = by_key[self.key].value, self.is_open(by_key)
        return None if value is None or is_open is None else value if is_open else 0.0


class VerifierGroup(Verifier):
    """A verifier made of others: what it needs, logs and ends is theirs together.

    Gold answers are the first member's.
    """

    @property
    @abstractmethod
    def members(self) -> Sequence[Verifier]:
        """The verifiers that it is made of."""

    @property
    def name(self) -> str:
        return "+".join(each.name for each in self.members)

    @property
    def required_columns(self) -> frozenset[str]:
        return frozenset().union(*(each.required_columns for each in self.members))

    @property
    def needs_answer(self) -> bool:
        return any(each.needs_answer for each in self.members)

    @property
    def gives_steps(self) -> bool:
        return all(each.gives_steps for each in self.members)

    @property
    def gives_verdicts(self) -> bool:
        return all(each.gives_verdicts for each in self.members)

    def gold_completion(self, prompt: Prompt) -> str | None:
        return self.members[0].gold_completion(prompt)

    def check_answers(self, prompts: Sequence[Prompt]) -> list[str | None]:
        return self.members[0].check_answers(prompts)

    @property
    def waits(self) -> bool:
        return all(each.waits for each in self.members)

    def begin_step(self, step: int) -> None:
        for each in self.members:
            each.begin_step(step)

    def take_logs(self) -> VerifierLogs:
        logs = VerifierLogs()
        for each in self.members:
            logs.add(each.take_logs())
        return logs

    def close(self) -> None:
        for each in self.members:
            each.close()


class Composite(VerifierGroup):
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
        """`RecipeError` if labels collide, a gate names no component, or nothing counts."""
        if combine not in get_args(Combine):
            raise unknown_name("way to combine verifiers", str(combine), get_args(Combine))
        if not components:
            raise RecipeError("a composition needs at least one verifier")
        keys = [component.key for component in components]
        for component in components:
            if keys.count(component.key) > 1:
                raise RecipeError(
                    f"two verifiers are called {component.key!r}; give one of them a label of its "
                    f'own, for instance label = "{component.key}_2"'
                )
            if component.gate is not None and component.gate_key == component.key:
                raise RecipeError(f"verifier {component.key!r} is gated on itself; name another")
            if component.gate is not None and component.gate_key not in keys:
                raise unknown_name(f"gate of verifier {component.key!r}:", component.gate_key, keys)
            gate = components[keys.index(component.gate_key)] if component.gate else component
            parsed = (component.gate or "").endswith(":parsed")
            if component.gate and not parsed and not gate.gives_verdicts:
                raise RecipeError(
                    f"gate = {component.gate!r} of verifier {component.key!r} would stay closed: "
                    f"{gate.key!r} gives values without a verdict; set its correct_from"
                )
        if combine == "product" and any(component.weight < 0 for component in components):
            raise RecipeError(
                "a product of verifiers has a negative weight, which changes the sign of the rest; "
                'give weights above 0, or combine = "sum"'
            )
        if all(component.weight == 0 for component in components):
            raise RecipeError("every verifier has weight 0; give one of them weight = 1.0")
        self.components = tuple(components)
        self.combine = combine

    @property
    def members(self) -> Sequence[Verifier]:
        return [component.verifier for component in self.components]

    @property
    def name(self) -> str:
        return "+".join(self.labels)

    @property
    def arguments(self) -> Mapping[str, Any]:
        fields = ("weight", "gate", "threshold", "correct_from", "on_error")
        tables = [
            {
                "label": each.key,
                "name": each.verifier.name,
                "arguments": dict(each.verifier.arguments),
                **{field: getattr(each, field) for field in fields},
            }
            for each in self.components
        ]
        return {"combine": self.combine, "components": tables}

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the parts, in order."""
        return tuple(component.key for component in self.components)

    @property
    def gives_steps(self) -> bool:
        return any(each.verifier.gives_steps for each in self.components if each.weight != 0)

    @property
    def gives_verdicts(self) -> bool:
        return max(self.components, key=lambda each: abs(each.weight)).gives_verdicts

    @property
    def judges_singly(self) -> bool:
        # With "skip", a batch in which every row fails stops the run: it has to be a whole step's.
        return all(
            each.verifier.judges_singly and each.on_error == "stop" for each in self.components
        )

    @property
    def overlaps(self) -> bool:
        return any(each.waits for each in self.members)

    def score(self, cases: Sequence[Case]) -> list[Score]:
        """Each row's total; components that wait for something run at the same time."""
        apart = [e for e in self.components if e.verifier.waits and len(self.components) > 1]
        begun = {each.key: BackgroundCall(partial(each.scores, cases)) for each in apart}
        own = [each for each in self.components if each.key not in begun]
        with nullcontext() if all(each.verifier.waits for each in own) else _IN_TURN:
            columns = {each.key: each.scores(cases) for each in own}
        columns |= {key: call.result() for key, call in begun.items()}
        rows = range(len(cases))
        return [self._total({key: columns[key][row] for key in self.labels}) for row in rows]

    def _total(self, by_key: Mapping[str, Score]) -> Score:
        parts = {component.key: component.counted(by_key) for component in self.components}
        inner = {f"{key}/{p}": v for key, each in by_key.items() for p, v in each.parts.items()}
        counted = [component for component in self.components if component.weight != 0]
        found = ((component.weight, parts[component.key]) for component in counted)
        terms = [weight * value for weight, value in found if value is not None]
        reason = "; ".join(f"{key}: {each.reason or each.outcome}" for key, each in by_key.items())
        failed = [by_key[each.key].outcome for each in counted]
        failed = [outcome for outcome in failed if outcome in _FAILED_TO_JUDGE]
        if failed or not terms:
            outcome = failed[0] if failed else "not_applicable"
            return Score(None, outcome, reason, parts | inner)
        if self.combine == "product" and min(terms) < 0:
            raise VerifierError(
                f"a product of verifiers has a negative factor ({parts}), which changes the sign "
                "of the rest; two would earn. Return 0 or more, or combine by sum"
            )
        value = math.prod(terms) if self.combine == "product" else math.fsum(terms)
        return Score(value, self._outcome(by_key), reason, parts | inner, self._steps(by_key))

    def _steps(self, by_key: Mapping[str, Score]) -> tuple[StepReward, ...] | None:
        given = [e for e in self.components if e.weight and by_key[e.key].steps is not None]
        values: dict[int, float] = {}
        for component in given:
            weight = component.weight if component.is_open(by_key) else 0.0
            for step in by_key[component.key].steps or ():
                values[step.end] = values.get(step.end, 0.0) + weight * step.value
        ends = sorted(values)
        return tuple(StepReward(values[end], end) for end in ends) if given else None

    def _outcome(self, by_key: Mapping[str, Score]) -> Outcome:
        scored = [each for each in self.components if by_key[each.key].value is not None]
        main = max(scored, key=lambda each: abs(each.weight))
        outcome = by_key[main.key].outcome
        closed = outcome in _PARSED and main.is_open(by_key) is False
        return "incorrect" if closed else outcome

    def check_answers(self, prompts: Sequence[Prompt]) -> list[str | None]:
        """The first component's objection to each prompt, named."""
        found: list[str | None] = [None] * len(prompts)
        for component in self.components:
            for row, reason in enumerate(component.verifier.check_answers(prompts)):
                if reason is not None and found[row] is None:
                    found[row] = f"{component.key}: {reason}"
        return found

    def gold_completion(self, prompt: Prompt) -> str | None:
        return main_part(self).gold_completion(prompt)

    def warnings(self) -> list[str]:
        """Weights that let something other than correctness dominate; none for a product."""
        main = max(self.components, key=lambda component: abs(component.weight))
        rest = [c for c in self.components if c.weight and c is not main and c.gate_key != main.key]
        total = sum(abs(component.weight) for component in rest)
        if self.combine == "product" or not rest or total < abs(main.weight):
            return []
        names = ", ".join(f"{component.key} ({component.weight:g})" for component in rest)
        return [
            f"verifiers {names} together weigh {total:g}, as much as {main.key} "
            f"({main.weight:g}) or more: a completion can earn more by them than by being "
            f"right; lower their weights or gate them on {main.key!r}"
        ]


def check_label(verifier: Verifier, label: str, where: str) -> None:
    """Refuse a label of which no score will have a value, as far as that is known.

    Raises RecipeError; `where` is the field that names it.
    """
    if not isinstance(verifier, Composite):
        return
    parts = {each.key: each.verifier.part_names for each in verifier.components}
    key, _, part = label.partition("/")
    names = parts.get(key, ())
    if key not in parts or (part and names is not None and part not in names):
        inner = [f"{one}/{name}" for one, names in parts.items() for name in names or ()]
        raise RecipeError(unknown(f"{where} = {label!r}", label, [*parts, *inner]))


def main_part(verifier: Verifier) -> Verifier:
    """The verifier that matters most: of a composition the heaviest part, without its process."""
    while True:
        if isinstance(verifier, Composite):
            verifier = max(verifier.components, key=lambda each: abs(each.weight)).verifier
        elif isinstance(inner := getattr(verifier, "verifier", None), Verifier):
            verifier = inner
        else:
            return verifier


def _judged(score: Score, bound: float) -> Score:
    """Correct from `bound` on; below it an outcome that says why there is no answer stays."""
    if score.value is None:
        return score
    if score.value >= bound:
        return replace(score, outcome="correct")
    return replace(score, outcome="incorrect") if score.outcome in _PARSED else score
