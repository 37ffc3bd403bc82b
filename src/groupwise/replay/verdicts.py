"""Saved rollouts judged by another verifier: which verdicts change, and what the update saw."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from groupwise.algorithms import Algorithm
from groupwise.errors import RecipeError
from groupwise.records import Run, check_single, has_signal
from groupwise.replay.rows import Row, algorithm_of, case_of, group_numbers
from groupwise.verifiers import Verifier, score_cases

_READ = (
    "step", "version", "kind", "prompt_id", "visit", "group_index", "prompt", "answer", "columns",
    "opened", "completion_ids", "text", "finish_reason", "reward", "outcome", "reason", "messages",
    "output",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One rollout whose verdict is another now. Advantages are None where they were not asked."""

    step: int
    prompt_id: str
    group_index: int
    text: str
    answer: str | None
    before: tuple[float | None, str, str]
    after: tuple[float | None, str, str]
    advantage_before: float | None
    advantage_after: float | None


@dataclass(frozen=True, slots=True)
class VerdictReplay:
    """What re-grading found. `changes` are in the record's order.

    `outcomes` counts (outcome before, outcome after); `flipped` counts the rollouts whose advantage
    changed its sign, `moved` is the mean of |advantage after - before| over all of them, by
    `algorithm`; `signal` is the number of groups with signal, before and after.
    """

    rollouts: int
    changes: tuple[Change, ...]
    outcomes: dict[tuple[str, str], int]
    groups: int
    signal: tuple[int, int]
    algorithm: str
    moved: float
    flipped: int
    reward: tuple[float | None, float | None]
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        table = asdict(self)
        table["outcomes"] = [
            {"before": before, "after": after, "rollouts": number}
            for (before, after), number in self.outcomes.items()
        ]
        return table


def replay_verdicts(
    run: Run,
    verifier: Verifier,
    *,
    steps: Sequence[int] | None = None,
    algorithm: Algorithm | None = None,
) -> VerdictReplay:
    """Judge a run's rollouts again with `verifier`; greedy and waiting rows are left out.

    Advantages before and after are both made by `algorithm` (default: the run's) from the recorded
    rewards and the new ones. Raises RecipeError for a pipeline, a record without rollouts,
    or one without answers where the verifier compares with them.
    """
    check_single(run, "replay")
    table = run.rollouts(steps, columns=_READ)
    rows = [row for row in table.to_pylist() if row.get("kind") in (None, "training", "discarded")]
    if not rows:
        asked = "" if steps is None else f" of step {', '.join(map(str, steps))}"
        raise RecipeError(f"{run.folder} has no recorded rollouts{asked}")
    if verifier.needs_answer and all(row.get("answer") is None for row in rows):
        raise RecipeError(
            f"{run.folder} has no answers, and the verifier {verifier.name} compares with them; "
            "name one that needs none"
        )
    algorithm = algorithm or algorithm_of(run)
    cases = [case_of(row) for row in rows]
    there = set[str]().union(*(case.prompt.columns for case in cases))
    if missing := sorted(verifier.required_columns - there):
        raise RecipeError(
            f"{run.folder} has no column {missing[0]!r}, which the verifier {verifier.name} needs; "
            f"it has {', '.join(sorted(there)) or 'none besides the answer'}"
        )
    scores = score_cases(verifier, cases, "skip")
    groups = group_numbers(rows)
    before = [row["reward"] for row in rows]
    after = [score.value for score in scores]
    moved = [_advantages(algorithm, values, groups) for values in (before, after)]
    changes = []
    for row, score, was, now in zip(rows, scores, *moved, strict=True):
        if score.outcome == row["outcome"] and score.value == row["reward"]:
            continue
        changes.append(
            Change(
                row["step"], row["prompt_id"], row["group_index"], row["text"], row.get("answer"),
                (row["reward"], row["outcome"], row["reason"] or ""),
                (score.value, score.outcome, score.reason),
                was, now,
            )
        )  # fmt: skip
    pairs = [(a, b) for a, b in zip(*moved, strict=True) if a is not None and b is not None]
    return VerdictReplay(
        rollouts=len(rows),
        changes=tuple(changes),
        outcomes=dict(
            Counter((r["outcome"], s.outcome) for r, s in zip(rows, scores, strict=True)).items()
        ),
        groups=len(set(groups)),
        signal=(_with_signal(before, groups), _with_signal(after, groups)),
        algorithm=algorithm.name,
        moved=math.fsum(abs(b - a) for a, b in pairs) / len(pairs) if pairs else 0.0,
        flipped=sum(a * b < 0 for a, b in pairs),
        reward=(_mean(before), _mean(after)),
        notes=_notes(rows),
    )


def _advantages(
    algorithm: Algorithm, rewards: Sequence[float | None], groups: Sequence[int]
) -> list[float | None]:
    """One a rollout from rewards alone, None without a reward or for a group of one.

    Raises RecipeError where the algorithm needs more than rewards.
    """
    sizes = Counter(groups)
    rows = [place for place, group in enumerate(groups) if sizes[group] > 1]
    made: list[float | None] = [None] * len(rewards)
    if not rows:
        return made
    values = torch.tensor([math.nan if rewards[row] is None else rewards[row] for row in rows])
    members = torch.tensor([groups[row] for row in rows])
    try:
        found = algorithm.advantages(values, group_ids=members)
    except ValueError as error:
        raise RecipeError(
            f"{algorithm.name} cannot make advantages of rewards alone ({error}); name another "
            "algorithm, for example grpo"
        ) from error
    if found.dim() > 1:
        raise RecipeError(f"{algorithm.name} makes an advantage a token; name grpo, for example")
    for row, advantage in zip(rows, found.tolist(), strict=True):
        made[row] = None if rewards[row] is None else advantage
    return made


def _with_signal(rewards: Sequence[float | None], groups: Sequence[int]) -> int:
    members: dict[int, list[float | None]] = {}
    for group, reward in zip(groups, rewards, strict=True):
        members.setdefault(group, []).append(reward)
    return sum(has_signal(values) for values in members.values())


def _mean(values: Sequence[float | None]) -> float | None:
    scored = [value for value in values if value is not None]
    return math.fsum(scored) / len(scored) if scored else None


def _notes(rows: Sequence[Row]) -> tuple[str, ...]:
    if "columns" in rows[0]:
        return ()
    return ("the record is older than the column `columns`: the verifier saw no data columns",)
