"""What an audit found: named figures with intervals, the rows and texts behind them, in words.

`warnings` is what a person must read before training; `to_dict` is everything, JSON-able, times of
verdicts apart (`timing`), so that two audits of the same verifier and data compare equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from groupwise.intervals import wilson_interval

SHOWN = 5
"""How many rows the text names of each kind."""


@dataclass(frozen=True, slots=True)
class Rate:
    """`count` of `total`, and the rows (id, text, reason) that it counts.

    >>> Rate(1, 10).share
    0.1
    """

    count: int
    total: int
    rows: tuple[Mapping[str, str], ...] = ()

    @property
    def share(self) -> float | None:
        return self.count / self.total if self.total else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's 95 % interval; None of nothing."""
        return wilson_interval(self.count / self.total, self.total) if self.total else None

    def __str__(self) -> str:
        if self.interval is None:
            return "none measured"
        low, high = self.interval
        return f"{self.count} of {self.total} ({low:.1%} to {high:.1%})"

    def to_dict(self) -> dict[str, Any]:
        rows = [dict(row) for row in self.rows]
        return {
            "count": self.count,
            "total": self.total,
            "share": self.share,
            "interval": None if self.interval is None else list(self.interval),
            "rows": rows,
        }


@dataclass(frozen=True, slots=True)
class SetRates:
    """Errors on one labelled set. `unscored` rows are in neither rate."""

    name: str
    false_accepted: Rate
    false_rejected: Rate
    unscored: Rate


