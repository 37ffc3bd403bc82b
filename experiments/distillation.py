"""Students of one teacher: forms of on-policy distillation, traces, RL, and untrained teachers.

    python experiments/distillation.py runs/distillation

The teacher is the first stage of recipes/on_policy_distillation.toml; every other run starts from
the untrained policy and is that recipe's or recipes/distil_r1.toml's student with another seed.
Prints the tables of docs/distillation.md; finished runs are read, not run again.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import groupwise as gw
from groupwise.templates import Template

RECIPES = Path(__file__).parents[1] / "recipes"
SEEDS = (0, 1, 2)
FORMS: dict[str, dict[str, Any]] = {
    "reverse_kl": {"form": "reverse_kl"},
    "forward_kl": {"form": "forward_kl"},
    "jsd": {"form": "jsd"},
    "reverse_kl, top 8 and the rest": {"form": "reverse_kl", "top_k": 8},
    "reverse_kl, top 32 and the rest": {"form": "reverse_kl", "top_k": 32},
    "sampled": {"form": "sampled"},
}


def recipe(file: str, *names: str, **changes: Any) -> dict[str, Any]:
    """A shipped pipeline with some of its stages, a seed, and fields of the last one replaced."""
    table = tomllib.loads((RECIPES / file).read_text(encoding="utf-8"))
    del table["small"]
    table["stages"] = [each for each in table["stages"] if each["name"] in names]
    table["seed"] = changes.pop("seed", 0)
    table["stages"][-1] |= changes
    return table


def run(folder: Path, table: Mapping[str, Any]) -> dict[str, Any]:
    """The last stage's entry of the summary."""
    made = gw.train(table, output=folder, resume=True)
    found: dict[str, Any] = made.summary["stages"][-1]
    return found


def compute(folder: Path, stage: str) -> int:
    """Tokens sampled, plus three times those trained."""
    place = folder / "stages" / stage
    tokens = int(gw.open_run(place).summary["tokens"])
    written = place / "traces.jsonl"
    if not written.is_file():
        return 4 * tokens
    template = Template.from_folder(place / "model")
    lines = [json.loads(line) for line in written.read_text(encoding="utf-8").splitlines()]
    return 3 * tokens + sum(len(template.encode(each["text"])) + 1 for row in lines for each in row)


def row(name: str, folder: Path, tables: Mapping[int, Mapping[str, Any]]) -> str:
    """One line of a table: held-out sampled accuracy of every seed, length, compute."""
    found = {seed: run(folder / f"{name}-{seed}", table) for seed, table in tables.items()}
    stage = next(iter(tables.values()))["stages"][-1]["name"]
    last = [each["last"]["guard/heldout"] for each in found.values()]
    lengths = [each["last"]["guard/tokens_mean"] for each in found.values()]
    costs = [compute(folder / f"{name}-{seed}", stage) for seed in tables]
    shown = ", ".join(f"{100 * each:.1f}" for each in last)
    return (
        f"| {name} | {shown} | {100 * mean(last):.1f} % | {mean(lengths):.1f} "
        f"| {mean(costs) / 1000:,.0f} k |"
    )


def main(folder: Path) -> None:
    first = run(folder / "teacher", recipe("on_policy_distillation.toml", "teacher"))
    before, after = (first[when]["guard/heldout"] for when in ("first", "last"))
    print(f"untrained {before:.3f}, teacher {after:.3f}", flush=True)
    teacher = {"name": str(folder.absolute() / "teacher" / first["output"])}
    untrained = {"name": "tiny-reasoner"}
    quick = {"evaluation": {"every": 0, "max_prompts": 8}}
    students = {
        name: {
            "teacher": teacher,
            "algorithm": {
                "preset": "on_policy_distillation",
                "extras": [{"kind": "distillation", **fields}],
            },
        }
        for name, fields in FORMS.items()
    } | {"untrained teacher": {"teacher": untrained}}
    for name, changes in students.items():
        tables = {
            seed: recipe("on_policy_distillation.toml", "student", seed=seed, **changes, **quick)
            for seed in SEEDS
        }
        print(row(name, folder, tables), flush=True)
    for name, changes in (
        ("distilled", {"teacher": teacher}),
        ("direct", quick),
        ("control", {"teacher": untrained}),
    ):
        tables = {seed: recipe("distil_r1.toml", name, seed=seed, **changes) for seed in SEEDS}
        print(row(name, folder, tables), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
