"""Rollouts in int8 against rollouts in the learner's precision: does the policy learn as much?

The tiny policy of recipes/tiny_arithmetic.toml. Held-out sums are answered by each arm's own
sampler. Asserts that the arms' accuracies after training do not differ (95 % interval, paired by
seed and prompt) and that the gap between sampler and learner was corrected for.

    python experiments/quantised.py            # half a minute a run
    python experiments/quantised.py --fresh    # not from the runs that are there
"""

from __future__ import annotations

from typing import Any

from arms import ROOT, delete_if_fresh, difference, of_arm, play, shown, table

RECIPE = ROOT / "recipes" / "tiny_arithmetic.toml"
RUNS = ROOT / "runs" / "quantised"
SEEDS = (0, 1, 2)
COMMON = {"training.steps": 100, "evaluation.every": 100, "evaluation.samples": 64}
ARMS: dict[str, dict[str, Any]] = {
    "full precision": COMMON,
    "int8": {**COMMON, "sampling.quantise": "int8"},
}


def main() -> None:
    delete_if_fresh(__doc__, RUNS)
    rows = play(RECIPE, ARMS, SEEDS, RUNS)
    print(table(rows))
    for arm in ARMS:
        metrics = [row.run.metrics().to_pandas() for row in of_arm(rows, arm)]
        gap, most = (
            sum(each[f"sampler_gap/{name}"].mean() for each in metrics) / len(metrics)
            for name in ("mean", "max")
        )
        print(f"{arm}: gap {gap:.2g} nats a token, {most:.2g} at most in a step")
        assert ("correction/mean" in metrics[0]) == (arm == "int8")
    found = difference(rows, "int8", "full precision")
    print("int8 against full precision:", shown(found))
    assert found[1] <= 0 <= found[2], "the arms differ"


if __name__ == "__main__":
    main()
