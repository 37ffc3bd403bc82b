"""What `groupwise plan` predicts beside what runs take: peak memory and time of a step.

    python -m benchmarks.plan                       # about 6 minutes on 2 quiet cores
    python -m benchmarks.plan --repeats 1 --only tiny_arithmetic
    python -m benchmarks.plan --processor    # one thread, in processor time: for a busy machine

Three recipes, the repeats interleaved, each run a process of its own, so that its peak memory is
its own. The prediction is the run's own record of its plan (the event `planned`, made before
weights load); time is predicted again at the mean length of the run's completions. Prints
Markdown and writes `benchmarks/plan.json`. Left out: verifiers, evaluations, the record.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean, median
from types import SimpleNamespace
from typing import Any

HERE = Path(__file__).parent
RECIPES: dict[str, dict[str, Any]] = {
    "tiny_arithmetic": {"training.steps": 40},
    "tiny_arithmetic_lora": {"training.steps": 40},
    "smollm2_arithmetic": {"training.steps": 2},
}
QUIET = {
    "evaluation.every": 0, "evaluation.samples": 1, "evaluation.max_prompts": 2,
    "training.threads": 1,
}  # fmt: skip
PHASES = ("seconds/rollout", "seconds/logprobs", "seconds/learn")


def in_processor_time() -> None:
    """From now on steps and the machine's speed are timed by this process's processor seconds, on
    one thread: what a quiet machine's wall clock would say, roughly."""
    import torch

    from groupwise.policies import speed
    from groupwise.training import callbacks

    torch.set_num_threads(1)
    clock = SimpleNamespace(perf_counter=time.process_time)
    callbacks.time = speed.time = clock  # type: ignore[assignment]


def run_one(name: str) -> dict[str, float]:
    """Train once in this process: what was planned, and what it took."""
    import groupwise as gw
    from groupwise.planning import step_time
    from groupwise.recipe import find_recipe, load_recipe
    from groupwise.training.planned import own_hardware, plan_of
    from groupwise.training.preparing import prepare

    changes = RECIPES[name] | QUIET
    with tempfile.TemporaryDirectory() as folder:
        run = gw.train(f"{name}.toml", changes, output=Path(folder) / "run")
        lines = run.metrics().to_pylist()
        (planned,) = [event for event in run.events() if event["kind"] == "planned"]
    tokens = fmean(line["completions/tokens_mean"] for line in lines)
    prepared = prepare(load_recipe(find_recipe(name), changes))
    predicted = step_time(plan_of(prepared), own_hardware(prepared), mean_tokens=tokens)
    return {
        "planned_bytes": planned["memory"] + planned["resident"],
        "peak_bytes": lines[-1]["memory/peak_bytes"],
        "planned_seconds": predicted.step,
        "seconds": median(sum(line.get(each) or 0.0 for each in PHASES) for line in lines[1:]),
        "load": os.getloadavg()[0],
    }


def run_all(
    names: list[str], repeats: int, options: list[str]
) -> dict[str, list[dict[str, float]]]:
    """Every recipe once, then every one again."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(repeats):
        for name in names:
            command = [sys.executable, "-m", "benchmarks.plan", "--one", name, *options]
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, cwd=HERE.parent
            )
            if done.returncode:
                raise SystemExit(f"{name}:\n{done.stderr}")
            found[name].append(json.loads(done.stdout.splitlines()[-1]))
            print(name, found[name][-1], file=sys.stderr, flush=True)
    return found


def markdown(results: dict[str, list[dict[str, float]]]) -> str:
    """A row a recipe: medians over the repeats, the range of the measured time."""
    rows = [
        "| recipe | peak planned | measured | error | step planned | measured (range) | error |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, runs in results.items():
        middle = {key: median(run[key] for run in runs) for key in runs[0]}
        seconds = [run["seconds"] for run in runs]
        peak = middle["planned_bytes"] / middle["peak_bytes"] - 1
        error = middle["planned_seconds"] / middle["seconds"] - 1
        rows.append(
            f"| `{name}` | {middle['planned_bytes'] / 1e6:,.0f} MB "
            f"| {middle['peak_bytes'] / 1e6:,.0f} MB | {peak:+.0%} "
            f"| {middle['planned_seconds']:.3g} s | {middle['seconds']:.3g} s "
            f"({min(seconds):.3g} to {max(seconds):.3g}) | {error:+.0%} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--one", choices=list(RECIPES), help="one run, in this process")
    parser.add_argument("--only", nargs="+", choices=list(RECIPES), default=list(RECIPES))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--processor", action="store_true", help="processor time of one thread")
    options = parser.parse_args()
    if options.one:
        if options.processor:
            in_processor_time()
        print(json.dumps(run_one(options.one)))
        return
    more = ["--processor"] if options.processor else []
    results = run_all(options.only, options.repeats, more)
    print(markdown(results))
    loads = [run["load"] for runs in results.values() for run in runs]
    kind = "processor time" if options.processor else "wall time"
    print(f"\n{options.repeats} interleaved repeats, {kind} of one thread")
    print(f"load {min(loads):.1f} to {max(loads):.1f}")
    if options.only == list(RECIPES):
        text = json.dumps(results, indent=1)
        (HERE / "plan.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
