"""How often the doctor names a fault, how soon, and how often it alarms on a healthy run.

    python experiments/doctor.py --seeds 0 1                # planted.py's runs; a JSON line a run
    python experiments/doctor.py --seeds 1 3 5 7 9 --table odd
    python experiments/doctor.py --seeds 0 2 4 6 8 --again  # the rules have changed, not the runs

A finished run is read, not repeated, so it can be interrupted. What was named is taken where
`groupwise train` looks (every 10 steps, and at the end); the first step that names it, from the
record as it was after each step. Thresholds are set on the even seeds, and the table is of the odd
ones. A second finding of a planted run is not counted as an alarm: faults bring others with them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from planted import FAULTS, HEALTHY, INFORMATION, INSIDE, recipe_of

import groupwise as gw
from groupwise.doctor import diagnose
from groupwise.errors import GroupwiseError
from groupwise.intervals import wilson_interval

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "runs" / "doctor"
LOOKS = 10
EVERY = [*FAULTS, *INFORMATION, *HEALTHY]


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
        inside = INSIDE.get(name, contextlib.nullcontext)
        with contextlib.redirect_stdout(io.StringIO()), inside():
            gw.train(recipe, changes, output=output)
    except GroupwiseError:
        if name != "run_failed":
            raise
    return gw.open_run(output), time.process_time() - begun


def named(run: gw.Run, fault: str) -> dict[str, Any]:
    """What the looks named, information apart, and the first step that names each kind: of the
    planted fault exactly, of the others as far as was looked."""
    first: dict[str, int] = {}
    looked: dict[str, bool] = {}
    last = len(run.steps)
    for steps in range(1, last + 1):
        is_look = steps % LOOKS == 0 or steps == last
        if not is_look and (fault in HEALTHY or fault in first):
            continue
        found = diagnose(run, steps)
        levels = {f.kind: f.level != "info" for f in (*found.findings, *found.waiting)}
        for kind in levels:
            first.setdefault(kind, steps)
        if is_look:
            looked |= levels
    said = {"looked": sorted(kind for kind, alarm in looked.items() if alarm),
            "informed": sorted(kind for kind, alarm in looked.items() if not alarm)}  # fmt: skip
    return {"steps": last, "first": first, **said}


def results(
    names: Sequence[str], seeds: Sequence[int], folder: Path, again: bool
) -> Iterator[dict[str, Any]]:
    """A line a run: those of the file, and the others as they finish."""
    path = folder / "results.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    done = {(line["name"], line["seed"]): line for line in map(json.loads, lines)}
    if again:
        for key in itertools.product(names, seeds):
            done.pop(key, None)
        path.write_text("".join(json.dumps(line) + "\n" for line in done.values()), "utf-8")
    for seed in seeds:
        for name in names:
            if (name, seed) not in done:
                run, seconds = play(name, seed, folder)
                line = {
                    "name": name,
                    "seed": seed,
                    "seconds": round(seconds, 1),
                    **named(run, name),
                }
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                done[name, seed] = line
                print(seed, name, line["looked"], flush=True)
            yield done[name, seed]


def share(count: int, number: int) -> str:
    low, high = wilson_interval(count / number, number)
    return f"{count} of {number} ({low:.0%} to {high:.0%})"


def table(lines: Sequence[dict[str, Any]], half: int) -> str:
    """Of the seeds of one half (0 even, 1 odd): how often each fault was named, and what healthy
    runs were called."""
    lines = [line for line in lines if line["seed"] % 2 == half]
    rows = ["| planted | named (95 % interval) | first named after, median | also named |",
            "|---|---|---|---|"]  # fmt: skip
    caught: Counter[bool] = Counter()
    for name in (*FAULTS, *INFORMATION):
        mine = [line for line in lines if line["name"] == name]
        if not mine:
            continue
        heard = "informed" if name in INFORMATION else "looked"
        hits = [line["first"][name] for line in mine if name in line[heard]]
        if name in FAULTS:
            caught.update({True: len(hits), False: len(mine) - len(hits)})
        when = f"{median(hits):.0f} of {mine[0]['steps']} steps" if hits else "-"
        others = Counter(k for line in mine for k in line["looked"] if k != name).most_common(3)
        rows.append(
            f"| `{name}` | {share(len(hits), len(mine))} | {when} | "
            f"{', '.join(f'`{kind}` {number}' for kind, number in others)} |"
        )
    healthy = [line for line in lines if line["name"] in HEALTHY]
    alarms = [line for line in healthy if line["looked"]]
    said = Counter(kind for line in alarms for kind in line["looked"])
    rows += ["", f"All planted: {share(caught[True], caught.total())}. Healthy runs with a finding "
             f"above info: {share(len(alarms), len(healthy))} {dict(said) or ''}"]  # fmt: skip
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--names", nargs="+", choices=EVERY, default=EVERY)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--folder", type=Path, default=RUNS)
    parser.add_argument("--again", action="store_true", help="apply the rules to all runs again")
    parser.add_argument(
        "--table", choices=["even", "odd"], help="print it of one half of the seeds"
    )
    options = parser.parse_args(arguments)
    lines = list(results(options.names, options.seeds, options.folder, options.again))
    if options.table:
        print(table(lines, ["even", "odd"].index(options.table)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
