"""From raw repeats to medians and the ratios of results.json. Pure: no process, no clock, no torch.

A repeat is disturbed where other programs had more than a share of the processors, or idle
contenders did. Disturbed repeats are dropped; where all of a contender's are, they stand and are
said to be. Left out: asking for repeats (parent.py).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Bar:
    """What a ratio should be: at least `bar` (at most, where smaller is better), and the aim."""

    bar: float
    aim: float | None = None
    smaller: bool = False

    def met(self, value: float) -> bool:
        return value <= self.bar if self.smaller else value >= self.bar


BARS: dict[str, Bar] = {
    "rollout_vs_generate": Bar(4.0, 6.0),
    "rollout_vs_generate_fp32": Bar(6.5, 12.0),
    "rollout_vs_trl": Bar(4.0, 6.0),
    "rollout_vs_trl_fp32": Bar(6.5, 12.0),
    "rollout_vs_openvino": Bar(1.0, 1.5),
    "rollout_int8_vs_openvino": Bar(1.15, 1.5),
    "rollout_vs_kernels": Bar(0.65, 0.8),
    "train_vs_trl": Bar(2.5),
    "train_vs_roofline": Bar(1.5, smaller=True),
    "step_vs_trl_best": Bar(3.2, 4.0),
    "step_vs_trl_fp32": Bar(6.0),
    "memory_vs_trl": Bar(0.6, 0.45, smaller=True),
}
"""The stable keys of results.json, each with its bar where bfloat16 is in hardware."""


def is_disturbed(row: Row, limit: float) -> bool:
    """True where processors went elsewhere; False where nobody could tell.

    >>> is_disturbed({"shares": {"foreign": 0.3, "idle_contenders": 0.0}}, 0.1)
    True
    """
    shares = row.get("shares") or {}
    return any((shares.get(name) or 0.0) > limit for name in ("foreign", "idle_contenders"))


def wants_more(rows: Sequence[Row], repeats: int, retries: int, limit: float) -> bool:
    """Whether a contender is asked again: too few undisturbed repeats, and tries are left."""
    good = sum(not is_disturbed(row, limit) for row in rows)
    return good < repeats and len(rows) < repeats + retries


@dataclass(frozen=True)
class Measured:
    """One contender in one phase. `values` are medians over the kept repeats, `peak_bytes` the
    largest of all; `all_disturbed` where nothing better than disturbed repeats was had."""

    values: dict[str, float]
    spread: dict[str, tuple[float, float]]
    kept: int
    dropped: int
    all_disturbed: bool


def rates(row: Row) -> dict[str, float]:
    """A repeat's numbers, with tokens a second beside seconds."""
    numbers = {
        name: float(row[name])
        for name in (
            "seconds",
            "rollout_seconds",
            "train_seconds",
            "optimizer_seconds",
            "tokens",
            "unique_tokens",
        )
        if row.get(name) is not None
    }
    sampling = numbers.get("rollout_seconds", numbers["seconds"])
    return {**numbers, "tokens_per_second": numbers["tokens"] / max(sampling, 1e-9)}


def measured(rows: Sequence[Row], limit: float) -> Measured:
    """The kept repeats of one contender in one phase, closed. `rows` is not empty."""
    kept = [row for row in rows if not is_disturbed(row, limit)]
    used = [rates(row) for row in kept or rows]
    names = used[0].keys()
    values = {name: statistics.median(each[name] for each in used) for name in names}
    spread = {name: (min(e[name] for e in used), max(e[name] for e in used)) for name in names}
    peaks = [row["peak_bytes"] for row in rows if row.get("peak_bytes")]
    if peaks:
        values["peak_bytes"] = float(max(peaks))
    return Measured(
        values=values,
        spread=spread,
        kept=len(used),
        dropped=len(rows) - len(used),
        all_disturbed=not kept,
    )


Table = dict[tuple[str, str], Measured]


def table(rows: Iterable[Row], limit: float) -> Table:
    """By (contender, phase)."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["contender"], row["phase"]), []).append(row)
    return {key: measured(own, limit) for key, own in groups.items()}


@dataclass(frozen=True)
class Missing(Exception):  # noqa: N818
    """A ratio's input is not there."""

    contender: str
    phase: str


class Reader:
    """Numbers by contender, phase and name. Raises Missing."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __call__(self, contender: str, phase: str, name: str) -> float:
        found = self.table.get((contender, phase))
        if found is None or name not in found.values:
            raise Missing(contender, phase)
        return found.values[name]

    def rate(self, contender: str, phase: str = "rollout") -> float:
        return self(contender, phase, "tokens_per_second")

    def fastest_trl(self) -> str:
        """TRL's setting with the shortest step, of those measured."""
        return min(self._trl("step"), key=lambda name: self(name, "step", "seconds"))

    def best_trl(self, phase: str, name: str, best: Callable[..., float]) -> float:
        return best(self(contender, phase, name) for contender in self._trl(phase))

    def _trl(self, phase: str) -> list[str]:
        found = [name for name, of in self.table if name.startswith("trl-") and of == phase]
        if not found:
            raise Missing("trl-bf16", phase)
        return found


