"""Repair of failed programs against more samples, at equal sampled tokens; 5 seeds.

`tiny_code` answers training prompts of recipes/code_rl.toml; a supervised stage learns what
passes. Prompts without a passing program are asked again, with a failed one and its error; the
other arm samples as many tokens at once. Writes its section of docs/rejection.md.

    python experiments/repair.py    # some minutes of one core
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from pathlib import Path
from statistics import fmean
from typing import Any

from rejection import PAGE, REPAIR, ROOT, interval

import groupwise as gw

RECIPE = ROOT / "recipes" / "code_rl.toml"
RUNS = ROOT / "runs" / "repair"
SEEDS = (0, 1, 2, 3, 4)
STUDENT = 2.776
"""The 97.5 % point of Student's t with 4 degrees of freedom."""
PROMPTS = 40
SAMPLES = 2
WITH, WITHOUT = "with repair", "without repair"


def pipeline(seed: int, samples: int, *, repair: bool) -> dict[str, Any]:
    """A rejection stage and a supervised one on its rows."""
    code = tomllib.loads(RECIPE.read_text(encoding="utf-8"))
    sampling = {**code["sampling"], "group_size": samples}
    drawn: dict[str, Any] = {"name": "draw", "kind": "rejection", "sampling": sampling}
    if repair:
        drawn["repair"] = {"wording": "{reason}", "samples": SAMPLES}
    learn = {"learning_rate": 5e-4, "epochs": 4, "examples_per_step": 16}
    return {
        "seed": seed,
        "model": code["model"],
        "environment": {**code["environment"], "num_train": PROMPTS},
        "evaluation": {"samples": 8, "splits": ["heldout"]},
        "stages": [
            drawn,
            {"name": "learn", "kind": "supervised", "data": {"stage": "draw"}, "training": learn},
        ],
    }


def counts(run: Any) -> Counter[str]:
    """Traces of the rejection stage by how they came about, and of these the correct ones."""
    found: Counter[str] = Counter()
    for name in ("data.jsonl", "dropped.jsonl"):
        for line in (Path(run.folder) / "stages" / "draw" / name).read_text("utf-8").splitlines():
            row = json.loads(line)
            right = row["outcome"] == "correct"
            found.update([row["how"], *([f"{row['how']} right"] if right else [])])
    return found


def cells(run: Any) -> list[str]:
    """Held-out accuracy, sampled tokens, right programs, right repairs, rows that are learned."""
    draw, learn = run.summary["stages"]
    found = counts(run)
    return [
        f"{draw['first']['guard/accuracy']:.1%} to {learn['last']['guard/accuracy']:.1%}",
        f"{draw['last']['traces/tokens']:,}",
        f"{found['sampled right']} of {found['sampled']}",
        f"{found['repaired right']} of {found['repaired']}" if found["repaired"] else "",
        str(draw["last"]["traces/kept"]),
    ]


def section(found: dict[str, list[Any]]) -> str:
    lines = [
        "| arm | seed | right, held out | sampled tokens | right | repairs that are right | rows |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm, runs in found.items():
        lines += [
            f"| {arm} | {seed} | {' | '.join(cells(run))} |"
            for seed, run in zip(SEEDS, runs, strict=True)
        ]
    tokens, ends = (
        {arm: [float(run.summary["stages"][at]["last"][name]) for run in runs]
         for arm, runs in found.items()}
        for at, name in ((0, "traces/tokens"), (1, "guard/accuracy"))
    )  # fmt: skip
    more = [one - two for one, two in zip(ends[WITH], ends[WITHOUT], strict=True)]
    whole = sum((counts(run) for run in found[WITH]), Counter[str]())
    first, again = (whole[f"{how} right"] / whole[how] for how in ("sampled", "repaired"))
    mean, low, high = interval(more, STUDENT)
    dearer = fmean(tokens[WITHOUT]) / fmean(tokens[WITH]) - 1
    return f"""{REPAIR}

## Repair

`tiny_code` ([what it is](code_rl.md)) writes {SAMPLES} programs for each of {PROMPTS} functions.
Where none passes, `with repair` sends a failed one back with its error (`case 1 of 6: gave 57`),
and samples {SAMPLES} more; what passes is learned as the answer to the question. `without repair`
samples {SAMPLES + 1} programs at once: {dearer:+.1%} tokens. A supervised stage then learns the
rows, 4 times each.

{chr(10).join(lines)}

Right are {again:.0%} of the repairs and {first:.0%} of the first programs (`tiny_code` was taught
repairs that are right half of the time). Held out after learning, with repair less without, per
seed: {mean:+.1%} ({low:+.1%} to {high:+.1%}; {len(SEEDS)} seeds, 30 held-out functions, 8 samples
each). {verdict(low, high)}

Run it: `python experiments/repair.py`.
"""


def verdict(low: float, high: float) -> str:
    if low > 0:
        return "A failed program is worth more than another draw: its prompt gets a row at all."
    if high < 0:
        return "Other draws are worth more than repairs here."
    return "The interval holds 0: repair is not told apart from more draws here."


def main() -> None:
    found: dict[str, list[Any]] = {WITH: [], WITHOUT: []}
    for seed in SEEDS:
        for arm, samples in ((WITH, SAMPLES), (WITHOUT, SAMPLES + 1)):
            made = pipeline(seed, samples, repair=arm == WITH)
            folder = RUNS / f"{arm.replace(' ', '_')}-{seed}"
            run = gw.train(made, output=folder, resume=True)
            found[arm].append(run)
            print(arm, seed, *cells(run), f"{float(run.summary['seconds']):.0f} s", flush=True)
    before = PAGE.read_text(encoding="utf-8").partition(REPAIR)[0]
    PAGE.write_text(f"{before.rstrip()}\n\n{section(found)}", encoding="utf-8")


if __name__ == "__main__":
    main()
