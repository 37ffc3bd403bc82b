"""The results of an evaluation, per set of prompts, as metrics and as rows.

A completion is correct where its score's outcome is "correct", which a composed verifier takes from
its weightiest part. One without a score (a verifier failed) did not pass: it stays in every n, of
accuracy, pass@k, maj@k and their intervals, and `unscored` counts it beside them. A set with a
value that has no verdict (a reward above 1 on an undeclared scale) has no accuracy. Every mean over
a set is the mean over its prompts of the prompt's mean, so prompts count alike however many
completions they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from groupwise.evaluation.estimates import (
    answer_entropy,
    distinct_n,
    maj_at_k,
    mean_interval,
    mean_or_none,
    pass_at_k,
)
from groupwise.intervals import wilson_interval
from groupwise.records.rows import rollout_rows
from groupwise.rollouts import case_of
from groupwise.types import Group, Rollout, Score
from groupwise.verifiers.answers.extraction import after_reasoning, last_box, last_tagged
from groupwise.verifiers.answers.tokens import plain

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class SetResult:
    """Results over one set of prompts. None where nothing in the set was scored, or where a value
    has no verdict.

    `accuracy`: sampled, with its interval; `greedy`: one greedy completion a prompt, with its own.
    `parts` and `greedy_parts`: each verifier's mean. `pass_at_k` and `maj_at_k` by k. `diversity`
    by name, as the function of that name gives it.
    """

    num_prompts: int
    accuracy: float | None
    accuracy_interval: Interval | None
    greedy: float | None
    greedy_interval: Interval | None
    parts: Mapping[str, float]
    greedy_parts: Mapping[str, float]
    pass_at_k: Mapping[int, float | None]
    maj_at_k: Mapping[int, float | None]
    diversity: Mapping[str, float | None]
    unscored: int
    truncated: float | None
    tokens: int


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """One evaluation of one version of the policy.

    `overall` is over every split's prompts, `heldout` over those that training never samples (None
    where there are none), `splits` and `guards` by name; `groups` are the rollouts themselves, in
    the splits' order, then the guards'. `strict` are the metrics of a strict verifier, if any.
    """

    version: int
    overall: SetResult
    heldout: SetResult | None
    trained: SetResult | None
    splits: Mapping[str, SetResult]
    guards: Mapping[str, SetResult] = field(default_factory=dict[str, SetResult])
    groups: Sequence[Group] = ()
    strict: Mapping[str, float | int | None] = field(default_factory=dict[str, float | int | None])

    @property
    def gap(self) -> float | None:
        """Sampled accuracy on training prompts minus that on held-out ones."""
        trained, heldout = (None if s is None else s.accuracy for s in (self.trained, self.heldout))
        return None if trained is None or heldout is None else trained - heldout

    @property
    def scores(self) -> list[Score]:
        """Of every completion, sampled and greedy."""
        every = [rollout for group in self.groups for rollout in (*group.rollouts, group.greedy)]
        return [rollout.score for rollout in every if rollout is not None]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every completion as a row of the record, kind "evaluation" or "greedy"."""
        return rollout_rows(self.version, self.groups, kind="evaluation")

    @property
    def metrics(self) -> dict[str, float | int | None]:
        """The `eval/` metrics of the metric table."""
        found: dict[str, float | int | None] = {
            **named("eval/accuracy", self.overall.accuracy, self.overall.accuracy_interval),
            **named("eval/greedy", self.overall.greedy, self.overall.greedy_interval),
            "eval/gap": self.gap,
            "eval/prompts": self.overall.num_prompts,
            "eval/unscored": self.overall.unscored,
            "eval/truncated": self.overall.truncated,
            "eval/tokens": sum(s.tokens for s in (self.overall, *self.guards.values())),
        }
        for prefix, result in (("eval/", self.overall), ("eval/heldout_", self.heldout)):
            if result is not None:
                found |= {f"{prefix}verifier/{name}": each for name, each in result.parts.items()}
                greedy = result.greedy_parts.items()
                found |= {f"{prefix}greedy_verifier/{name}": each for name, each in greedy}
        if self.heldout is not None:
            held = self.heldout
            found |= named("eval/heldout", held.accuracy, held.accuracy_interval)
            found |= named("eval/heldout_greedy", held.greedy, held.greedy_interval)
        found |= {f"eval/{name}": value for name, value in self.overall.diversity.items()}
        for name, values in (("pass", self.overall.pass_at_k), ("maj", self.overall.maj_at_k)):
            found.update({f"eval/{name}@{k}": value for k, value in values.items()})
        for kind, results in (("split", self.splits), ("guard", self.guards)):
            for name, result in results.items():
                found[f"eval/{kind}/{name}"] = result.accuracy
                found[f"eval/{kind}_greedy/{name}"] = result.greedy
        return {**found, **self.strict}