Formula = Callable[[Reader], float]
OURS, CHECKPOINTED, FP32 = "groupwise-bf16", "groupwise-checkpointed", "groupwise-fp32"
INT8 = "groupwise-int8"

FORMULAS: dict[str, Formula] = {
    "rollout_vs_generate": lambda r: r.rate(OURS) / r.rate("generate-bf16"),
    "rollout_vs_generate_fp32": lambda r: r.rate(OURS) / r.rate("generate-fp32"),
    "rollout_vs_trl": lambda r: r.rate(OURS) / r.best_trl("rollout", "tokens_per_second", max),
    "rollout_vs_trl_fp32": lambda r: r.rate(OURS) / r.rate("trl-fp32"),
    "rollout_vs_openvino": lambda r: r.rate(OURS) / r.rate("openvino"),
    "rollout_int8_vs_openvino": lambda r: r.rate(INT8) / r.rate("openvino"),
    "rollout_vs_kernels": lambda r: r.rate(OURS) / r.rate("kernels-bf16"),
    "train_vs_trl": lambda r: (
        r("trl-autocast", "step", "train_seconds") / r(OURS, "step", "train_seconds")
    ),
    # A pass forward and back is three times the products of a decoding step, a token.
    "train_vs_roofline": lambda r: (
        r(OURS, "step", "train_seconds")
        * r.rate("kernels-bf16")
        / (3 * r(OURS, "step", "unique_tokens"))
    ),
    "step_vs_trl_best": lambda r: r.best_trl("step", "seconds", min) / r(OURS, "step", "seconds"),
    "step_vs_trl_fp32": lambda r: r("trl-fp32", "step", "seconds") / r(OURS, "step", "seconds"),
    "memory_vs_trl": lambda r: (
        r(CHECKPOINTED, "step", "peak_bytes") / r(r.fastest_trl(), "step", "peak_bytes")
    ),
}
OTHER_FORMULAS: dict[str, Formula] = {
    "rollout_int8_vs_bf16": lambda r: r.rate(INT8) / r.rate(OURS),
    "step_int8_vs_trl_best": lambda r: (
        r.best_trl("step", "seconds", min) / r(INT8, "step", "seconds")
    ),
    "rollout_fp32_vs_generate_fp32": lambda r: r.rate(FP32) / r.rate("generate-fp32"),
    "rollout_fp32_vs_trl_fp32": lambda r: r.rate(FP32) / r.rate("trl-fp32"),
    "rollout_fp32_vs_kernels_fp32": lambda r: r.rate(FP32) / r.rate("kernels-fp32"),
    "natural_vs_generate": lambda r: r.rate(OURS, "natural") / r.rate("generate-bf16", "natural"),
    "natural_vs_trl": lambda r: r.rate(OURS, "natural") / r.rate("trl-bf16", "natural"),
    "natural_vs_openvino": lambda r: r.rate(OURS, "natural") / r.rate("openvino", "natural"),
    "train_vs_trl_best": lambda r: (
        r.best_trl("step", "train_seconds", min) / r(OURS, "step", "train_seconds")
    ),
    "step_fp32_vs_trl_fp32": lambda r: (
        r("trl-fp32", "step", "seconds") / r(FP32, "step", "seconds")
    ),
    "step_checkpointed_vs_trl_best": lambda r: (
        r.best_trl("step", "seconds", min) / r(CHECKPOINTED, "step", "seconds")
    ),
    "memory_without_checkpointing_vs_trl": lambda r: (
        r(OURS, "step", "peak_bytes") / r(r.fastest_trl(), "step", "peak_bytes")
    ),
}


def ratios(
    table: Table, formulas: Mapping[str, Formula], failures: Mapping[str, str]
) -> tuple[dict[str, float | None], dict[str, str]]:
    """Every ratio, None where an input is missing; and why each missing one is.

    `failures` are reasons by `contender` or `contender/phase`.
    """
    reader = Reader(table)
    found: dict[str, float | None] = {}
    why: dict[str, str] = {}
    for name, formula in formulas.items():
        try:
            found[name] = round(formula(reader), 4)
        except Missing as missing:
            found[name] = None
            reason = failures.get(f"{missing.contender}/{missing.phase}") or failures.get(
                missing.contender, f"the phase {missing.phase!r} was not run with it"
            )
            why[name] = f"{missing.contender}: {reason}"
    return found, why


def smallest_repeats(table: Table) -> int:
    """The fewest repeats that stand behind any number; 0 where there is none."""
    return min((each.kept for each in table.values()), default=0)
