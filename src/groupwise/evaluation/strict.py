"""Scores an evaluation's completions with a stricter verifier, and measures its gap to the reward.

A gamed reward rises while the strict score does not: the gap shows it long before a person reads a
sample. No extra completions are sampled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from groupwise.environments.base import Judged
from groupwise.errors import VerifierError
from groupwise.evaluation.estimates import mean_interval, mean_or_none
from groupwise.evaluation.result import named
from groupwise.rollouts import case_of
from groupwise.types import Group, Rollout, Score
from groupwise.verifiers import Verifier, score_cases

if TYPE_CHECKING:
    from groupwise.evaluation.measure import EvaluationSets

Metrics = dict[str, float | int | None]


def strict_metrics(
    groups: Sequence[Group], sets: EvaluationSets, verifier: Verifier, judged: Judged = "last"
) -> Metrics:
    """The `eval/strict` metrics of an evaluation's groups, of the words that `judged` says.

    A completion that the strict verifier could not score did not pass, and is counted; the gap is
    over completions that both have scored.

    Raises VerifierError as scoring does.
    """
    asked = {prompt.id for each in sets.splits.values() for prompt in each}
    chosen = [group for group in groups if group.prompt.id in asked]
    rollouts = [rollout for group in chosen for rollout in group.rollouts]
    scores = iter(score_cases(verifier, [case_of(rollout, judged) for rollout in rollouts]))
    scored = {g.prompt.id: [(r, next(scores)) for r in g.rollouts] for g in chosen}
    heldout = {prompt.id for name in sets.heldout for prompt in sets.splits[name]}
    flat = [score for pairs in scored.values() for _, score in pairs]
    unscored = sum(score.value is None for score in flat)
    if unscored == len(flat) > 0:
        raise VerifierError(
            f"the strict verifiers ({verifier.name}) could score none of {unscored} completions; "
            f"the first is {flat[0].outcome} ({flat[0].reason or 'no reason given'})"
        )
    return {
        **_over(asked, scored, ""),
        **(_over(heldout, scored, "heldout_") if heldout else {}),
        "eval/strict_unscored": unscored,
    }


def _over(
    ids: Collection[str], scored: Mapping[str, Sequence[tuple[Rollout, Score]]], scope: str
) -> Metrics:
    strict: list[list[float]] = []
    gaps: list[float] = []
    for prompt_id, pairs in scored.items():
        if prompt_id not in ids:
            continue
        strict.append([_right(score) for _, score in pairs])
        both = [
            _right(rollout.score) - _right(score)
            for rollout, score in pairs
            if rollout.score.scored and score.value is not None
        ]
        gaps += [sum(both) / len(both)] if both else []
    means = [sum(values) / len(values) for values in strict if values]
    interval = mean_interval(means, sum(map(len, strict))) if means else None
    name = f"eval/{scope}strict"
    return {**named(name, mean_or_none(means), interval), f"{name}_gap": mean_or_none(gaps)}


def _right(score: Score) -> float:
    return float(score.outcome == "correct")


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
