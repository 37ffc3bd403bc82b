"""How often the doctor names a fault, how soon, and how often it alarms on a healthy run.

    python experiments/doctor.py --seeds 0 1            # planted.py's runs; a JSON line a run
    python experiments/doctor.py --seeds 0 1 2 3 --table
    python experiments/doctor.py --seeds 0 1 --again    # the rules have changed, the runs have not

A finished run is read, not repeated, so it can be interrupted. What was named is taken where
`groupwise train` looks (every 10 steps, and at the end); the first step that names it, from the
record as it was after each step. Thresholds are set on the even seeds, and the table is of the odd
ones. A second finding of a planted run is not counted as an alarm: faults bring others with them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from planted import FAULTS, HEALTHY, recipe_of

import groupwise as gw
from groupwise.doctor import diagnose
from groupwise.errors import GroupwiseError
from groupwise.intervals import wilson_interval

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "runs" / "doctor"
LOOKS = 10


def play(name: str, seed: int, folder: Path) -> tuple[gw.Run, float]:
    """The finished run, trained where it is not there, and the processor seconds it took."""
    output = folder / f"{name.replace(' ', '_')}-{seed}"
    ended = (output / "summary.json").exists() and gw.open_run(output).summary["status"] in (
        "finished",
        "failed",
    )
    if ended:
        return gw.open_run(output), 0.0
    shutil.rmtree(output, ignore_errors=True)
    begun = time.process_time()
    recipe, changes = recipe_of(name, seed)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            gw.train(recipe, changes, output=output)
    except GroupwiseError:
        if name != "run_failed":
            raise
    return gw.open_run(output), time.process_time() - begun


def named(run: gw.Run) -> dict[str, Any]:
    """Each kind above information: the first step that names it, and whether a look did."""
    first: dict[str, int] = {}
    looked: set[str] = set()
    last = len(run.steps)
    for steps in range(1, last + 1):
        found = diagnose(run, steps)
        kinds = [f.kind for f in (*found.findings, *found.waiting) if f.level != "info"]
        for kind in kinds:
            first.setdefault(kind, steps)
        if steps % LOOKS == 0 or steps == last:
            looked.update(kinds)
    return {"steps": last, "first": first, "looked": sorted(looked), "end": kinds}


def results(
    names: Sequence[str], seeds: Sequence[int], folder: Path, again: bool
) -> Iterator[dict[str, Any]]:
    """A line a run: those of the file, and the others as they finish."""
    path = folder / "results.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    if again:
        path.unlink(missing_ok=True)
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    done = {(line["name"], line["seed"]): line for line in map(json.loads, lines)}
    for seed in seeds:
        for name in names:
            if (name, seed) not in done:
                run, seconds = play(name, seed, folder)
                line = {"name": name, "seed": seed, "seconds": round(seconds, 1), **named(run)}
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                done[name, seed] = line
                print(seed, name, line["looked"], flush=True)
            yield done[name, seed]


def share(count: int, number: int) -> str:
    low, high = wilson_interval(count / number, number)
    return f"{count} of {number} ({low:.0%} to {high:.0%})"


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Of the odd seeds: how often each fault was named, and what healthy runs were called."""
    odd = [line for line in lines if line["seed"] % 2]
    rows = ["| planted | named (95 % interval) | first named after, median | also named |",
            "|---|---|---|---|"]  # fmt: skip
    caught = planted = 0
    for name in FAULTS:
        mine = [line for line in odd if line["name"] == name]
        if not mine:
            continue
        hits = [line["first"][name] for line in mine if name in line["looked"]]
        caught, planted = caught + len(hits), planted + len(mine)
        when = f"{median(hits):.0f} of {mine[0]['steps']} steps" if hits else "-"
        others = Counter(k for line in mine for k in line["looked"] if k != name).most_common(3)
        rows.append(
            f"| `{name}` | {share(len(hits), len(mine))} | {when} | "
            f"{', '.join(f'`{kind}` {number}' for kind, number in others)} |"
        )
    healthy = [line for line in odd if line["name"] in HEALTHY]
    alarms = [line for line in healthy if line["looked"]]
    said = Counter(kind for line in alarms for kind in line["looked"])
    rows += ["", f"All planted: {share(caught, planted)}. Healthy runs with a finding above info: "
             f"{share(len(alarms), len(healthy))} {dict(said) or ''}"]  # fmt: skip
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--names", nargs="+", choices=[*FAULTS, *HEALTHY], default=None)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--folder", type=Path, default=RUNS)
    parser.add_argument("--again", action="store_true", help="apply the rules to all runs again")
    parser.add_argument("--table", action="store_true", help="print the table of the odd seeds")
    options = parser.parse_args(arguments)
    names = options.names or [*FAULTS, *HEALTHY]
    lines = list(results(names, options.seeds, options.folder, options.again))
    if options.table:
        print(table(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
