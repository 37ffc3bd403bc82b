"""Faults 43 and 47 in whole runs: data and schedule across a resume."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from survival_recipe import RECIPE

import groupwise as gw
from groupwise.types import Request
from run_helpers import StopAfter


class Count(StopAfter):
    """How many completions the sampler is asked for, by purpose's first word."""

    def on_ready(self, session: Any) -> None:
        super().on_ready(session)
        sample, self.asked = session.sampler.sample, 0

        def counted(requests: Sequence[Request], *others: Any, **named: Any) -> Any:
            self.asked += len(requests)
            return sample(requests, *others, **named)

        session.sampler.sample = counted


def test_fault_43_nothing_is_sampled_again_for_the_steps_before_a_resume(tmp_path: Path) -> None:
    """10 prompts, 4 a step, stopped after 3 steps: inside the second epoch."""
    table = RECIPE | {
        "environment": {**RECIPE["environment"], "level": "table"},
        "training": {**RECIPE["training"], "prompts_per_step": 20, "steps": 6},
        "evaluation": {"every": 0, "samples": 1, "max_prompts": 2},
    }
    whole, first, second = Count(99), Count(3), Count(99)
    unbroken = gw.train(table, output=tmp_path / "whole", callbacks=[whole])
    with pytest.raises(KeyboardInterrupt):
        gw.train(table, output=tmp_path / "run", callbacks=[first])
    run = gw.train(table, output=tmp_path / "run", resume=True, callbacks=[second])
    order = [each.rollouts(columns=["step", "prompt_id"]).to_pylist() for each in (unbroken, run)]
    assert order[0] == order[1]
    # 3 of 6 steps are in a checkpoint: 3 steps of 20 x 4, and the last evaluation, are left.
    step = 20 * 4
    evaluation = (whole.asked - 6 * step) // 2
    assert whole.asked == 6 * step + 2 * evaluation
    assert second.asked == 3 * step + evaluation


@pytest.mark.parametrize("tokens", [10_000, 40])
def test_fault_47_the_rate_counts_optimiser_steps_across_accumulation_and_resume(
    tmp_path: Path, tokens: int
) -> None:
    """8 updates of a linear decay, stopped after 5: the rates by hand, however rows are divided."""
    training = {
        **RECIPE["training"],
        "steps": 8,
        "schedule": "linear",
        "micro_batch_tokens": tokens,
    }
    table = RECIPE | {"training": training}
    with pytest.raises(KeyboardInterrupt):
        gw.train(table, output=tmp_path / "run", callbacks=[StopAfter(5)])
    lines = gw.train(table, output=tmp_path / "run", resume=True).metrics().to_pylist()
    assert (lines[0]["forward/micro_batches"] > 2) == (tokens == 40)  # and the reference's
    rates = [1e-3 * (7 - update) / 7 for update in range(8)]
    assert [line["learning_rate"] for line in lines] == pytest.approx(rates, abs=1e-12)
