"""What a learned reward is worth as it is climbed: recipes/reward_model_rl.toml, 3 seeds, 5 arms.

Proxy (the reward model) and gold (the verifier) of held-out completions over the KL to the start,
without and with a penalty, with length taken from the score, and of reward models that learned
nothing true: of reversed pairs and of pairs in the order of a coin. Beside it best of n by the
same reward model, whose KL is log n - (n - 1)/n at most. A seed is one pipeline and two runs;
finished ones are read, not run again. Writes the tables of docs/reward_models.md and its curve.

    python experiments/reward_model_rl.py --output runs/reward_model_rl
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import groupwise as gw
from groupwise.charts import Line, Panel, svg
from groupwise.search import SearchSettings, search
from groupwise.verifiers import load_verifier

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipes" / "reward_model_rl.toml"
PAGE, CURVE = ROOT / "docs" / "reward_models.md", ROOT / "docs" / "reward_models.svg"
SEEDS = (0, 1, 2)
STUDENT = 4.303
"""The 97.5 % quantile of Student's t with 2 degrees of freedom."""
SAMPLES = 16
ARMS: dict[str, dict[str, Any]] = {
    "no penalty": {},
    "KL penalty": {"algorithm": {"kl_coef": 0.3}},
    "shuffled pairs": {"scorer": "shuffled"},
}
"""Arm: what it changes in the recipe's rl stage; `scorer` is the stage whose model it reads."""
BESIDE: dict[str, tuple[float, bool]] = {
    "reversed pairs": (-1.0, False),
    "length controlled": (1.0, True),
}
"""Arm that is a run of its own on the pipeline's reward model: the weight of its score, and whether
length is taken from it. Trained on reversed pairs the model would be its own negative."""
EVERY = (*ARMS, *BESIDE)


def pipeline(seed: int) -> dict[str, Any]:
    """The recipe with one rl stage an arm, and a second reward model for the control."""
    table = tomllib.loads(RECIPE.read_text(encoding="utf-8"))
    table.pop("small")
    answers, scorer, rl = table["stages"]
    coin = copy.deepcopy(scorer)
    coin["name"] = "shuffled"
    coin["data"][0]["pairing"]["by"] = "coin"
    stages = [answers, scorer, coin]
    for arm, changes in ARMS.items():
        stage = copy.deepcopy(rl)
        stage |= {"name": arm.replace(" ", "_"), "from": "base"}
        stage["algorithm"] = changes.get("algorithm", {})
        arguments = stage["environment"]["verifiers"][0]["arguments"]
        arguments["model"]["stage"] = changes.get("scorer", "scorer")
        stages.append(stage)
    return {**table, "seed": seed, "stages": stages}


def run_beside(arm: str, seed: int, folder: Path) -> None:
    """The rl stage with another reading of the same reward model, as an ordinary run."""
    table = tomllib.loads(RECIPE.read_text(encoding="utf-8"))
    rl = table.pop("stages")[-1]
    del table["small"]
    learned, gold = rl["environment"]["verifiers"]
    learned["weight"], control = BESIDE[arm]
    model = str(folder / "stages" / "scorer" / "model")
    learned["arguments"] |= {"model": model, "length_control": control}
    gold["weight"] = 0.0
    environment = {**table.pop("environment"), "verifiers": [learned, gold]}
    recipe = {**table, "seed": seed, "environment": environment, "training": rl["training"]}
    gw.train(recipe, output=folder / "stages" / arm.replace(" ", "_"), resume=True)


@dataclass(frozen=True)
class Curve:
    """One arm of one seed: at each evaluated version its step, KL, proxy, gold (held out) and
    tokens a completion."""

    arm: str
    seed: int
    step: list[int]
    kl: list[float]
    proxy: list[float]
    gold: list[float]
    tokens: list[float]


def curve(arm: str, seed: int, folder: Path) -> Curve:
    run = gw.open_run(folder / "stages" / arm.replace(" ", "_"))
    found = run.evaluations().to_pandas()
    lines = run.metrics().to_pandas()
    steps = [int(version) for version in found["version"]]
    nats = lines["kl"].astype(float)
    kl = [float(nats[max(at - 3, 0) : at + 2].mean()) if at else 0.0 for at in steps]
    tokens = []
    for version in steps:
        rows = run.evaluation_rollouts(version).to_pylist()
        lengths = [len(row["completion_ids"]) for row in rows if row["kind"] == "evaluation"]
        tokens.append(fmean(lengths))
    return Curve(
        arm,
        seed,
        steps,
        kl,
        [float(value) for value in found["eval/verifier/reward_model"]],
        [float(value) for value in found["eval/verifier/accuracy"]],
        tokens,
    )


def best_of_n(seed: int, folder: Path) -> list[tuple[int, float, float]]:
    """(n, KL bound in nats, gold) of choosing by the reward model among n of the start."""
    stored = folder / "best_of_n.json"
    if stored.is_file():
        return [tuple(each) for each in json.loads(stored.read_text(encoding="utf-8"))]
    table = pipeline(seed)["environment"]
    del table["verifiers"]
    environment = gw.load_environment(table.pop("name"), seed=seed, **table)
    model = str(folder / "stages" / "scorer" / "model")
    found = search(
        gw.load_policy("tiny-reasoner"),
        environment.prompts(split="heldout"),
        SearchSettings(method="best_of_n", samples=SAMPLES, max_tokens=80, seed=seed),
        correct_by=load_verifier("tagged"),
        verifier=load_verifier("reward_model", model=model, scale="raw"),
    )
    made = [(each.samples, float(each.kl or 0.0), each.accuracy) for each in found.points]
    stored.write_text(json.dumps(made), encoding="utf-8")
    return made


