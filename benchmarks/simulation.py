"""What `groupwise simulate` predicts beside what runs take: here, and as others published it.

    python -m benchmarks.simulation               # about 4 minutes of processor time
    python -m benchmarks.simulation --published   # computes the second table alone

Here: each recipe runs once with its own settings and once with each of some others, every run a
process of its own, timed in processor seconds of one thread. The first run's phases calibrate the
model, which then predicts the others from that run's lengths. Published: the step times of NeMo RL
0.4 on H100 GPUs, predicted without any calibration. Prints Markdown; the first form writes
`benchmarks/simulation.json`, which tests/simulation holds to 20 %.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.plan import QUIET, in_processor_time
from groupwise.planning import Hardware, Plan, PlanInputs, gpu_named, plan, shape_from_config
from groupwise.simulation import (
    Costs,
    Layout,
    Outcome,
    Phases,
    calibrated,
    lognormal,
    recorded_lengths,
    recorded_phases,
    simulate,
)

HERE = Path(__file__).parent
RUNS: dict[str, list[dict[str, Any]]] = {
    "tiny_arithmetic": [
        {},
        {"sampling.group_size": 32},
        {"training.prompts_per_step": 8},
        {"training.prompts_per_step": 96},
        {"training.minibatches": 4},
    ],
    "r1_zero": [{}, {"sampling.group_size": 16}, {"training.prompts_per_step": 4}],
}
"""Of each recipe the first settings calibrate and the others are predicted."""
STEPS = {"training.steps": 25, "checkpoints.every": 0, "environment.audit": False}
ONE = Layout(1, 1, True)

MODELS = {
    "Llama-3.1-8B": shape_from_config(
        {
            "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
            "num_hidden_layers": 32, "intermediate_size": 14336, "vocab_size": 128256,
        }
    ),
    "Qwen3-32B": shape_from_config(
        {
            "hidden_size": 5120, "num_attention_heads": 64, "num_key_value_heads": 8,
            "head_dim": 128, "num_hidden_layers": 64, "intermediate_size": 25600,
            "vocab_size": 151936,
        }
    ),
}  # fmt: skip
PUBLISHED: list[tuple[str, Layout, int, int, float]] = [
    ("Llama-3.1-8B", Layout(16, 16, True), 0, 1060, 97.7),
    ("Llama-3.1-8B", Layout(8, 8), 1, 1129, 74.6),
    ("Qwen3-32B", Layout(32, 32, True), 0, 3206, 393.0),
    ("Qwen3-32B", Layout(32, 32), 1, 3207, 215.0),
]
"""(model, layout, staleness, mean tokens of a completion, seconds of a step): the dense models of
docs/about/performance-summary.md in github.com/NVIDIA-NeMo/RL (version 0.4), with the layouts of
its recipes (examples/configs/recipes/llm/performance)."""


def of_published(model: str, layout: Layout, staleness: int, mean: float) -> Outcome:
    """64 prompts x 32 completions, 4096 positions, 4 updates a step, a reference: from the recipes.
    Assumed: prompts of 120 tokens, lengths of spread 0.8, micro-batches of 16,384 tokens."""
    made = plan(
        PlanInputs(
            model=model, shape=MODELS[model], train_prompts=10_000, evaluated_prompts=1,
            longest_prompt=120, mean_prompt=120.0, prompts_per_step=64, group_size=32,
            max_tokens=4096 - 120, steps=1, minibatches=4, micro_batch_tokens=16_384,
            dtype="bfloat16", reference=True, gradient_checkpointing=True,
        )
    )  # fmt: skip
    costs = Costs(plan=made, hardware=gpu_named("h100"))
    lengths = lognormal(mean, 0.8, made.inputs.max_tokens)
    return simulate(costs, layout, lengths, staleness=staleness)


def plan_with(name: str, changes: Mapping[str, Any]) -> Plan:
    """The plan of a recipe under other settings."""
    from groupwise.recipe import find_recipe, load_recipe
    from groupwise.training.planned import plan_of
    from groupwise.training.preparing import prepare

    return plan_of(prepare(load_recipe(find_recipe(name), {**QUIET, **STEPS, **changes})))


def run_one(name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Train once in this process: its phases, its lengths and how fast the machine is."""
    import torch

    import groupwise as gw
    from groupwise.training.planned import hardware_at_hand

    in_processor_time()
    hardware = hardware_at_hand(torch.device("cpu"), torch.float32)
    with tempfile.TemporaryDirectory() as folder:
        run = gw.train(f"{name}.toml", {**QUIET, **STEPS, **changes}, output=Path(folder) / "run")
        lengths = sorted(recorded_lengths(run))
        phases = recorded_phases(run.metric_lines())
    kept = lengths[:: max(1, len(lengths) // 400)]
    return {
        "recipe": name, "changes": changes, "phases": asdict(phases), "lengths": kept,
        "hardware": asdict(hardware),
    }  # fmt: skip


def predicted(known: Mapping[str, Any], changes: Mapping[str, Any]) -> Outcome:
    """A recorded run's recipe under other settings, from that run alone."""
    hardware, lengths = Hardware(**known["hardware"]), known["lengths"]
    recorded = Costs(plan=plan_with(known["recipe"], known["changes"]), hardware=hardware)
    found = calibrated(recorded, Phases(**known["phases"]), lengths)
    costs = replace(recorded, plan=plan_with(known["recipe"], changes), calibration=found)
    return simulate(costs, ONE, lengths, steps=20)


def local_rows(runs: list[dict[str, Any]]) -> list[tuple[str, str, float, float]]:
    """(recipe, settings, predicted, measured seconds of a step) of each run but the first ones."""
    first = {run["recipe"]: run for run in reversed(runs)}
    return [
        (
            run["recipe"],
            ", ".join(f"{key} = {value}" for key, value in run["changes"].items()),
            predicted(first[run["recipe"]], run["changes"]).step,
            sum(run["phases"].values()),
        )
        for run in runs
        if run is not first[run["recipe"]]
    ]


def published_rows() -> list[tuple[str, str, float, float]]:
    """(model, layout, predicted, published seconds of a step)."""
    rows = []
    for model, layout, staleness, mean, seconds in PUBLISHED:
        where = (
            f"{layout.devices} in turn" if layout.colocated
            else f"{layout.samplers} + {layout.learner}, 1 step ahead"
        )  # fmt: skip
        rows.append((model, where, of_published(model, layout, staleness, mean).step, seconds))
    return rows


def markdown(columns: str, rows: list[tuple[str, str, float, float]]) -> str:
    lines = [columns, "|---|---|---|---|---|"]
    lines += [
        f"| {name} | {what} | {ours:.3g} s | {theirs:.3g} s | {ours / theirs - 1:+.0%} |"
        for name, what, ours, theirs in rows
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--one", nargs=2, help="one run, in this process: recipe, settings (JSON)")
    parser.add_argument("--published", action="store_true", help="the published table alone")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run_one(options.one[0], json.loads(options.one[1]))))
        return
    if not options.published:
        runs = []
        for name, settings in RUNS.items():
            for changes in settings:
                command = [sys.executable, "-m", "benchmarks.simulation", "--one", name]
                done = subprocess.run(
                    [*command, json.dumps(changes)], capture_output=True, text=True, check=False,
                    cwd=HERE.parent,
                )  # fmt: skip
                if done.returncode:
                    raise SystemExit(f"{name} {changes}:\n{done.stderr}")
                runs.append(json.loads(done.stdout.splitlines()[-1]))
                print(name, changes, runs[-1]["phases"], file=sys.stderr, flush=True)
        (HERE / "simulation.json").write_text(f"{json.dumps(runs)}\n", encoding="utf-8")
        print(markdown("| recipe | settings | predicted | measured | error |", local_rows(runs)))
    print(markdown("| model | H100 GPUs | predicted | published | error |", published_rows()))


if __name__ == "__main__":
    main()
