"""Scores an evaluation's completions with a stricter verifier, and measures its gap to the reward.

A gamed reward rises while the strict score does not: the gap shows it long before a person reads a
sample. No extra completions are sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from groupwise.environments.base import Judged
from groupwise.errors import VerifierError
from groupwise.evaluation.estimates import mean_or_none
from groupwise.evaluation.result import named, summarise
from groupwise.rollouts import case_of
from groupwise.types import Group, Prompt
from groupwise.verifiers import Verifier, score_cases

if TYPE_CHECKING:
    from groupwise.evaluation.measure import EvaluationSets

Metrics = dict[str, float | int | None]


def strict_metrics(
    groups: Sequence[Group],
    sets: EvaluationSets,
    verifier: Verifier,
    judged_for: Callable[[Prompt], Judged] = lambda _: "last",
) -> Metrics:
    """The `eval/strict` metrics of an evaluation's groups, of the words that `judged_for` says.

    A completion that the strict verifier could not score did not pass, and is counted; the gap is
    over completions that both have scored.

    Raises VerifierError as scoring does.
    """
    asked = {prompt.id for each in sets.splits.values() for prompt in each}
    heldout = {prompt.id for name in sets.heldout for prompt in sets.splits[name]}
    chosen = [group for group in groups if group.prompt.id in asked]
    rollouts = [rollout for group in chosen for rollout in group.rollouts]
    cases = [case_of(rollout, judged_for(rollout.prompt)) for rollout in rollouts]
    scores = score_cases(verifier, cases)
    unscored = sum(score.value is None for score in scores)
    if unscored == len(scores) > 0:
        raise VerifierError(
            f"the strict verifiers ({verifier.name}) could score none of {unscored} completions; "
            f"the first is {scores[0].outcome} ({scores[0].reason or 'no reason given'})"
        )
    left = iter(scores)
    pairs = []
    for group in chosen:
        strictly = tuple(replace(rollout, score=next(left)) for rollout in group.rollouts)
        pairs.append((group, Group(group.prompt, strictly)))
    found: Metrics = {"eval/strict_unscored": unscored}
    for name, ids in (("eval/strict", asked), ("eval/heldout_strict", heldout)):
        own = [pair for pair in pairs if pair[0].prompt.id in ids]
        if ids:
            result = summarise([strict for _, strict in own])
            found |= named(name, result.accuracy, result.accuracy_interval)
            gaps = (_gap(*pair) for pair in own)
            found[f"{name}_gap"] = mean_or_none([gap for gap in gaps if gap is not None])
    return found


def _gap(group: Group, strict: Group) -> float | None:
    """How many more completions of a prompt the reward calls correct, as a share of those that both
    have scored; None where there is none.
    """
    return mean_or_none(
        [
            float(one.score.outcome == "correct") - float(other.score.outcome == "correct")
            for one, other in zip(group.rollouts, strict.rollouts, strict=True)
            if one.score.scored and other.score.scored
        ]
    )


def gap_alarm(gaps: Sequence[float | None], threshold: float, *, version: int) -> str | None:
    """The warning due after the newest of `gaps` (oldest first), None where none is.

    Due where the newest gap is above `threshold`, and again whenever it has grown by another
    `threshold` since the last warning.
    """
    level = 0
    due = False
    for gap in gaps:
        reached = 0 if gap is None else int(gap / threshold + 1e-9)
        due = reached > level
        level = max(level, reached)
    newest, first = gaps[-1], gaps[0]
    if not due or newest is None:
        return None
    return (
        f"after {version} steps the reward calls {newest:.1%} more completions correct than the "
        f"strict verifiers do (at the first evaluation {first or 0.0:.1%}): the reward is being "
        "gamed or is too loose; read completions that only it accepts, and run groupwise audit"
    )
