"""What a page computes from samples of the rollouts: distributions by step, and pass@k."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from groupwise.evaluation.estimates import mean_interval, pass_at_k
from groupwise.records import Run
from groupwise.texts import counted

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

STEPS = 40
"""Steps whose distributions are shown, evenly over the run."""
ROWS = 256
"""Rollouts of a step that they are taken from, evenly over the step."""
BINS = 24

_COLUMNS = (
    "kind", "reward", "advantage", "mask", "text", "sampler_logprobs", "old_logprobs",
    "learner_logprobs", "entropies",
)  # fmt: skip


def spaced(values: Sequence[Any], number: int) -> list[Any]:
    """`number` of the values, evenly spaced, the first and the last among them."""
    if len(values) <= number:
        return list(values)
    if number == 1:
        return [values[-1]]
    return [values[round(n * (len(values) - 1) / (number - 1))] for n in range(number)]


def distributions(run: Run) -> dict[str, dict[str, Any]]:
    """Of reward, advantage, length and, a token each, entropy, ratio and sampler gap.

    By name: `steps` [S], `edges` [BINS + 1], `shares` [S, BINS] (the outermost bins hold what lies
    outside the pooled 1st to 99th percentile), and `quantiles` [3, S] (10th, 50th, 90th).
    """
    steps = spaced(sorted(run.rollout_files()), STEPS)
    found: dict[str, list[tuple[int, Numbers]]] = {}
    for step in steps:
        for name, values in _values(run.rollouts(step, _COLUMNS)).items():
            if values.size:
                found.setdefault(name, []).append((step, values))
    return {name: _distribution(made) for name, made in found.items()}


def _values(table: pa.Table) -> dict[str, Numbers]:
    """A step's numbers by the name of their distribution."""
    import pyarrow.compute as pc

    if "kind" in table.column_names:
        table = table.filter(pc.is_in(table["kind"], _trained()))
    table = table.take(np.array(spaced(range(table.num_rows), ROWS), int))
    found = {name: _numbers(table[name]) for name in ("reward", "advantage")}
    masks = _lists(table, "mask")
    found["length"] = np.array([float(mask.sum()) for mask in masks if mask is not None])
    learner, old = (_lists(table, f"{name}_logprobs") for name in ("learner", "old"))
    sampler = _lists(table, "sampler_logprobs")
    found["entropy"] = _tokens(masks, lambda x: x, _lists(table, "entropies"))
    found["ratio"] = _tokens(masks, lambda new, start: np.exp(new - start), learner, old)
    known = [a if a is not None else b for a, b in zip(old, learner, strict=True)]
    found["sampler gap"] = _tokens(masks, lambda a, b: np.abs(a - b), known, sampler)
    return found


def _trained() -> pa.Array:
    import pyarrow as pa

    return pa.array(["training", "replayed", None])


def _numbers(column: pa.ChunkedArray) -> Numbers:
    values = column.drop_null().to_numpy().astype(np.float64)
    return np.asarray(values[np.isfinite(values)])


def _lists(table: pa.Table, name: str) -> list[Numbers | None]:
    """A list column's cells, None for a null or an absent one."""
    if name not in table.column_names:
        return [None] * table.num_rows
    return [None if cell is None else np.asarray(cell, np.float64) for cell in _cells(table[name])]


def _cells(column: pa.ChunkedArray) -> list[Any]:
    return [
        cell.values.to_numpy(zero_copy_only=False) if cell.is_valid else None for cell in column
    ]


def _tokens(
    masks: Sequence[Numbers | None], of: Any, *columns: Sequence[Numbers | None]
) -> Numbers:
    """A function of the columns at every token that trains; rows that lack one are left out."""
    parts = [np.zeros(0)]
    for mask, *cells in zip(masks, *columns, strict=True):
        if mask is None or any(cell is None or cell.size != mask.size for cell in cells):
            continue
        parts.append(of(*(cell[mask > 0] for cell in cells if cell is not None)))
    values = np.concatenate(parts)
    return np.asarray(values[np.isfinite(values)])


def _distribution(made: Sequence[tuple[int, Numbers]]) -> dict[str, Any]:
    pooled = np.concatenate([values for _, values in made])
    low, high = np.quantile(pooled, (0.01, 0.99))
    if high <= low:
        low, high = float(low) - 0.5, float(high) + 0.5
    edges = np.linspace(low, high, BINS + 1)
    shares, quantiles = [], []
    for _, values in made:
        counts, _ = np.histogram(np.clip(values, low, high), edges)
        shares.append([round(float(n) / values.size, 4) for n in counts])
        quantiles.append(np.quantile(values, (0.1, 0.5, 0.9)))
    return {
        "steps": [step for step, _ in made],
        "edges": [_short(edge) for edge in edges],
        "shares": shares,
        "quantiles": [[_short(each[n]) for each in quantiles] for n in range(3)],
    }


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def passes(run: Run, evaluations: Sequence[int]) -> list[dict[str, Any]]:
    """pass@k for every k, of the first and the last evaluation whose completions are recorded.

    Each has `label`, `prompts`, `k`, and `mean`, `low` and `high` (95 %, prompts as the independent
    trials). Without evaluations, of the groups of the first and the last step.
    """
    made = []
    for version in sorted({*evaluations[:1], *evaluations[-1:]}):
        table = run.evaluation_rollouts(version)
        if table.num_rows:
            made.append(
                _passes(table, f"evaluation after {counted(version, 'step')}", "evaluation")
            )
    steps = sorted(run.rollout_files())
    if not made:
        ends = sorted({*steps[:1], *steps[-1:]})
        made = [_passes(run.rollouts(n), f"groups of step {n}", "training") for n in ends]
    return [each for each in made if each["k"]]


def _passes(table: pa.Table, label: str, kind: str) -> dict[str, Any]:
    counts: dict[tuple[Any, ...], list[bool]] = {}
    names = ("prompt_id", "visit", "outcome", "kind")
    for row in table.select([n for n in names if n in table.column_names]).to_pylist():
        if row.get("kind") in (kind, None):
            key = (row["prompt_id"], row.get("visit"))
            counts.setdefault(key, []).append(row["outcome"] == "correct")
    most = min(map(len, counts.values()), default=0)
    found: dict[str, Any] = {"label": label, "prompts": len(counts)}
    found |= {name: [] for name in ("k", "mean", "low", "high")}
    for k in range(1, most + 1):
        shares = [
            pass_at_k(num_samples=len(each), num_correct=sum(each), k=k) or 0.0
            for each in counts.values()
        ]
        low, high = mean_interval(shares, sum(map(len, counts.values())))
        for name, value in (("k", k), ("mean", math.fsum(shares) / len(shares)),
                            ("low", low), ("high", high)):  # fmt: skip
            found[name].append(value)
    return found
