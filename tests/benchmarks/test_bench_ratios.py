"""Ratios, what is dropped, and what is missing, from hand-made repeats."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.ratios import (
    BARS,
    FORMULAS,
    OTHER_FORMULAS,
    Bar,
    is_disturbed,
    measured,
    ratios,
    smallest_repeats,
    table,
    wants_more,
)

LIMIT = 0.1


def row(contender: str, phase: str, seconds: float, *, foreign: float = 0.0, **more: Any) -> Any:
    shares = {"active": 0.9, "idle_contenders": 0.0, "foreign": foreign}
    return {
        "contender": contender,
        "phase": phase,
        "seconds": seconds,
        "tokens": 1000,
        "shares": shares,
        **more,
    }


def rollouts() -> list[Any]:
    seconds = {
        "groupwise-bf16": 1.0,
        "groupwise-fp32": 2.0,
        "groupwise-int8": 0.75,
        "generate-bf16": 4.0,
        "generate-fp32": 8.0,
        "trl-bf16": 5.0,
        "trl-fp32": 10.0,
        "openvino": 1.5,
        "kernels-bf16": 0.7,
        "kernels-fp32": 1.0,
    }
    return [row(name, "rollout", spent) for name, spent in seconds.items()]


def steps() -> list[Any]:
    def step(name: str, seconds: float, train: float, peak: float) -> Any:
        return row(
            name,
            "step",
            seconds,
            rollout_seconds=seconds - train,
            train_seconds=train,
            optimizer_seconds=0.1,
            unique_tokens=4000,
            peak_bytes=peak,
        )

    return [
        step("groupwise-bf16", 20.0, 10.0, 6e9),
        step("groupwise-fp32", 40.0, 20.0, 7e9),
        step("groupwise-checkpointed", 22.0, 12.0, 3e9),
        step("trl-bf16", 60.0, 35.0, 5e9),
        step("trl-autocast", 70.0, 30.0, 8e9),
        step("trl-fp32", 90.0, 60.0, 7e9),
    ]


def test_every_stable_ratio_of_a_whole_run() -> None:
    found, missing = ratios(table(rollouts() + steps(), LIMIT), FORMULAS, {})
    assert missing == {}
    assert found == {
        "rollout_vs_generate": 4.0,
        "rollout_vs_generate_fp32": 8.0,
        "rollout_vs_trl": 5.0,
        "rollout_vs_trl_fp32": 10.0,
        "rollout_vs_openvino": 1.5,
        "rollout_int8_vs_openvino": 2.0,
        "rollout_vs_kernels": 0.7,
        "train_vs_trl": 3.0,
        "train_vs_roofline": 1.1905,  # 10 s, and 3 x 4,000 tokens at 1,000 in 0.7 s
        "step_vs_trl_best": 3.0,
        "step_vs_trl_fp32": 4.5,
        "memory_vs_trl": 0.6,
    }
    assert list(found) == list(BARS)


def test_the_other_ratios() -> None:
    found, missing = ratios(table(rollouts() + steps(), LIMIT), OTHER_FORMULAS, {})
    assert found["rollout_fp32_vs_generate_fp32"] == 4.0
    assert found["rollout_fp32_vs_kernels_fp32"] == 0.5
    assert found["step_fp32_vs_trl_fp32"] == 2.25
    assert found["rollout_int8_vs_bf16"] == 1.3333
    assert found["memory_without_checkpointing_vs_trl"] == 1.2
    assert found["natural_vs_openvino"] is None
    assert missing["natural_vs_openvino"] == (
        "groupwise-bf16: the phase 'natural' was not run with it"
    )


def test_a_missing_peer_takes_only_its_own_ratios_and_says_why() -> None:
    rows = [each for each in rollouts() if each["contender"] != "openvino"]
    found, missing = ratios(
        table(rows + steps(), LIMIT), FORMULAS, {"openvino": "openvino-genai is not installed"}
    )
    assert found["rollout_vs_openvino"] is None
    reason = "openvino: openvino-genai is not installed"
    assert missing == dict.fromkeys(["rollout_vs_openvino", "rollout_int8_vs_openvino"], reason)
    assert found["rollout_vs_generate"] == 4.0


def test_a_reason_of_the_phase_comes_before_one_of_the_contender() -> None:
    failures = {"trl-fp32": "of some phase", "trl-fp32/step": "killed"}
    rows = [each for each in steps() if each["contender"] != "trl-fp32"]
    _, missing = ratios(table(rows, LIMIT), FORMULAS, failures)
    assert missing["step_vs_trl_fp32"] == "trl-fp32: killed"


def test_memory_is_compared_with_the_fastest_setting_not_the_smallest() -> None:
    rows = steps()
    rows[4]["seconds"] = 50.0  # autocast is now TRL's fastest, and its largest
    found, _ = ratios(table(rows, LIMIT), FORMULAS, {})
    assert found["memory_vs_trl"] == 0.375


def test_disturbed_repeats_are_dropped_from_the_median() -> None:
    rows = [row("a", "rollout", each) for each in (1.0, 3.0, 2.0)]
    rows.append(row("a", "rollout", 100.0, foreign=0.2))
    found = measured(rows, LIMIT)
    assert found.values["seconds"] == 2.0
    assert found.spread["seconds"] == (1.0, 3.0)
    assert (found.kept, found.dropped, found.all_disturbed) == (3, 1, False)


def test_where_all_are_disturbed_they_stand_and_are_said_to_be() -> None:
    found = measured([row("a", "rollout", 4.0, foreign=0.5)], LIMIT)
    assert found.values["tokens_per_second"] == 250.0
    assert (found.kept, found.dropped, found.all_disturbed) == (1, 0, True)


def test_peak_memory_is_the_largest_of_all_repeats() -> None:
    rows = [
        row("a", "step", 1.0, peak_bytes=5),
        row("a", "step", 1.0, peak_bytes=9, foreign=0.9),
    ]
    assert measured(rows, LIMIT).values["peak_bytes"] == 9.0


def test_a_step_is_rated_by_its_rollout() -> None:
    found = measured([row("a", "step", 10.0, rollout_seconds=4.0)], LIMIT)
    assert found.values["tokens_per_second"] == 250.0


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({"foreign": 0.11, "idle_contenders": 0.0}, True),
        ({"foreign": 0.1, "idle_contenders": 0.1}, False),
        ({"foreign": 0.0, "idle_contenders": 0.2}, True),
        ({"foreign": None, "idle_contenders": None}, False),
        (None, False),
    ],
)
def test_what_disturbs(shares: Any, expected: bool) -> None:
    assert is_disturbed({"shares": shares}, LIMIT) is expected


def test_retries_are_bounded() -> None:
    good, bad = row("a", "rollout", 1.0), row("a", "rollout", 1.0, foreign=1.0)
    assert wants_more([good, good], 3, 2, LIMIT)
    assert not wants_more([good, good, good], 3, 2, LIMIT)
    assert wants_more([bad] * 4, 3, 2, LIMIT)
    assert not wants_more([bad] * 5, 3, 2, LIMIT)


def test_the_fewest_repeats_behind_any_number() -> None:
    rows = [*rollouts(), row("openvino", "rollout", 1.5)]
    assert smallest_repeats(table(rows, LIMIT)) == 1
    assert smallest_repeats({}) == 0


def test_bars() -> None:
    assert Bar(3.5).met(3.5)
    assert not Bar(3.5).met(3.4)
    assert Bar(0.6, smaller=True).met(0.5)
    assert not Bar(0.6, smaller=True).met(0.7)
