"""Math-Shepherd on the tiny reasoner: labels, reranking, and RL by the steps' rewards; 3 seeds.

Runs recipes/math_shepherd.toml, and as the control the same rows with shuffled labels; reranks 16
completions of each held-out sum; writes the figures of docs/math_shepherd.md and its curve. Runs
that are there already are read, not run again.

    python experiments/math_shepherd.py --output runs/math_shepherd

Needs matplotlib (`pip install .[docs]`).
"""

from __future__ import annotations

import argparse
import math
import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import groupwise as gw
from groupwise.policies.tiny_reasoner import CHINESE, ENGLISH
from groupwise.records.files import json_line, read_json_lines
from groupwise.scorers import ProcessRewardModel
from groupwise.search.methods import Combine, combine_steps
from groupwise.search.result import Candidate, accuracy_at
from groupwise.search.scoring import read_answer
from groupwise.search.settings import SearchSettings
from groupwise.verifiers import Case
from groupwise.verifiers.process.boundaries import pieces, step_ends

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipes" / "math_shepherd.toml"
PAGE, CURVE = ROOT / "docs" / "math_shepherd.md", ROOT / "docs" / "math_shepherd.svg"
SEEDS = (0, 1, 2)
SAMPLES = 16
STUDENT = 4.303
"""The 97.5 % point of Student's t with 2 degrees of freedom."""
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
_RESULT = re.compile(r"(?: is ([a-z-]+)\.|得(.+)。)\n$")
_NUMBERS = {word: n for each in (ENGLISH, CHINESE) for n, word in enumerate(each.numbers)}


def right_steps(question: str, text: str, correct: bool) -> list[bool | None]:
    """Whether each line of a completion is right: its result is the sum so far, and the last line
    answers correctly. None for a line without a result.

    >>> right_steps("7+8+5=", "<think>first, seven plus eight is fifteen.\\n</think>19", False)
    [True, False]
    """
    operands = [int(each) for each in question.rstrip("=").split("+")]
    place, found = 0, list[bool | None]()
    for line in pieces(text, step_ends(text, "\n"))[:-1]:
        result = _RESULT.search(line)
        number = _NUMBERS.get(result[1] or result[2]) if result else None
        checks = any(each.check in line for each in (ENGLISH, CHINESE))
        place += 0 if checks and place else 1
        found.append(None if number is None else number == sum(operands[: place + 1]))
    return [*found, correct] if text.strip() else []


@dataclass(frozen=True)
class Draws:
    """A seed's completions of the held-out sums: candidates a prompt, and what is judged."""

    groups: list[list[Candidate]]
    cases: list[list[Case]]
    questions: list[str]


def draws(seed: int, prompts: int | None, samples: int) -> Draws:
    table = tomllib.loads(RECIPE.read_text(encoding="utf-8"))
    settings = dict(table["environment"])
    del settings["audit"]
    environment = gw.load_environment(settings.pop("name"), seed=seed, **settings)
    asked = environment.prompts(prompts, split="heldout")
    policy = gw.load_policy(table["model"]["name"])
    made = gw.sample(
        policy, [each.messages for each in asked], group_size=samples, max_tokens=80, seed=seed
    )
    cases = [
        [Case(prompt, each.text, each.token_ids, each.finish_reason) for each in own]
        for prompt, own in zip(asked, made, strict=True)
    ]
    verifier = environment.verifier
    groups = [
        [
            Candidate(c.text, read_answer(verifier, c.text), score.outcome == "correct")
            for c, score in zip(own, environment.score(own), strict=True)
        ]
        for own in cases
    ]
    return Draws(groups, cases, [each.last_text for each in asked])


Steps = list[list[list[float]]]
"""The values of the steps of each completion of each prompt."""


def step_values(found: Draws, model: Path) -> Steps:
    verifier = ProcessRewardModel(model=str(model), batch_rows=64)
    return [[row or [] for row in verifier.step_values(cases)] for cases in found.cases]


