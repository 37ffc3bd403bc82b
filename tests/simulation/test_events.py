"""The events of a simulated run against arithmetic by hand, and the promises of its layouts."""

from __future__ import annotations

import doctest
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
from benchmarks.simulation import published_rows

from groupwise.errors import RecipeError
from groupwise.planning import Hardware, PlanInputs, gpu_named, plan, shape_of_size
from groupwise.simulation import (
    Costs,
    Layout,
    Phases,
    calibrated,
    costs,
    lengths,
    lognormal,
    recorded_phases,
    simulate,
    sweep,
)

ROUND = Hardware("round", memory=1e12, flops=1e15, bandwidth=1e12, call=0.0, measured=True)


def costs_of(hardware: Hardware = ROUND, parameters: float = 1e9, **changes: Any) -> Costs:
    inputs = PlanInputs(
        model="any", shape=shape_of_size(parameters), train_prompts=1000, evaluated_prompts=1,
        longest_prompt=100, mean_prompt=100.0, prompts_per_step=8, group_size=4, max_tokens=400,
        steps=1, dtype="bfloat16", gradient_checkpointing=True,
    )  # fmt: skip
    return Costs(plan=plan(replace(inputs, **changes)), hardware=hardware)


@pytest.mark.parametrize("module", [costs, lengths])
def test_the_examples_hold(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


def test_one_device_with_equal_lengths_is_arithmetic() -> None:
    """32 rows of 50 tokens end together: one stretch of decoding, then the learner."""
    given = costs_of()
    found = simulate(given, Layout(1, 1, True), [50])
    decoding = given.decode(32, 100 + 25, 50, 32)
    logprobs, learn = given.learn(8 * 100 + 32 * 50, 50, 1)
    assert found.phases.rollout == pytest.approx(decoding)
    assert (found.phases.logprobs, found.phases.learn) == pytest.approx((logprobs, learn))
    assert found.phases.rest == pytest.approx(0.0, abs=1e-9)
    assert found.step == pytest.approx(decoding + logprobs + learn)
    assert found.tokens_per_second == pytest.approx(32 * 50 / found.step)
    assert found.samplers_busy == pytest.approx(decoding / found.step)
    assert found.busy == pytest.approx(found.samplers_busy + found.learner_busy)


def test_a_sampler_with_too_few_slots_takes_waves() -> None:
    wide, narrow = costs_of(), costs_of(batch_rows=8)
    one = simulate(wide, Layout(1, 1, True), [50]).phases.rollout
    four = simulate(narrow, Layout(1, 1, True), [50]).phases.rollout
    assert four == pytest.approx(4 * narrow.decode(8, 125, 50, 8))
    assert four > 2 * one  # the weights are read four times


def test_the_longest_completion_holds_everyone_up_in_turn_and_not_apart() -> None:
    """One completion in ten is 16 times as long; samplers that run ahead hide the tail."""
    tail = [25] * 9 + [400]
    given = costs_of(gpu_named("h100"), 8e9, prompts_per_step=64)
    together = simulate(given, Layout(16, 16, True), tail, steps=20)
    apart = simulate(given, Layout(8, 8), tail, staleness=2, steps=20)
    waiting = simulate(given, Layout(8, 8), tail, staleness=0, steps=20)
    assert together.samplers_busy < 0.9
    assert apart.tokens_per_second > 1.2 * waiting.tokens_per_second
    assert waiting.staleness == waiting.staleness_max == 0


@pytest.mark.parametrize("ahead", [0, 1, 2, 5])
def test_no_group_is_older_than_the_bound(ahead: int) -> None:
    given = costs_of(gpu_named("h100"), 8e9)
    found = simulate(given, Layout(8, 4), lognormal(100, 1.2, 400), staleness=ahead, steps=30)
    assert found.staleness <= found.staleness_max <= ahead
    assert (found.staleness_max == ahead) or ahead > 2


def test_few_verifiers_decide_the_step() -> None:
    """32 completions of 2 s on one worker are 64 s, whatever else happens meanwhile."""
    given = replace(costs_of(), verify=2.0, verifiers=1)
    found = simulate(given, Layout(1, 1, True), lognormal(50, 0.8, 400))
    assert found.phases.rollout + found.phases.rest == pytest.approx(64.0, rel=0.05)
    hidden = simulate(replace(given, verifiers=64), Layout(1, 1, True), lognormal(50, 0.8, 400))
    assert hidden.phases.rest == pytest.approx(2.0, abs=0.01)
    many = simulate(replace(given, verifiers=10**9), Layout(1, 1, True), lognormal(50, 0.8, 400))
    assert many == hidden


def test_equal_seeds_are_equal_runs() -> None:
    given, drawn = costs_of(gpu_named("h100"), 8e9), lognormal(100, 1.0, 400)
    one, same, other = (
        simulate(given, Layout(8, 8), drawn, staleness=1, seed=seed) for seed in (0, 0, 1)
    )
    assert one == same
    assert one != other


def test_calibration_gives_back_what_was_measured() -> None:
    measured = Phases(3.0, 0.5, 2.0, 0.25)
    given, drawn = costs_of(minibatches=2), lognormal(60, 0.5, 400)
    found = simulate(
        replace(given, calibration=calibrated(given, measured, drawn)),
        Layout(1, 1, True), drawn, steps=20,
    ).phases  # fmt: skip
    for name in ("rollout", "logprobs", "learn", "rest"):
        assert getattr(found, name) == pytest.approx(getattr(measured, name), rel=1e-6)


def test_recorded_phases_leave_out_the_first_step_and_evaluations() -> None:
    def line(rollout: float, evaluate: float) -> dict[str, float]:
        parts = {"rollout": rollout, "logprobs": 0.5, "learn": 1.0, "evaluate": evaluate}
        step = sum(parts.values()) + 0.25
        return {f"seconds/{key}": value for key, value in {**parts, "step": step}.items()}

    lines = [line(90.0, 0.0), line(2.0, 7.0), line(4.0, 0.0), line(3.0, 0.0)]
    assert recorded_phases(lines) == Phases(3.0, 0.5, 1.0, 0.25)
    with pytest.raises(RecipeError, match="the record has 2 steps; a calibration needs 3"):
        recorded_phases(lines[:2])


@pytest.mark.parametrize("spread", [0.0, 0.9, 3.0])
@pytest.mark.parametrize(
    ("mean", "limit"),
    [(1, 1024), (30.0, 1024), (1000, 1024), (1024, 1024), (2, 4), (2.5, 4), (3, 4), (1, 1)],
)
def test_log_normal_lengths_have_the_mean_that_was_asked_for(
    mean: float, limit: int, spread: float
) -> None:
    found = lognormal(mean, spread, limit)
    assert fmean(found) == pytest.approx(mean, rel=1e-3)
    assert 1 <= min(found) <= max(found) <= limit
    assert spread or max(found) - min(found) == (mean % 1 > 0)


def test_a_sweep_names_the_best_split_and_where_it_ends() -> None:
    given = costs_of(gpu_named("h100"), 8e9, prompts_per_step=32, group_size=16)
    found = sweep(given, lognormal(200, 0.8, 400), (2, 8, 32, 128), steps=3)
    assert found.too_few == (2,)  # 128 GB of weights, gradients and moments
    assert [each.layout.devices for each in found.best] == [8, 32, 128]
    speeds = [each.tokens_per_second for each in found.best]
    assert speeds == sorted(speeds)
    for each in found.best:
        same = [o for o in found.played if o.layout.devices == each.layout.devices]
        assert len(same) > 1
        assert each.tokens_per_second == max(o.tokens_per_second for o in same)
        assert all(o.layout.learner >= given.shards for o in same)
    stop = found.stops_at
    assert stop in (8, 32)
    with pytest.raises(RecipeError, match="need at least 4 x h100"):
        sweep(given, [50], (1, 2), steps=1)


def test_published_step_times_are_met_without_calibration() -> None:
    """Four dense runs of NeMo RL 0.4 on H100 GPUs, within 20 %."""
    rows = published_rows()
    assert len(rows) == 4
    for model, where, ours, theirs in rows:
        assert ours == pytest.approx(theirs, rel=0.2), (model, where)