def play(
    seeds: Sequence[int], output: Path
) -> tuple[list[Curve], list[Any], list[Mapping[str, Any]]]:
    curves, lines, scorers = [], [], []
    for seed in seeds:
        folder = output / str(seed)
        run = gw.train(pipeline(seed), output=folder, resume=True)
        for arm in BESIDE:
            run_beside(arm, seed, folder.absolute())
        curves += [curve(arm, seed, folder) for arm in EVERY]
        lines.append(best_of_n(seed, folder))
        models = [each for each in run.summary["stages"] if each["kind"] == "reward_model"]
        scorers += [each["last"] for each in models]
        for each in curves[-len(EVERY) :]:
            print(summary(each), flush=True)
    return curves, lines, scorers


HEAD = (
    "| arm | seed | KL at the end | proxy | gold, start | gold, best | gold, end | tokens |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def summary(each: Curve) -> str:
    best = max(range(len(each.gold)), key=each.gold.__getitem__)
    return (
        f"| {each.arm} | {each.seed} | {each.kl[-1]:.2f} | {each.proxy[0]:.2f} to "
        f"{each.proxy[-1]:.2f} | {each.gold[0]:.1%} | {each.gold[best]:.1%} at step "
        f"{each.step[best]} | {each.gold[-1]:.1%} | {each.tokens[0]:.1f} to {each.tokens[-1]:.1f} |"
    )


def interval(values: Sequence[float]) -> str:
    """The mean over the seeds with its 95 % interval (Student's t)."""
    mean, half = fmean(values), STUDENT * stdev(values) / math.sqrt(len(values))
    return f"{mean:+.1%} ({mean - half:+.1%} to {mean + half:+.1%})"


def change_lines(curves: Sequence[Curve]) -> str:
    """How gold moved in each arm, over the seeds."""
    rows = ["| arm | start to best | start to end | best to end |", "|---|---|---|---|"]
    for arm in EVERY:
        gold = [each.gold for each in curves if each.arm == arm]
        moved = (
            [max(each) - each[0] for each in gold],
            [each[-1] - each[0] for each in gold],
            [each[-1] - max(each) for each in gold],
        )
        rows.append(f"| {arm} | {' | '.join(map(interval, moved))} |")
    return "\n".join(rows) + "\n"


def scorer_lines(scorers: Sequence[Mapping[str, Any]]) -> str:
    """Held-out pairs and length, a reward model a line."""
    rows = [
        "| reward model | right order | r of score and tokens | at equal label | a token | without "
        "length |",
        "|---|---|---|---|---|---|",
    ]
    for number, each in enumerate(scorers):
        rows.append(
            f"| {('of the verdicts', 'of a coin')[number % 2]}, seed {number // 2} | "
            f"{each['fit/eval_accuracy']:.1%} | {each['length/correlation']:.2f} | "
            f"{each['length/correlation_equal']:.2f} | "
            f"{each['length/slope']:.3f} | {each['length/accuracy']:.1%} |"
        )
    return "\n".join(rows) + "\n"


def best_of_n_lines(lines: Sequence[Sequence[tuple[int, float, float]]]) -> str:
    rows = ["| n | KL, nats at most | gold, mean of the seeds |", "|---|---|---|"]
    rows += [
        f"| {each[0][0]} | {each[0][1]:.2f} | {fmean(gold for *_, gold in each):.1%} |"
        for each in zip(*lines, strict=True)
    ]
    return "\n".join(rows) + "\n"


def draw(curves: Sequence[Curve], lines: Sequence[Sequence[tuple[int, float, float]]]) -> str:
    gold = [Line(each.arm, list(map(math.sqrt, each.kl)), each.gold) for each in curves]
    proxy = [Line(each.arm, list(map(math.sqrt, each.kl)), each.proxy) for each in curves]
    best = [
        Line("best of n", [math.sqrt(kl) for _, kl, _ in own], [g for *_, g in own], dashed=True)
        for own in lines
    ]
    axis = "square root of the KL to the start, nats"
    return svg([Panel("gold: right answers", axis, [*gold, *best]), Panel("proxy", axis, proxy)])


def write(text: str, tables: Mapping[str, str]) -> str:
    """The page with each table between its two comments."""
    for name, table in tables.items():
        before, rest = text.split(f"<!-- {name} -->\n", 1)
        after = rest.split("<!-- end -->\n", 1)[1]
        text = f"{before}<!-- {name} -->\n{table}<!-- end -->\n{after}"
    return text


def check(curves: Sequence[Curve]) -> None:
    """What the page claims, of every seed."""
    for each in curves:
        gain = each.gold[-1] - each.gold[0]
        if each.arm == "reversed pairs":
            assert gain < 0.05, f"the control of seed {each.seed} raised gold by {gain:.0%}"
        elif each.arm in ("no penalty", "KL penalty"):
            assert max(each.gold) - each.gold[0] > 0.15, f"{each.arm}, {each.seed}: gold never rose"
            assert each.proxy[-1] > each.proxy[0] + 0.5, f"{each.arm}, {each.seed}: proxy rose less"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/reward_model_rl"))
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    given = parser.parse_args()
    curves, lines, scorers = play(given.seeds, given.output)
    arms = [each for arm in EVERY for each in curves if each.arm == arm]
    tables = {
        "arms": HEAD + "\n".join(map(summary, arms)) + "\n",
        "best of n": best_of_n_lines(lines),
        "reward models": scorer_lines(scorers),
    }
    print("\n".join(tables.values()))
    if tuple(given.seeds) == SEEDS:
        tables["changes"] = change_lines(curves)
        check(curves)
        PAGE.write_text(write(PAGE.read_text(encoding="utf-8"), tables), encoding="utf-8")
        CURVE.write_text(draw(curves, lines), encoding="utf-8")


if __name__ == "__main__":
    main()