def scored(found: Draws, values: Steps, how: Combine = "min") -> list[list[Candidate]]:
    """The candidates with their steps' combined values as scores."""
    return [
        [
            replace(each, score=combine_steps(steps, how))
            for each, steps in zip(group, own, strict=True)
        ]
        for group, own in zip(found.groups, values, strict=True)
    ]


def accuracies(groups: Sequence[Sequence[Candidate]], method: str) -> dict[int, float]:
    """Right by number of samples, exactly over all draws."""
    size = len(groups[0])
    settings = SearchSettings(method=method, samples=size)
    counts = [2**i for i in range(size.bit_length()) if 2**i <= size]
    return {k: fmean(accuracy_at(group, settings, k) for group in groups) for k in counts}


def best_scores(groups: Sequence[Sequence[Candidate]]) -> dict[int, float]:
    """The expected score of the best of k: the i-th smallest is it with C(i, k-1)/C(n, k)."""
    size = len(groups[0])
    found = {}
    for k in (2**i for i in range(size.bit_length()) if 2**i <= size):
        shares = [math.comb(i, k - 1) / math.comb(size, k) for i in range(size)]
        rows = [sorted(each.score or 0.0 for each in group) for group in groups]
        found[k] = fmean(sum(map(float.__mul__, shares, row)) for row in rows)
    return found


def step_accuracy(found: Draws, steps: Steps) -> tuple[float, float, float]:
    """Of the lines that have a result and are not the last: the share that the model tells right
    from wrong at 0.5, the share that is right, and the area under the curve (AUC)."""
    values: dict[bool, list[float]] = {True: [], False: []}
    for question, group, own in zip(found.questions, found.groups, steps, strict=True):
        for each, row in zip(group, own, strict=True):
            labels = right_steps(question, each.text, each.correct)[:-1]
            for label, value in zip(labels, row, strict=False):
                if label is not None:
                    values[label].append(value)
    rights, wrongs = values[True], values[False]
    hits = sum(each > 0.5 for each in rights) + sum(each <= 0.5 for each in wrongs)
    ranked = sorted([(v, 0) for v in wrongs] + [(v, 1) for v in rights])
    ranks = sum(place for place, (_, right) in enumerate(ranked, start=1) if right)
    pairs = len(rights) * len(wrongs)
    total = len(rights) + len(wrongs)
    auc = (ranks - len(rights) * (len(rights) + 1) / 2) / pairs
    return hits / total, len(rights) / total, auc


def shuffled_rows(rows: Path, target: Path, seed: int) -> Path:
    """The same solutions, every label somebody else's."""
    made = list(read_json_lines(rows))
    labels = [label for row in made for label in row["labels"] if label is not None]
    random.Random(seed).shuffle(labels)
    for row in made:
        row["labels"] = [None if each is None else labels.pop() for each in row["labels"]]
    target.write_text("".join(map(json_line, made)), encoding="utf-8")
    return target


def control(recipe: Mapping[str, Any], rows: Path) -> dict[str, Any]:
    """The recipe's `prm` stage on rows of a file."""
    (stage,) = [dict(each) for each in recipe["stages"] if each["name"] == "prm"]
    for name in ("rollouts", "prompts", "sampling"):
        stage.pop(name)
    stage["data"] = {"path": str(rows)}
    return {key: recipe[key] for key in ("seed", "model", "checkpoints")} | {"stages": [stage]}


def training_curve(run: Any) -> list[tuple[float, float]]:
    """(reward, gold accuracy) of each window of 4 steps."""
    lines = run.metrics().to_pandas()
    gold = "verifier/accuracy" if "verifier/accuracy" in lines else "reward"
    at = range(0, len(lines), 4)
    return [
        (float(lines["reward"][i : i + 4].mean()), float(lines[gold][i : i + 4].mean())) for i in at
    ]


