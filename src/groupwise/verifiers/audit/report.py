"""What an audit found: named figures with intervals, the rows and texts behind them, in words.

`warnings` is what a person must read before training; `to_dict` is everything, JSON-able.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from groupwise.intervals import wilson_interval
from groupwise.verifiers.audit.judges import Agreement, Shift

_RATES = ("false_accepted", "false_rejected", "unscored")
SHOWN = 5
"""How many rows the text names of each kind."""


class Row(NamedTuple):
    """A text with a finding."""

    id: str
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rate:
    """`count` of `total`, and the rows that it counts.

    >>> Rate(1, 10).share
    0.1
    """

    count: int
    total: int
    rows: tuple[Row, ...] = ()

    @property
    def share(self) -> float | None:
        return self.count / self.total if self.total else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Wilson's 95 % interval; None if nothing was measured."""
        return wilson_interval(self.count / self.total, self.total) if self.total else None

    def __str__(self) -> str:
        if self.interval is None:
            return "none measured"
        low, high = self.interval
        return f"{self.count} of {self.total} ({low:.1%} to {high:.1%})"

    def to_dict(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "total": self.total,
            "share": self.share,
            "interval": None if self.interval is None else list(self.interval),
            "rows": [row._asdict() for row in self.rows],
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
class AuditReport:
    """One verifier's audit. `right` and `wrong` are what honest completions earn on average.

    `golds`: gold answers that are rejected. `cannot_tell`: the verifier reads gold answers, but
    right ones earn no more than wrong ones.
    """

    verifier: str
    signature: str
    form: str
    golds: Rate
    right: float | None
    wrong: float | None
    sets: tuple[SetRates, ...] = ()
    probes: tuple[ProbeFinding, ...] = ()
    outcomes: Mapping[str, int] = field(default_factory=dict[str, int])
    raised: Rate = field(default_factory=lambda: Rate(0, 0))
    cannot_tell: bool = False
    notes: tuple[str, ...] = ()
    agreements: tuple[Agreement, ...] = ()
    shifts: tuple[Shift, ...] = ()

    @property
    def holes(self) -> tuple[ProbeFinding, ...]:
        """The probes that earn more than honest wrong answers do."""
        return tuple(probe for probe in self.probes if probe.hole)

    @property
    def passed(self) -> bool:
        """Every gold accepted, right told from wrong, no hole, nothing raised."""
        return not (self.golds.count or self.holes or self.raised.count or self.cannot_tell)

    @property
    def warnings(self) -> list[str]:
        """What a person must know, one sentence each."""
        found = []
        if self.golds.count:
            first = _collapsed(self.golds.rows)
            found.append(f"{self.golds.count} of {self.golds.total} gold answers rejected: {first}")
        if self.cannot_tell:
            found.append(
                f"a right answer earns {_figure(self.right)}, a wrong one {_figure(self.wrong)}: "
                "the verifier does not tell them apart, or reads none of the usual forms (then "
                "label completions of both kinds, --data)"
            )
        found += [
            f"the probe {hole.name} ({hole.what}) earns {hole.earned:.2f}, an honest guess "
            f"{hole.honest:.2f}; for example {_shorten(hole.text)!r}"
            for hole in self.holes
        ]
        if self.raised.count:
            first_row = self.raised.rows[0]
            found.append(
                f"{self.raised.count} of {self.raised.total} texts raised an error in the "
                f"verifier, for example {_shorten(first_row.text)!r}: {first_row.reason}"
            )
        return [*found, *self.notes]

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON-able values, the same for equal audits."""
        return {
            "verifier": self.verifier,
            "signature": self.signature,
            "form": self.form,
            "passed": self.passed,
            "golds_rejected": self.golds.to_dict(),
            "honest": {"right": self.right, "wrong": self.wrong},
            "sets": {
                each.name: {rate: getattr(each, rate).to_dict() for rate in _RATES}
                for each in self.sets
            },
            "probes": [asdict(probe) for probe in self.probes],
            "outcomes": dict(self.outcomes),
            "raised": self.raised.to_dict(),
            "agreements": [asdict(each) for each in self.agreements],
            "injection": [asdict(each) for each in self.shifts],
            "warnings": self.warnings,
        }

    def text(self) -> str:
        """The report for a terminal."""
        form = f"{self.form} form" if self.form.endswith("own") else f"the form {self.form!r}"
        lines = [f"audit of {self.verifier}; answers are written in {form}", ""]
        rates = {"gold answers rejected": self.golds}
        for each in self.sets:
            rates[f"{each.name}: wrong accepted"] = each.false_accepted
            rates[f"{each.name}: right rejected"] = each.false_rejected
            rates |= {f"{each.name}: not scored": each.unscored} if each.unscored.count else {}
        rates |= {"texts raising an error": self.raised} if self.raised.count else {}
        for title, rate in rates.items():
            lines += [f"{title:<26} {rate}", *_rows(rate.rows)]
        lines += ["", *self._probe_lines(), ""]
        outcomes = ", ".join(f"{name} {count}" for name, count in sorted(self.outcomes.items()))
        lines.append(f"outcomes: {outcomes}")
        lines += [f"agreement: {each}" for each in self.agreements]
        lines += [f"injection: {each}" for each in self.shifts]
        lines += [f"note: {note}" for note in self.notes]
        lines.append("passed" if self.passed else "NOT PASSED: " + "; ".join(self.warnings[:SHOWN]))
        return "\n".join(lines)

    def _probe_lines(self) -> list[str]:
        if not self.probes:
            return ["no probes were tried"]
        lines = [
            f"mean reward if honest: right {_figure(self.right)}, wrong {_figure(self.wrong)}",
            f"{'probe':<20}{'reward':>8}  honest guess",
        ]
        for probe in self.probes:
            mark = "  HOLE" if probe.hole else ""
            lines.append(f"{probe.name:<20}{_figure(probe.earned):>8}{probe.honest:>14.2f}{mark}")
            if probe.hole:
                lines.append(f"    {_shorten(probe.text, 200)!r}")
        return lines


def _collapsed(rows: Sequence[Row]) -> str:
    """The rows' reasons, each once: where, how often, and what."""
    places: dict[str, list[str]] = {}
    for row in rows:
        places.setdefault(_shorten(row.reason), []).append(row.id)
    parts = [
        f"{ids[0]}{f' and {len(ids) - 1} more' if ids[1:] else ''}: {reason}"
        for reason, ids in list(places.items())[:SHOWN]
    ]
    if len(places) > SHOWN:
        parts.append(f"{len(places) - SHOWN} other reasons")
    return "; ".join(parts)


def _rows(rows: Sequence[Row]) -> list[str]:
    lines = [f"    {row.id}: {_shorten(row.text)!r} ({row.reason})" for row in rows[:SHOWN]]
    return [*lines, f"    and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else lines


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _shorten(text: str, limit: int = 90) -> str:
    return text if len(text) <= limit else f"{text[: limit - 20]} ... {text[-14:]}"