@dataclass(frozen=True, slots=True)
class ProbeFinding:
    """What one probe earned on average against an honest guess; `text` is its best one."""

    name: str
    what: str
    earned: float | None
    honest: float
    hole: bool
    text: str
    prompt: str


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often a second method gives the same verdict; `rows` are where it does not."""

    method: str
    same: int
    total: int
    rows: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class AuditReport:
    """One verifier's audit. `right` and `wrong` are what honest completions earn on average."""

    verifier: str
    signature: str
    form: str
    golds: Rate
    right: float | None
    wrong: float | None
    sets: tuple[SetRates, ...] = ()
    mutations: Rate = field(default_factory=lambda: Rate(0, 0))
    agreement: Agreement | None = None
    probes: tuple[ProbeFinding, ...] = ()
    outcomes: Mapping[str, int] = field(default_factory=dict[str, int])
    raised: Rate = field(default_factory=lambda: Rate(0, 0))
    notes: tuple[str, ...] = ()
    timing: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def holes(self) -> tuple[ProbeFinding, ...]:
        """The probes that earn more than honest wrong answers do."""
        return tuple(probe for probe in self.probes if probe.hole)

    @property
    def passed(self) -> bool:
        """Every gold accepted, no hole, nothing raised."""
        return not (self.golds.count or self.holes or self.raised.count)

    @property
    def warnings(self) -> list[str]:
        """What a person must know, one sentence each."""
        found = []
        if self.golds.count:
            first = _collapsed(self.golds.rows)
            found.append(f"{self.golds.count} of {self.golds.total} gold answers rejected: {first}")
        found += [
            f"the probe {hole.name} ({hole.what}) earns {hole.earned:.2f}, an honest guess "
            f"{hole.honest:.2f}; for example {_shorten(hole.text)!r}"
            for hole in self.holes
        ]
        if self.raised.count:
            row = self.raised.rows[0]
            found.append(
                f"raises on {self.raised.count} of {self.raised.total} texts, for example "
                f"{_shorten(row['text'])!r}: {row['reason']}"
            )
        if self.mutations.count:
            row = self.mutations.rows[0]
            found.append(
                f"{self.mutations.count} of {self.mutations.total} changed gold answers get the "
                f"wrong verdict, for example {row['reason']}: {_shorten(row['text'])!r}"
            )
        return [*found, *self.notes]

    def to_dict(self, timing: bool = True) -> dict[str, Any]:
        """Everything as JSON-able values; without `timing` the same for equal audits."""
        table: dict[str, Any] = {
            "verifier": self.verifier,
            "signature": self.signature,
            "form": self.form,
            "passed": self.passed,
            "golds_rejected": self.golds.to_dict(),
            "honest": {"right": self.right, "wrong": self.wrong},
            "sets": {
                each.name: {
                    "false_accepted": each.false_accepted.to_dict(),
                    "false_rejected": each.false_rejected.to_dict(),
                    "unscored": each.unscored.to_dict(),
                }
                for each in self.sets
            },
            "mutations_wrong": self.mutations.to_dict(),
            "agreement": None if self.agreement is None else asdict(self.agreement),
            "probes": [asdict(probe) for probe in self.probes],
            "outcomes": dict(self.outcomes),
            "raised": self.raised.to_dict(),
            "warnings": self.warnings,
        }
        return {**table, "timing": dict(self.timing)} if timing else table

    def text(self) -> str:
        """The report for a terminal."""
        lines = [f"audit of {self.verifier}, answers written as: {self.form}", ""]
        lines.append(f"gold answers rejected      {self.golds}")
        lines += _rows(self.golds.rows)
        for each in self.sets:
            lines.append(f"{each.name}: wrong accepted      {each.false_accepted}")
            lines += _rows(each.false_accepted.rows)
            lines.append(f"{each.name}: right rejected      {each.false_rejected}")
            lines += _rows(each.false_rejected.rows)
            if each.unscored.count:
                lines.append(f"{each.name}: not scored          {each.unscored}")
                lines += _rows(each.unscored.rows)
        if self.mutations.total:
            lines.append(f"changed golds judged wrong {self.mutations}")
            lines += _rows(self.mutations.rows)
        if self.agreement is not None:
            same, total = self.agreement.same, self.agreement.total
            lines.append(f"agrees with {self.agreement.method}  {same} of {total}")
            lines += _rows(self.agreement.rows)
        lines += ["", *self._probe_lines(), "", *self._closing_lines()]
        return "\n".join(lines)

    def _probe_lines(self) -> list[str]:
        if not self.probes:
            return ["no probes were tried"]
        lines = [
            f"honest completions earn {_figure(self.right)} right, {_figure(self.wrong)} wrong",
            f"{'probe':<20}{'earns':>8}{'honest':>8}",
        ]
        for probe in self.probes:
            mark = "  HOLE" if probe.hole else ""
            lines.append(f"{probe.name:<20}{_figure(probe.earned):>8}{probe.honest:>8.2f}{mark}")
            if probe.hole:
                lines.append(f"    {_shorten(probe.text, 200)!r}")
        return lines

    def _closing_lines(self) -> list[str]:
        outcomes = ", ".join(f"{name} {count}" for name, count in sorted(self.outcomes.items()))
        lines = [f"outcomes: {outcomes}"]
        if self.timing:
            t = self.timing
            lines.append(
                f"milliseconds a verdict: median {1e3 * t['median']:.2f}, "
                f"p99 {1e3 * t['p99']:.2f}, worst {1e3 * t['worst']:.2f} of {t['verdicts']:.0f}"
            )
        lines += [f"note: {note}" for note in self.notes]
        if self.raised.count:
            lines.append(f"raised on {self.raised}")
            lines += _rows(self.raised.rows)
        lines.append("passed" if self.passed else "NOT PASSED: " + "; ".join(self.warnings[:SHOWN]))
        return lines


def _collapsed(rows: Sequence[Mapping[str, str]]) -> str:
    """The rows' reasons, each once: where, how often, and what."""
    places: dict[str, list[str]] = {}
    for row in rows:
        places.setdefault(_shorten(row["reason"]), []).append(row["id"])
    parts = [
        f"{ids[0]}{f' and {len(ids) - 1} more' if ids[1:] else ''}: {reason}"
        for reason, ids in list(places.items())[:SHOWN]
    ]
    if len(places) > SHOWN:
        parts.append(f"{len(places) - SHOWN} other reasons")
    return "; ".join(parts)


def _rows(rows: Sequence[Mapping[str, str]]) -> list[str]:
    lines = [
        f"    {row['id']}: {_shorten(row['text'])!r} ({row['reason']})" for row in rows[:SHOWN]
    ]
    if len(rows) > SHOWN:
        lines.append(f"    and {len(rows) - SHOWN} more")
    return lines


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _shorten(text: str, limit: int = 90) -> str:
    return text if len(text) <= limit else f"{text[: limit - 20]} ... {text[-14:]}"
