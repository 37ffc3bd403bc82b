"""`make bench-growth`: step time and peak memory against length, group size, prompts, model size.

    .venv/bin/python -m benchmarks.growth [--minutes 20] [--small] [--only length group]

Every point is a process of its own: load, a short warm-up, then a step (two where it is short, the
faster counts). Points run from small to large; what would not fit into the time is cut and named.
Then 300 steps of the tiny model, whose memory should stay flat (steady.py). Writes growth.json and
growth.svg. Left out: peers.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import machine
from benchmarks.contenders import BY_NAME
from benchmarks.parent import Failed, Process
from benchmarks.run import SMALL_OUTPUT
from benchmarks.workload import Workload

HERE = Path(__file__).parent
_LARGE = {  # the sizes of SmolLM2-360M
    "hidden_size": 960,
    "num_hidden_layers": 32,
    "num_attention_heads": 15,
    "num_key_value_heads": 5,
    "intermediate_size": 2560,
}
_START = 15.0  # seconds that a process takes to load, guessed before the first one has
_TWICE_UNDER = 10.0  # seconds of a step that is worth a second look
SWEEPS = ("length", "group", "prompts", "model")


@dataclass(frozen=True)
class Point:
    """One step's size within a sweep; `value` is what varies."""

    sweep: str
    value: str
    model: str
    prompts: int
    group: int
    tokens: int

    @property
    def name(self) -> str:
        return f"{self.sweep} {self.value}"

    @property
    def work(self) -> int:
        """New tokens of one step."""
        return self.prompts * self.group * self.tokens


def points(small: bool) -> list[Point]:
    """Every point, sweep by sweep, each from small to large."""
    if small:
        return [
            *(Point("length", str(n), "tiny", 1, 2, n) for n in (8, 16)),
            *(Point("group", str(n), "tiny", 1, n, 8) for n in (2, 4)),
            *(Point("prompts", str(n), "tiny", n, 2, 8) for n in (1, 2)),
            Point("model", "tiny", "tiny", 2, 2, 8),
        ]
    real = "smollm2-135m"
    return [
        *(Point("length", str(n), real, 4, 4, n) for n in (64, 128, 256, 512, 1024)),
        *(Point("group", str(n), real, 2, n, 64) for n in (2, 4, 8, 16, 32, 64)),
        *(Point("prompts", str(n), real, n, 4, 32) for n in (1, 4, 16, 64)),
        *(Point("model", name, name, 4, 4, 64) for name in ("tiny", real, "360m-random")),
    ]


def by_cost(chosen: Sequence[Point]) -> list[Point]:
    """Cheap ones first, so that a short budget cuts the largest; the random model last."""
    return sorted(chosen, key=lambda point: (point.model == "360m-random", point.work))


class Guess:
    """Seconds that a point will take, from the points before it."""

    def __init__(self) -> None:
        self.per_token: dict[str, float] = {}
        self.start = _START

    def seconds(self, point: Point) -> float:
        rate = self.per_token.get(point.model, max(self.per_token.values(), default=0.0))
        return self.start + 1.5 * rate * point.work

    def learn(self, point: Point, start: float, step: float) -> None:
        self.start = start
        self.per_token[point.model] = step / point.work


def measure(point: Point, model: str, timeout: float, log: Path) -> dict[str, Any]:
    """One point in a process of its own. Raises Failed."""
    contender = BY_NAME["groupwise-fp32" if point.model == "tiny" else "groupwise-bf16"]
    workload = Workload(model, point.group, 1, 1, point.prompts, point.tokens, 4)
    began = time.monotonic()
    process = Process(contender, workload, log)
    try:
        process.read(timeout)
        process.ask("step", workload.warmup_tokens, 0, timeout)
        start = time.monotonic() - began
        before = machine.cpu_times([process.pid])
        steps = [process.ask("step", point.tokens, 1, timeout)]
        if steps[0]["seconds"] < _TWICE_UNDER:
            steps.append(process.ask("step", point.tokens, 2, timeout))
        shares = machine.shares(before, machine.cpu_times([process.pid]), process.pid)
    finally:
        process.close()
    best = min(steps, key=lambda step: step["seconds"])
    return {
        "sweep": point.sweep,
        "value": point.value,
        "model": point.model,
        "dtype": contender.dtype,
        "rows": best["rows"],
        **{key: best[key] for key in ("tokens", "seconds", "rollout_seconds", "train_seconds")},
        "peak_bytes": max((step["peak_bytes"] or 0 for step in steps), default=0),
        "foreign": shares["foreign"],
        "start_seconds": start,
    }


@contextmanager
def models() -> Iterator[Mapping[str, str]]:
    """What to load for each model name; the random one is made in a folder that goes away."""
    with tempfile.TemporaryDirectory(prefix="groupwise-360m-") as folder:

        class Made(dict[str, str]):
            def __missing__(self, name: str) -> str:
                self[name] = made = _random_model(Path(folder)) if name == "360m-random" else name
                return made

        yield Made()