def summarise(
    groups: Sequence[Group], *, pass_ks: Sequence[int] = (), maj_ks: Sequence[int] = ()
) -> SetResult:
    """Results over one set: one group a prompt, its greedy rollout in `Group.greedy`."""
    every = [rollout for group in groups for rollout in group.rollouts]
    greedy_rollouts = [group.greedy for group in groups if group.greedy is not None]
    shares = [_shares(group.rollouts) for group in groups if _all_judged(every)]
    means = [sum(share) / len(share) for share in shares if share]
    greedy = _shares(greedy_rollouts) if _all_judged(greedy_rollouts) else []
    greedy_mean = mean_or_none(greedy)
    return SetResult(
        num_prompts=len(groups),
        accuracy=mean_or_none(means),
        accuracy_interval=mean_interval(means, sum(map(len, shares))) if means else None,
        greedy=greedy_mean,
        greedy_interval=None if greedy_mean is None else wilson_interval(greedy_mean, len(greedy)),
        parts=_part_means([group.rollouts for group in groups]),
        greedy_parts=_part_means([[rollout] for rollout in greedy_rollouts]),
        pass_at_k={k: _pass_mean(shares, k) for k in pass_ks},
        maj_at_k={k: _vote_mean(groups, k) if means else None for k in maj_ks},
        diversity=diversity(groups),
        unscored=sum(not rollout.score.scored for rollout in (*every, *greedy_rollouts)),
        truncated=mean_or_none([float(rollout.truncated) for rollout in every]),
        tokens=sum(rollout.num_tokens for rollout in (*every, *greedy_rollouts)),
    )


def diversity(groups: Sequence[Group]) -> dict[str, float | None]:
    """How much the completions of a prompt differ, each the mean over prompts.

    `distinct_1`, `distinct_2`: of ids. `answer_entropy` in nats, over the answers as `answer_vote`
    reads them. `solved`: the share of prompts with a correct completion, pass@k for k = all.
    """
    rows: dict[str, list[float | None]] = {}
    for group in groups:
        ids = [rollout.completion_ids for rollout in group.rollouts]
        outcomes = [rollout.score.outcome for rollout in group.rollouts]
        judged = bool(outcomes) and "no_verdict" not in outcomes
        for name, value in (
            ("distinct_1", distinct_n(ids, 1)),
            ("distinct_2", distinct_n(ids, 2)),
            ("answer_entropy", answer_entropy([answer_vote(each) for each in group.rollouts])),
            ("solved", float("correct" in outcomes) if judged else None),
        ):
            rows.setdefault(name, []).append(value)
    return {name: _mean_of_some(values) for name, values in rows.items()}


def answer_vote(rollout: Rollout) -> str | None:
    """The answer that a completion votes for; None where it gives none or has no score.

    Correct completions vote alike, however they write the answer; others by `written_answer`.
    """
    if rollout.score.outcome == "correct":
        return "correct"
    if rollout.score.outcome == "no_answer" or not rollout.score.scored:
        return None
    answer = written_answer(case_of(rollout, "last").whole)
    return f"other: {answer}" if answer else None


def written_answer(text: str) -> str | None:
    """The last box, else the last `<answer>`, else the last line, after the reasoning and without
    dressing; None where there is none."""
    rest = after_reasoning(text)
    if rest is None:
        return None
    lines = [line for line in rest.splitlines() if line.strip()]
    answer = last_box(rest) or last_tagged(rest, "answer") or (lines[-1] if lines else "")
    return plain(answer) or None


def _shares(rollouts: Sequence[Rollout]) -> list[float]:
    """1.0 for a correct completion, 0.0 for any other, one without a score included."""
    return [float(rollout.score.outcome == "correct") for rollout in rollouts]


def _all_judged(rollouts: Sequence[Rollout]) -> bool:
    """Whether something was scored, and whatever was scored has a verdict."""
    scored = [rollout.score for rollout in rollouts if rollout.score.scored]
    return bool(scored) and all(score.outcome != "no_verdict" for score in scored)


def _part_means(rollouts: Sequence[Sequence[Rollout]]) -> dict[str, float]:
    """Each part's mean over prompts of the prompt's mean, in order of first appearance."""
    means: dict[str, list[float]] = {}
    for own in rollouts:
        values: dict[str, list[float]] = {}
        for score in (rollout.score for rollout in own if rollout.score.scored):
            for name, value in score.parts.items():
                if value is not None:
                    values.setdefault(name, []).append(value)
        for name, found in values.items():
            means.setdefault(name, []).append(sum(found) / len(found))
    return {name: sum(found) / len(found) for name, found in means.items()}


def _mean_of_some(values: Iterable[float | None]) -> float | None:
    return mean_or_none([value for value in values if value is not None])


def _pass_mean(shares: Sequence[Sequence[float]], k: int) -> float | None:
    return _mean_of_some(
        pass_at_k(num_samples=len(s), num_correct=int(sum(s)), k=k) for s in shares
    )


def _vote_mean(groups: Sequence[Group], k: int) -> float | None:
    played = [group.rollouts for group in groups if group.rollouts]
    return _mean_of_some(
        maj_at_k([answer_vote(r) for r in rs], [r.score.outcome == "correct" for r in rs], k=k)
        for rs in played
    )


def named(name: str, value: float | None, interval: Interval | None) -> dict[str, float | None]:
    low, high = interval if interval is not None else (None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}
