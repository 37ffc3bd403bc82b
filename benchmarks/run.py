"""`make bench`: this project and its peers in one interleaved process group, as a table of ratios.

    .venv/bin/python -m benchmarks.run [--only rollout natural step] [--repeats 3] [--small]

Each phase is written to results.json as it ends; phases that are not asked for stay from the file,
where workload and versions are the same. Exit status 0 also where a bar is not met or a peer is
missing: this measures, tests judge. Left out: growth with size (growth.py).
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine, render
from benchmarks.contenders import BY_NAME, CONTENDERS, Contender
from benchmarks.parent import Phase, PhaseResult, Rules
from benchmarks.ratios import FORMULAS, OTHER_FORMULAS, ratios, smallest_repeats, table
from benchmarks.workload import FULL, PHASES, SMALL, Workload

HERE = Path(__file__).parent
_WIDTH = 170  # columns of the tables where no terminal says
SMALL_OUTPUT = HERE.parent / "runs" / "bench-small" / "results.json"


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.run", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PHASES, default=list(PHASES))
    parser.add_argument("--contenders", nargs="+", choices=list(BY_NAME), default=list(BY_NAME))
    parser.add_argument("--repeats", type=int, default=Rules.repeats)
    parser.add_argument("--retries", type=int, default=Rules.retries)
    parser.add_argument(
        "--foreign-limit",
        type=float,
        default=Rules.foreign_limit,
        help="share of all processors above which a repeat is dropped",
    )
    parser.add_argument("--minutes", type=float, default=60.0, help="no repeat starts after these")
    parser.add_argument("--small", action="store_true", help="the tiny model, no peers: seconds")
    parser.add_argument("--output", type=Path, help="results.json; RESULTS.md goes beside it")
    chosen = parser.parse_args(given)
    if chosen.repeats < 1 or chosen.retries < 0 or not 0 < chosen.foreign_limit <= 1:
        parser.error("give --repeats 1 or more, --retries 0 or more, --foreign-limit in (0, 1]")
    if chosen.output is None:
        chosen.output = SMALL_OUTPUT if chosen.small else machine.results_path(HERE)
    return chosen


def contenders(phase: str, names: Sequence[str], small: bool) -> list[Contender]:
    return [
        each
        for each in CONTENDERS
        if phase in each.phases and each.name in names and (each.small or not small)
    ]


def phase_entry(
    result: PhaseResult, command: str, rules: Rules, code: Mapping[str, Any]
) -> dict[str, Any]:
    """A phase as results.json keeps it; `code` is the checkout that it measured."""
    return {
        "code": code,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command,
        "seconds": result.seconds,
        "kept_loaded": result.kept_loaded,
        "repeats_asked": rules.repeats,
        "retries_allowed": rules.retries,
        "failures": result.failures,
        "details": result.details,
        "rows": result.rows,
    }


def assemble(
    phases: Mapping[str, Mapping[str, Any]],
    *,
    workload: Workload,
    foreign_limit: float,
    known: Mapping[str, Any],
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """results.json from its phases."""
    found = table([row for phase in phases.values() for row in phase["rows"]], foreign_limit)
    failures = {
        key: reason
        for phase, entry in phases.items()
        for name, reason in entry["failures"].items()
        for key in (f"{name}/{phase}", name)
    }
    stable, missing = ratios(found, FORMULAS, failures)
    other, _ = ratios(found, OTHER_FORMULAS, failures)
    return {
        "ratios": stable,
        "other_ratios": other,
        "missing": missing,
        "failures": failures,
        "machine": known,
        "versions": versions,
        "repeats": smallest_repeats(found),
        "foreign_limit": foreign_limit,
        "workload": workload.to_table(),
        "phases": phases,
    }


def kept_phases(
    path: Path, workload: Workload, versions: Mapping[str, str], processor: str
) -> dict[str, dict[str, Any]]:
    """The phases of an earlier run of the same work, versions and processor; else none."""
    if not path.exists():
        return {}
    earlier = json.loads(path.read_text(encoding="utf-8"))
    same = (
        earlier["workload"] == workload.to_table()
        and earlier["versions"] == dict(versions)
        and earlier["machine"]["processor"] == processor
    )
    return dict(earlier["phases"]) if same else {}


def main(given: Sequence[str] | None = None) -> int:
    chosen = arguments(given)
    console = Console(stderr=True)
    workload = SMALL if chosen.small else FULL
    rules = Rules(
        repeats=chosen.repeats,
        retries=chosen.retries,
        foreign_limit=chosen.foreign_limit,
        deadline=60 * chosen.minutes,
    )
    output: Path = chosen.output
    logs = output.parent / "logs" if chosen.small else HERE.parent / "runs" / "bench-logs"
    logs.mkdir(parents=True, exist_ok=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    known, versions = machine.describe(), machine.versions()
    phases = kept_phases(output, workload, versions, known["processor"])
    command = shlex.join(["python", "-m", "benchmarks.run", *(given or sys.argv[1:])])
    results: dict[str, Any] = {}
    for name in [phase for phase in PHASES if phase in chosen.only]:
        phase = Phase(
            name,
            contenders(name, chosen.contenders, chosen.small),
            workload,
            rules,
            logs,
            lambda line: console.print(line, highlight=False, markup=False),
        )
        result = phase.run()
        rules = replace(rules, deadline=rules.deadline - result.seconds)
        phases[name] = phase_entry(result, command, rules, known["code"])
        results = assemble(
            {each: phases[each] for each in PHASES if each in phases},
            workload=workload,
            foreign_limit=chosen.foreign_limit,
            known=known,
            versions=versions,
        )
        output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    screen = Console()
    if not screen.is_terminal:
        screen = Console(width=_WIDTH)
    render.print_tables(results, screen)
    console.print(f"written: {output}, {render.write(output)}", highlight=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
