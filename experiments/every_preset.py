"""Every preset trains the built-in tiny policy: 30 steps, 3 seeds, and the reward must rise.

Asserts, for every preset and seed, that the mean reward of the last 5 steps exceeds that of the
first 5, and writes docs/every_preset.md. Left out: how good a method is. One small task cannot
rank methods; this shows that each one, as composed, moves the policy the right way.

    python experiments/every_preset.py                      # all; some minutes on one core
    python experiments/every_preset.py --presets grpo rloo --seeds 0
    python experiments/every_preset.py --fresh              # not from the runs that are there

Finished runs in the folder are read, not repeated, so it can be interrupted. A preset that a recipe
cannot train yet is named with the reason, and not in the table.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import groupwise as gw
from groupwise.algorithms import PRESETS, Algorithm, preset
from groupwise.errors import RecipeError
from groupwise.recipe import load_recipe
from groupwise.training.preparing import prepare

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "every_preset.md"
RUNS = ROOT / "runs" / "every_preset"
SEEDS = (0, 1, 2)
STEPS = 30
EDGE = 5
GROUP_SIZE = 8
ROWS_PER_STEP = 128
MAX_TOKENS = {"arithmetic": 4, "target_token": 12}
FORMAT = {
    "name": "regex",
    "label": "digits",
    "weight": 0.2,
    "arguments": {"pattern": r"^\d+$"},
}


@dataclass(frozen=True)
class Result:
    """One run: mean reward of its first and of its last 5 steps."""

    name: str
    seed: int
    first: float
    last: float

    @property
    def learned(self) -> bool:
        return self.last > self.first


def learning_rate(algorithm: Algorithm) -> float:
    """By what the parts do, not by name; AdamW hardly sees the size of a gradient.

    5e-4 where a token's weight is only capped or gated while its ratio grows, where the mask
    silences both directions, and where advantages are not centred (ReMax: a right greedy completion
    leaves only negative ones); 1e-3 where there is no ratio or a bound ends the push.
    """
    return 5e-4 if algorithm.surrogate.wide or algorithm.baseline.kind == "greedy" else 1e-3


def recipe_of(name: str, seed: int, steps: int = STEPS) -> dict[str, Any]:
    """The whole recipe of one run.

    128 completions a step in groups of 8 (pairs where the preset takes exactly two), and two
    optimiser updates a step, so that ratios differ from 1 and every clip, gate and cap acts.
    """
    algorithm = preset(name)
    group_size = algorithm.needs.group_size or GROUP_SIZE
    environment: dict[str, Any] = {"name": "arithmetic", "level": "table"}
    if algorithm.needs.components:
        environment["verifiers"] = [{"name": "number"}, FORMAT]
    if algorithm.needs.step_rewards:
        environment = {"name": "target_token", "kind": "share"}
    return {
        "seed": seed,
        "model": {"name": "tiny"},
        "environment": environment,
        "algorithm": {"preset": name},
        "sampling": {"group_size": group_size, "max_tokens": MAX_TOKENS[environment["name"]]},
        "training": {
            "prompts_per_step": ROWS_PER_STEP // group_size,
            "steps": steps,
            "minibatches": 2,
            "learning_rate": learning_rate(algorithm),
        },
        "evaluation": {"every": 0, "samples": 1, "max_prompts": 1},
        "checkpoints": {"every": 0},
    }


def refusal(name: str) -> str:
    """Why a recipe cannot train the preset, "" where it can."""
    try:
        prepare(load_recipe(recipe_of(name, 0)))
    except RecipeError as error:
        return str(error)
    return ""


def trainable() -> list[str]:
    """The presets that a recipe can train."""
    return [name for name in PRESETS if not refusal(name)]


def measure(name: str, seed: int, steps: int = STEPS, folder: Path = RUNS) -> Result:
    """Train (or read the finished run of the same recipe) and compare both ends."""
    output = folder / f"{name}-{seed}-{steps}"
    run = gw.train(recipe_of(name, seed, steps), output=output, resume=True)
    rewards = [row["reward"] for row in run.metrics().to_pylist()]
    return Result(name, seed, mean(rewards[:EDGE]), mean(rewards[-EDGE:]))


def table(results: Sequence[Result]) -> str:
    """docs/every_preset.md."""
    seeds = sorted({result.seed for result in results})
    head = ["preset", "learning rate", "group", *(f"seed {seed}" for seed in seeds)]
    lines = [
        "# Every preset trains",
        "",
        f"The built-in tiny policy on single-digit sums: {STEPS} steps of {ROWS_PER_STEP} "
        "completions, two optimiser updates a step, AdamW at 1e-3; 5e-4 where the surrogate only "
        "caps or gates a growing ratio or silences both directions, and where advantages are not "
        f"centred. Each cell is the mean reward of the first {EDGE} steps and of the last {EDGE}; "
        "the experiment fails where one does not rise.",
        "",
        "This shows that each method, as composed, moves a policy the right way. It does not rank "
        "them: rewards differ (a KL term or a second verifier is part of some), every preset has "
        "the defaults of its paper, and the task is small.",
        "",
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
    ]
    for name in dict.fromkeys(result.name for result in results):
        algorithm = preset(name)
        mine = {result.seed: result for result in results if result.name == name}
        cells = [
            f"[`{name}`](generated/algorithms/{name}.md)",
            f"{learning_rate(algorithm):g}",
            str(algorithm.needs.group_size or GROUP_SIZE),
            *(f"{mine[seed].first:.3f} → {mine[seed].last:.3f}" for seed in seeds),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "`gdpo` has two verifiers (the number, and 0.2 for digits alone): its rewards reach 1.2. "
        "`grpo_process` needs step rewards, which sums do not have: it learns to write the digit "
        "7, rewarded for every character.",
        "",
        "Made by `python experiments/every_preset.py`.",
        "",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, print each result, write the page if all presets and seeds were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--presets", nargs="+", choices=list(PRESETS), default=None)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--folder", type=Path, default=RUNS)
    parser.add_argument("--fresh", action="store_true", help="delete the runs that are there")
    options = parser.parse_args(arguments)
    if options.fresh:
        shutil.rmtree(options.folder, ignore_errors=True)
    results = []
    for name in options.presets or PRESETS:
        reason = refusal(name)
        if reason:
            print(f"{name}: left out: {reason}")
            continue
        for seed in options.seeds:
            result = measure(name, seed, folder=options.folder)
            results.append(result)
            verdict = "" if result.learned else "   DID NOT LEARN"
            print(
                f"{name} seed {seed}: {result.first:.3f} -> {result.last:.3f}{verdict}", flush=True
            )
    failed = [f"{result.name} (seed {result.seed})" for result in results if not result.learned]
    if failed:
        print(f"did not learn: {', '.join(failed)}", file=sys.stderr)
        return 1
    if options.presets is None and tuple(options.seeds) == SEEDS:
        PAGE.write_text(table(results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
