"""How long the pages of a large record take: python -m benchmarks.record_size [--rollouts 1000000].

Writes a record of that many rollouts in the real schema (short completions; about 100 bytes each),
then measures, each as a person meets it: the first screen in a new process, the first page of
rollouts, one in the middle, a filter, a full-text search, and the report. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from groupwise.records import RunWriter, open_run
from groupwise.records.rows import schema, write_table

GROUP = 8
PROMPTS = 5_000
NEEDLE = "quixotic"
"""A word that one completion in 10,000 holds."""
_TEXT = "the sum of these two numbers is wait let me check so we carry one and get"
WORDS = np.array(_TEXT.split())
RECIPE = '[model]\nname = "elsewhere"\n[algorithm]\npreset = "grpo"\n'


def write_record(folder: Path, rollouts: int, a_step: int = 2_000) -> None:
    """A record of `rollouts` rows, `a_step` in each step, the same for the same numbers."""
    rng = np.random.default_rng(0)
    with RunWriter.create(folder, RECIPE, {}) as writer:
        for step in range(rollouts // a_step):
            table = step_table(rng, step, a_step)
            write_table(folder / "rollouts" / f"step_{step:06d}.parquet", table)
            reward = float(np.mean(table["reward"].to_numpy()))
            writer.metrics(
                step,
                {
                    "reward": reward, "completions/count": a_step, "groups/no_signal": 0.2,
                    "groups/count": a_step // GROUP, "unscored": 0, "entropy": 0.5,
                    "outcomes/correct": int(reward * a_step), "seconds/rollout": 3.0,
                    "seconds/learn": 2.0, "seconds/step": 5.0, "completions/truncated": 0.0,
                },
            )  # fmt: skip


def step_table(rng: np.random.Generator, step: int, count: int) -> pa.Table:
    """One step's rollouts: groups of 8, 4 to 16 tokens each, a success rate that rises."""
    lengths = rng.integers(4, 17, count)
    ends = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    size = int(lengths.sum())

    def tokens(values: Any, kind: pa.DataType) -> pa.Array:
        return pa.ListArray.from_arrays(ends, pa.array(values, kind))

    coarse = np.round(rng.normal(0, 0.5, (4, size)) * 16) / 16  # so that the files stay small
    prompts = np.repeat((step * (count // GROUP) + np.arange(count // GROUP)) % PROMPTS, GROUP)
    visit = step * (count // GROUP) // PROMPTS
    right = rng.random(count) < 0.2 + 0.6 * min(1.0, step / 500)
    words = WORDS[rng.integers(0, len(WORDS), (count, 12))]
    texts = [" ".join(row) for row in words]
    for place in range(count):
        if (step * count + place) % 10_000 == 7:
            texts[place] += " " + NEEDLE
    nothing = pa.nulls(count)
    known = {
        "step": np.full(count, step), "version": np.full(count, step),
        "visit": np.full(count, visit), "answer": [str(n) for n in prompts],
        "kind": ["training"] * count, "prompt_id": [f"p{n}" for n in prompts],
        "group_index": np.tile(np.arange(GROUP), count // GROUP),
        "prompt": [f"How much is {n} + {n + 1}?" for n in prompts],
        "prompt_ids": pa.array([[1, 2]] * count, pa.list_(pa.int32())),
        "completion_ids": tokens(rng.integers(0, 500, size).astype(np.int32), pa.int32()),
        "mask": tokens(np.ones(size, bool), pa.bool_()), "text": texts,
        "finish_reason": ["stop"] * count, "reward": right.astype(float),
        "outcome": np.where(right, "correct", "incorrect"), "reason": ["the last number"] * count,
        "advantage": right - 0.5,
        "sampler_logprobs": tokens(-np.abs(coarse[0]), pa.float32()),
        "learner_logprobs": tokens(-np.abs(coarse[1]), pa.float32()),
        "entropies": tokens(np.abs(coarse[2]), pa.float32()),
        "loss_weights": tokens(coarse[3], pa.float32()),
    }  # fmt: skip
    columns = {}
    for field in schema():
        values = known.get(field.name, nothing)
        made = values if isinstance(values, pa.Array) else pa.array(values)
        columns[field.name] = made.cast(field.type)
    rewards = pa.StructArray.from_arrays([pa.array(right.astype(float))], ["number"])
    return pa.table({**columns, "rewards": rewards})


def measure(folder: Path) -> dict[str, dict[str, float]]:
    """Seconds of what a person waits for, in this process, whose first act it is.

    `cpu` is of all threads: on a busy machine it says what `wall` would be on a free one.
    """
    start, used = time.perf_counter(), time.process_time()
    from groupwise.dashboard.data import RunView
    from groupwise.dashboard.index import Wanted
    from groupwise.dashboard.report import page, safe_json, write_report

    wall, cpu = dict[str, float](), dict[str, float]()

    def timed(name: str, act: Callable[[], Any]) -> Any:
        begun, before = time.perf_counter(), time.process_time()
        made = act()
        wall[name] = round(time.perf_counter() - begun, 3)
        cpu[name] = round(time.process_time() - before, 3)
        return made

    view = RunView(open_run(folder))
    page([view.overview()])
    wall["open"] = round(time.perf_counter() - start, 3)
    cpu["open"] = round(time.process_time() - used, 3)
    timed("index", view.facets)
    middle = view.index.find(Wanted())[0] // 2
    timed("first_page", lambda: safe_json(view.groups(Wanted(), 0, 1)))
    timed("middle_page", lambda: safe_json(view.groups(Wanted(), middle, 1)))
    timed("ten_groups", lambda: safe_json(view.groups(Wanted(order="random"), middle, 10)))
    timed("filter", lambda: safe_json(view.groups(Wanted(signal="no", outcome="correct"), 0, 1)))
    timed("search", lambda: safe_json(view.groups(Wanted(text=NEEDLE), 0, 1)))
    timed("search_again", lambda: safe_json(view.groups(Wanted(text=NEEDLE), 1, 1)))
    timed("distributions", view.distributions)
    timed("passes", view.passes)
    report = timed("report", lambda: write_report([folder], folder / "report.html"))
    return {"wall": wall, "cpu": cpu, "report": {"mb": report.stat().st_size / 1e6}}


def main() -> None:
    """Write the record, or take one that is there, and measure it in a new process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--record", type=Path, help="where it is or will be; else it is deleted")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.record)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.record or Path(temporary) / "run"
        if not (folder / "recipe.toml").exists():
            write_record(folder, given.rollouts)
        size = sum(each.stat().st_size for each in (folder / "rollouts").iterdir()) / 1e6
        command = [sys.executable, "-m", "benchmarks.record_size", "--measure", "--record", folder]
        made = subprocess.run(command, check=True, capture_output=True, text=True)
        print(json.dumps({"record_mb": round(size), **json.loads(made.stdout)}, indent=2))


if __name__ == "__main__":
    main()
