"""What deleting the critic saves: memory, step time, and accuracy at equal samples, measured.

    python -m benchmarks.ppo_comparison tiny            # about 5 minutes on 2 cores
    python -m benchmarks.ppo_comparison smollm2-135m    # about 8 minutes

Every run is a process of its own, so that its peak memory is its own: the largest resident size
minus what the imports took. All methods of a model see the same prompts, the same number of
completions and the same policy learning rate; the critic's is ten times that. Prints Markdown and
writes `benchmarks/ppo_comparison_<model>.json`. Left out: a search over learning rates.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

METHODS: dict[str, dict[str, Any]] = {
    "grpo": {"algorithm": {"preset": "grpo", "kl_coef": 0.0}},
    "grpo, reference": {"algorithm": {"preset": "grpo", "kl_coef": 0.04}},
    "rloo": {"algorithm": {"preset": "rloo", "kl_coef": 0.0}},
    "ppo": {"algorithm": {"preset": "ppo", "kl_coef": 0.0}},
    "ppo, reference": {"algorithm": {"preset": "ppo", "kl_coef": 0.05}},
    "ppo, shared trunk": {
        "algorithm": {"preset": "ppo", "kl_coef": 0.0},
        "training.critic": "shared",
    },
}

MODELS: dict[str, dict[str, Any]] = {
    "tiny": {
        "recipe": {
            "model": {"name": "tiny"},
            "environment": {"name": "arithmetic", "level": "table"},
            "sampling": {"group_size": 8, "max_tokens": 4},
            "training": {"prompts_per_step": 32, "steps": 60, "learning_rate": 1e-4},
            "evaluation": {"every": 0, "samples": 16},
            "checkpoints": {"every": 0, "keep": 1},
        },
        "methods": tuple(METHODS),
        "seeds": (0, 1, 2),
    },
    "smollm2-135m": {
        "recipe": {
            "model": {"name": "smollm2-135m"},
            "environment": {
                "name": "arithmetic", "level": "below_20", "phrasing": "question",
                "system": "Answer briefly.", "num_heldout": 32,
            },
            "sampling": {"group_size": 8, "max_tokens": 16},
            "training": {
                "prompts_per_step": 4, "steps": 12, "learning_rate": 1e-5,
                "micro_batch_tokens": 1024,
            },
            "evaluation": {"every": 0, "samples": 4, "splits": ["heldout"]},
            "checkpoints": {"every": 0, "keep": 1},
        },
        "methods": ("grpo", "grpo, reference", "ppo, reference"),
        "seeds": (0,),
    },
}  # fmt: skip


@dataclass(frozen=True)
class Result:
    """One run. Bytes beyond the imports; seconds are medians over the steps but the first."""

    method: str
    seed: int
    peak_bytes: int
    planned_bytes: int
    step_seconds: float
    learn_seconds: float
    completions: int
    accuracy_before: float
    accuracy_after: float
    reward_last: float


def run_one(model: str, method: str, seed: int) -> Result:
    """Train once in this process."""
    import torch

    import groupwise as gw
    from groupwise.learner import peak_memory_bytes
    from groupwise.recipe import load_recipe
    from groupwise.training.planned import plan_of
    from groupwise.training.preparing import prepare

    recipe = {**MODELS[model]["recipe"], "seed": seed, "algorithm": METHODS[method]["algorithm"]}
    overrides = {key: value for key, value in METHODS[method].items() if key != "algorithm"}
    planned = plan_of(prepare(load_recipe(recipe, overrides))).memory.peak
    before = peak_memory_bytes(torch.device("cpu"))
    with tempfile.TemporaryDirectory() as folder:
        run = gw.train(recipe, overrides, output=Path(folder) / "run")
        lines = run.metrics().to_pylist()
        summary = run.summary
        rollouts = len(run.rollouts())
    later = lines[1:]
    return Result(
        method=method,
        seed=seed,
        peak_bytes=lines[-1]["memory/peak_bytes"] - before,
        planned_bytes=planned,
        step_seconds=statistics.median(line["seconds/step"] for line in later),
        learn_seconds=statistics.median(
            line["seconds/learn"] + line["seconds/logprobs"] for line in later
        ),
        completions=rollouts,
        accuracy_before=summary["eval/accuracy_first"],
        accuracy_after=summary["eval/accuracy_last"],
        reward_last=statistics.fmean(line["reward"] for line in lines[-5:]),
    )


def run_all(model: str) -> list[Result]:
    """Every method and seed, each in a process of its own."""
    results = []
    for seed in MODELS[model]["seeds"]:
        for method in MODELS[model]["methods"]:
            command = [sys.executable, "-m", "benchmarks.ppo_comparison", model]
            command += ["--method", method, "--seed", str(seed)]
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, cwd=HERE.parent
            )
            if done.returncode:
                raise SystemExit(f"{method}, seed {seed}:\n{done.stderr}")
            results.append(Result(**json.loads(done.stdout.splitlines()[-1])))
            print(results[-1], file=sys.stderr)
    return results


def markdown(results: list[Result]) -> str:
    """One row a method: largest memory and fastest seed (a busy machine only adds time), mean
    accuracy over seeds with its range."""
    rows = [
        "| method | peak memory | planned | step | log-probabilities and learning | "
        "completions | accuracy before | after |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for method in dict.fromkeys(result.method for result in results):
        own = [result for result in results if result.method == method]

        memory = max(result.peak_bytes for result in own) / 1e6
        step = min(result.step_seconds for result in own)
        learn = min(result.learn_seconds for result in own)
        after = [result.accuracy_after for result in own]
        spread = f" ({min(after):.1%} to {max(after):.1%})" if len(after) > 1 else ""
        rows.append(
            f"| {method} | {memory:,.0f} MB | {own[0].planned_bytes / 1e6:,.0f} MB "
            f"| {step:.3g} s | {learn:.3g} s "
            f"| {own[0].completions:,} "
            f"| {statistics.fmean(result.accuracy_before for result in own):.1%} "
            f"| {statistics.fmean(after):.1%}{spread} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=list(MODELS))
    parser.add_argument("--method", choices=list(METHODS), help="one run, in this process")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    if chosen.method is not None:
        print(json.dumps(asdict(run_one(chosen.model, chosen.method, chosen.seed))))
        return
    start = time.perf_counter()
    results = run_all(chosen.model)
    text = markdown(results)
    made = {
        "model": chosen.model,
        "machine": f"{platform.processor() or platform.machine()}, {platform.system()}",
        "seconds": round(time.perf_counter() - start, 1),
        "results": [asdict(result) for result in results],
    }
    target = HERE / f"ppo_comparison_{chosen.model}.json"
    target.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    print(f"{text}\n\n{made['seconds']} s; written to {target}")


if __name__ == "__main__":
    main()