def of_seed(
    seed: int, output: Path, prompts: int | None = None, samples: int = SAMPLES
) -> dict[str, Any]:
    """Everything that is shown of one seed."""
    recipe = {**tomllib.loads(RECIPE.read_text(encoding="utf-8")), "seed": seed}
    del recipe["small"]
    folder = output / f"seed-{seed}"
    run = gw.train(recipe, output=folder, resume=True)
    rows = shuffled_rows(
        folder / "stages" / "prm" / "data.jsonl", output / f"rows-{seed}.jsonl", seed
    )
    gw.train(control(recipe, rows), output=output / f"shuffled-{seed}", resume=True)
    models = {name: folder / "stages" / name / "model" for name in ("prm", "orm")}
    models["shuffled"] = output / f"shuffled-{seed}" / "stages" / "prm" / "model"
    found = draws(seed, prompts, samples)
    steps = {name: step_values(found, model) for name, model in models.items()}
    groups = {name: scored(found, each) for name, each in steps.items()}
    values: dict[str, Any] = {
        "majority": accuracies(found.groups, "majority"),
        **{name: accuracies(each, "process") for name, each in groups.items()},
        **{
            f"prm {how}": accuracies(scored(found, steps["prm"], how), "process")
            for how in ("product", "last", "mean")
        },
        "proxy": best_scores(groups["prm"]),
        "steps": step_accuracy(found, steps["prm"]),
        "steps shuffled": step_accuracy(found, steps["shuffled"]),
        "cost": {k: v for k, v in run.summary["stages"][0]["last"].items() if "labels/" in k},
    }
    for name in ("rl_prm", "rl_outcome"):
        stage = gw.open_run(folder / "stages" / name)
        values[name] = training_curve(stage)
        evaluated = stage.evaluations().to_pandas()
        values[f"{name} held out"] = [float(each) for each in evaluated["eval/verifier/accuracy"]]
    return values


# What is claimed, shown and written.


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and 95 % interval over the seeds, by Student's t."""
    half = STUDENT * stdev(values) / math.sqrt(len(values))
    return fmean(values), fmean(values) - half, fmean(values) + half


def shown(values: Sequence[float], sign: str = "") -> str:
    mean, low, high = interval(values)
    return f"{mean:{sign}.1%} ({low:{sign}.1%} to {high:{sign}.1%})"


def check(found: Sequence[Mapping[str, Any]]) -> None:
    """What the page claims of every seed. AssertionError with what does not hold."""
    for seed, each in enumerate(found):
        best, single = each["prm"][SAMPLES], each["prm"][1]
        assert best > single + 0.2, f"seed {seed}: best of {SAMPLES} by steps {best:.1%}"
        assert each["prm"][4] > each["majority"][4], f"seed {seed}: not above the majority of 4"
        gain = each["shuffled"][SAMPLES] - each["shuffled"][1]
        assert gain < best - single - 0.15, f"seed {seed}: shuffled labels gain {gain:+.1%}"
        curve = each["rl_prm"]
        peak = max(range(len(curve)), key=lambda place: curve[place][1])
        fall = curve[peak][1] - curve[-1][1]
        assert fall > 0.1, f"seed {seed}: gold falls by {fall:.1%} in training by steps"
        assert curve[-1][0] > curve[0][0] + 0.1, f"seed {seed}: the proxy does not rise"