def _random_model(folder: Path) -> str:
    """A random model of SmolLM2-360M's shape, with SmolLM2's tokenizer."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from groupwise.policies import fetch_smollm2

    source = fetch_smollm2()
    config = AutoConfig.from_pretrained(source)
    for name, value in _LARGE.items():
        setattr(config, name, value)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    for file in source.iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            shutil.copy(file, folder / file.name)
    return str(folder)


def linearity(found: Sequence[Mapping[str, Any]]) -> float | None:
    """Seconds a token at the longest completions, as a multiple of those at the shortest."""
    lengths = [point for point in found if point["sweep"] == "length"]
    if len(lengths) < 2:
        return None
    rates = [p["seconds"] / p["tokens"] for p in sorted(lengths, key=lambda p: int(p["value"]))]
    return float(rates[-1] / rates[0])


def steady(steps: int, warmup: int, timeout: float) -> dict[str, Any] | None:
    """steady.py in a process of its own; None where it fails, which is said on standard error."""
    command = [sys.executable, "-m", "benchmarks.steady"]
    try:
        done = subprocess.run(
            [*command, "--steps", str(steps), "--warmup", str(warmup)],
            stdout=subprocess.PIPE,
            text=True,
            timeout=timeout,
            check=True,
            cwd=HERE.parent,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"the steps of the tiny model did not end well: {error}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def plot(found: Sequence[Mapping[str, Any]], target: Path) -> None:
    """Seconds above, memory below, a column for each sweep."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = [name for name in SWEEPS if any(point["sweep"] == name for point in found)]
    figure, axes = plt.subplots(2, len(names), figsize=(3.2 * len(names), 5), squeeze=False)
    for column, name in enumerate(names):
        own = [point for point in found if point["sweep"] == name]
        for row, (key, scale, label) in enumerate(
            [("seconds", 1.0, "step, s"), ("peak_bytes", 1e-9, "peak, GB")]
        ):
            panel = axes[row][column]
            values = [point[key] * scale for point in own]
            if name == "model":
                panel.bar([point["value"] for point in own], values)
            else:
                panel.plot([int(point["value"]) for point in own], values, marker="o")
                panel.set_xscale("log", base=2)
            panel.set_ylim(bottom=0)
            panel.set_title(name)
            panel.set_ylabel(label)
    figure.tight_layout()
    figure.savefig(target)
    plt.close(figure)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.growth", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="for the sweeps")
    parser.add_argument("--only", nargs="+", choices=(*SWEEPS, "steady"))
    parser.add_argument("--small", action="store_true", help="the tiny model only: seconds")
    parser.add_argument("--output", type=Path, help="growth.json; growth.svg goes beside it")
    chosen = parser.parse_args(given)
    if chosen.output is None:
        chosen.output = (SMALL_OUTPUT.parent if chosen.small else HERE) / "growth.json"
    chosen.only = chosen.only or [*SWEEPS, "steady"]
    return chosen


def sweep(chosen: Sequence[Point], seconds: float, console: Console) -> dict[str, Any]:
    """Points until the time is up: what was measured, and the names of what was cut."""
    until = time.monotonic() + seconds
    found: list[dict[str, Any]] = []
    cut: list[str] = []
    guess = Guess()
    with models() as sources, tempfile.TemporaryDirectory(prefix="groupwise-growth-") as logs:
        for point in by_cost(chosen):
            left = until - time.monotonic()
            if guess.seconds(point) > left:
                cut.append(point.name)
                continue
            try:
                made = measure(point, sources[point.model], max(left, 60.0), Path(logs) / "log")
            except Failed as failed:
                cut.append(f"{point.name} ({failed})")
                continue
            guess.learn(point, made["start_seconds"], made["seconds"])
            found.append(made)
            console.print(f"{point.name}: {made['seconds']:.2f} s", highlight=False)
    order = {point.name: place for place, point in enumerate(chosen)}
    found.sort(key=lambda made: order[f"{made['sweep']} {made['value']}"])
    return {"points": found, "cut": cut}


def main(given: Sequence[str] | None = None) -> int:
    chosen = arguments(given)
    console = Console(stderr=True)
    output: Path = chosen.output
    output.parent.mkdir(parents=True, exist_ok=True)
    wanted = [point for point in points(chosen.small) if point.sweep in chosen.only]
    made = sweep(wanted, 60 * chosen.minutes, console)
    steps, warmup = (30, 10) if chosen.small else (300, 100)
    made |= {
        "linearity": linearity(made["points"]),
        "steady": steady(steps, warmup, 600.0) if "steady" in chosen.only else None,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": shlex.join(["python", "-m", "benchmarks.growth", *(given or sys.argv[1:])]),
        "machine": machine.describe(),
        "versions": machine.versions(),
    }
    output.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    if made["points"]:
        plot(made["points"], output.with_name("growth.svg"))
    from benchmarks.render import growth_section, write

    console.print("\n".join(growth_section(made)), markup=False, highlight=False)
    results = output.with_name("results.json")
    if results.exists():
        write(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
