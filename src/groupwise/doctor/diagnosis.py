"""Every rule on one run, its findings in the order in which they are acted on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from groupwise.doctor import broken, drift, hacking, signal, tuning
from groupwise.doctor.facts import Facts
from groupwise.doctor.finding import LEVELS, Finding
from groupwise.records import Run, check_single, open_run
from groupwise.texts import counted, visible

RULES: tuple[Callable[[Facts], Finding | None], ...] = (
    *broken.RULES, *signal.RULES, *drift.CAUSES, *hacking.RULES, *drift.EFFECTS, *tuning.RULES,
)  # fmt: skip


_SEVERITIES = {"info": "info", "broken": "failure"}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the doctor says of a run. `findings` are to be acted on in their order; tuning advice
    that has to wait for them is in `waiting`."""

    folder: str
    steps: int
    findings: tuple[Finding, ...]
    waiting: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Nothing but information."""
        return all(finding.level == "info" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it, each finding with its flags, and under the stable names as well: `name`,
        `severity` (info, warning, failure) and `suggestion` (advice and flags in one text)."""
        table = asdict(self) | {"healthy": self.healthy}
        for name in ("findings", "waiting"):
            for entry, finding in zip(table[name], getattr(self, name), strict=True):
                flags = f": {finding.flags}" if finding.change else ""
                entry |= {
                    "flags": finding.flags,
                    "name": finding.kind,
                    "severity": _SEVERITIES.get(finding.level, "warning"),
                    "suggestion": f"{finding.advice}{flags}",
                }
        return table

    def text(self) -> str:
        """The findings for a person."""
        if not self.findings:
            return f"{self.folder}: nothing to say after {counted(self.steps, 'step')}"
        lines = [f"{self.folder}, {counted(self.steps, 'step')}"]
        for finding in self.findings:
            lines += ["", *_finding_lines(finding)]
        if self.waiting:
            names = ", ".join(finding.kind for finding in self.waiting)
            lines += ["", f"tuning advice waits until the above is mended: {names}"]
        return "\n".join(lines)


def _finding_lines(finding: Finding) -> list[str]:
    lines = [f"[{finding.level}] {finding.kind} ({finding.confidence}): {finding.message}"]
    lines.append(f"  what to do: {finding.advice}")
    if finding.change:
        lines.append(f"  try: {finding.flags}")
    if finding.samples:
        shown = ", ".join(f"step {s.step} {s.prompt_id}[{s.group_index}]" for s in finding.samples)
        lines.append(f"  read: {shown}")
    return [visible(part) for line in lines for part in line.split("\n")]


def diagnose(run: Run | str | Path, steps: int | None = None) -> Diagnosis:
    """What is wrong with a run, from its record alone. Imports nothing that its recipe names.

    With `steps`, from its first steps: what would have been said then.

    Raises RecipeError for a folder without a record, or a pipeline's (name one of its stages).
    """
    run = run if isinstance(run, Run) else open_run(run)
    check_single(run, "diagnose")
    facts = Facts(run, steps)
    rules = RULES if facts.lines else broken.BEFORE_ANY_STEP
    found = [finding for rule in rules if (finding := rule(facts)) is not None]
    found.sort(key=lambda finding: LEVELS.index(finding.level))
    burning = any(finding.level in ("broken", "signal", "drift") for finding in found)
    waits = [finding for finding in found if burning and finding.level == "tuning"]
    return Diagnosis(
        str(run.folder),
        facts.num_steps,
        tuple(finding for finding in found if finding not in waits),
        tuple(waits),
    )


def kinds() -> list[tuple[str, str]]:
    """Every rule by its function's name, with what it looks for."""
    return [(rule.__name__, (rule.__doc__ or "").split("\n")[0]) for rule in RULES]