def draw(found: Sequence[Mapping[str, Any]]) -> None:
    """Right by samples; gold against proxy; gold and proxy over training."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "groupwise"  # the same runs draw the same file
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    for name, label in LINES.items():
        counts = [int(k) for k in found[0][name]]
        rows = [[each[name][k] for each in found] for k in found[0][name]]
        axes[0].plot(counts, list(map(fmean, rows)), marker=".", label=label)
    axes[0].set(xscale="log", xlabel="samples", ylabel="right, held out", ylim=(0, 1))
    axes[0].set_xticks(counts, map(str, counts))
    for place, each in enumerate(found):
        first = place == 0
        ks = list(each["prm"])
        axes[1].plot(
            [each["proxy"][k] for k in ks],
            [each["prm"][k] for k in ks],
            "C0.-",
            label="best of 1 to 16" if first else None,
        )
        axes[1].plot(*zip(*each["rl_prm"]), "C3.-", alpha=0.6, label="training" if first else None)
    axes[1].set(xlabel="proxy: the smallest step's probability", ylabel="gold: right", ylim=(0, 1))
    for name, colour, label in (("rl_prm", "C3", "by steps"), ("rl_outcome", "C2", "by outcome")):
        for part, line in ((1, "-"), (0, ":")):
            if name == "rl_outcome" and not part:
                continue
            rows = [
                [each[name][place][part] for each in found] for place in range(len(found[0][name]))
            ]
            at = [4 * place + 2 for place in range(len(rows))]
            words = f"{label}, {'gold' if part else 'proxy'}"
            axes[2].plot(at, list(map(fmean, rows)), colour + line, label=words)
            axes[2].fill_between(
                at, list(map(min, rows)), list(map(max, rows)), color=colour, alpha=0.12, lw=0
            )
    axes[2].set(xlabel="steps of RL", ylabel="right, or the proxy", ylim=(0, 1))
    for axis in axes:
        axis.grid(alpha=0.2)
        axis.legend(frameon=False, fontsize=8)
    figure.savefig(CURVE, metadata={"Date": None})


LINES = {
    "prm": "steps (smallest)",
    "orm": "outcome model",
    "majority": "majority",
    "shuffled": "steps, shuffled labels",
}


def figures(found: Sequence[Mapping[str, Any]]) -> str:
    """The tables of the page."""

    def of(name: str, samples: Any) -> str:
        return shown([each[name][samples] for each in found])

    counts = [k for k in found[0]["prm"] if int(k) in (4, 8, SAMPLES)]
    one = next(iter(found[0]["prm"]))
    names = {**LINES, "prm product": "steps (product)", "prm last": "steps (last)"}
    names |= {"prm mean": "steps (mean)"}
    lines = [f"A single sample is right in {of('prm', one)}.", ""]
    lines += ["| chosen by | " + " | ".join(f"of {k}" for k in counts) + " |", "|---|---|---|---|"]
    lines += [
        f"| {words} | " + " | ".join(of(name, k) for k in counts) + " |"
        for name, words in names.items()
    ]
    accuracy, share, area = zip(*(each["steps"] for each in found), strict=True)
    control = [each["steps shuffled"][2] for each in found]
    costs = [each["cost"] for each in found]
    peaks = [max(gold for _, gold in each["rl_prm"]) for each in found]
    ends = [each["rl_prm"][-1] for each in found]
    lines += [
        "",
        f"Held-out steps told right from wrong: {shown(accuracy)} at 0.5, where {shown(share)} are "
        f"right; AUC {fmean(area):.3f} (labels shuffled: {fmean(control):.3f}).",
        "",
        f"Cost: {fmean(c['labels/labels'] for c in costs):,.0f} labels from "
        f"{fmean(c['labels/completions'] for c in costs):,.0f} completions and "
        f"{fmean(c['labels/tokens'] for c in costs):,.0f} sampled tokens, "
        f"{fmean(c['labels/tokens_a_label'] for c in costs):.0f} a label; "
        f"{fmean(c['labels/shared'] for c in costs):,.0f} prefixes were another solution's too.",
        "",
        "| RL, right | first 4 steps | best 4 steps | last 4 steps | held out at the end |",
        "|---|---|---|---|---|",
    ]
    for name, words in (("rl_prm", "by steps"), ("rl_outcome", "by outcome")):
        cells = (
            shown([each[name][0][1] for each in found]),
            shown([max(gold for _, gold in each[name]) for each in found]),
            shown([each[name][-1][1] for each in found]),
            shown([each[f"{name} held out"][-1] for each in found]),
        )
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    falls = [peak - gold for peak, (_, gold) in zip(peaks, ends, strict=True)]
    proxies = [f"{each['rl_prm'][0][0]:.2f} to {each['rl_prm'][-1][0]:.2f}" for each in found]
    lines += [
        "",
        f"By steps the proxy goes from {', '.join(proxies)} (a seed each), and the gold accuracy "
        f"falls by {shown(falls)} from its best 4 steps.",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("runs/math_shepherd"))
    output: Path = parser.parse_args().output
    found = [of_seed(seed, output) for seed in SEEDS]
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n\n{figures(found)}\n\n{END}{after}", encoding="utf-8")
    draw(found)
    check(found)


if __name__ == "__main__":
    main()
