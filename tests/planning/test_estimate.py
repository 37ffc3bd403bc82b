"""Time, cost and memory by method on named hardware, against arithmetic by hand."""

from __future__ import annotations

import doctest
import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from test_planning import INPUTS

from groupwise.cli.app import run as command
from groupwise.errors import RecipeError
from groupwise.planning import (
    GPUS,
    SMOLLM2_135M,
    Hardware,
    adapter_parameters,
    estimate,
    gpu_named,
    hardware,
    methods,
    plan,
    render,
    shape_of_size,
    step_time,
)

ROUND = Hardware("round", memory=1e12, flops=1e12, bandwidth=1e12, call=0.0)


def gigabytes(parameters: float, adapter: float = 0.0) -> dict[str, float]:
    return {each.name: each.total / 1e9 for each in methods(int(parameters), int(adapter))}


def test_a_7b_policy_by_method() -> None:
    """16 bytes a trained parameter, 2 a frozen one."""
    assert gigabytes(7e9, 40e6) == {
        "group": 112.0,
        "group, reference": 126.0,
        "PPO": 224.0,
        "PPO, reference": 238.0,
        "PPO, reference, reward model": 252.0,
        "group, LoRA": 14.64,
    }


def test_a_32b_policy_by_method() -> None:
    found = gigabytes(32e9)
    assert (found["group"], found["PPO"]) == (512.0, 1024.0)


def test_the_fewest_devices_hold_what_is_sharded() -> None:
    (group, *_) = methods(7 * 10**9, 0)
    assert group.devices(80e9, 0) == 2  # 112 GB in 72 GB each
    assert group.devices(80e9, 20e9) == 3
    assert group.devices(80e9, 72e9) is None


def test_adapter_parameters_are_peft_s() -> None:
    """SmolLM2-135M at rank 16: what `describe_model` counts with an adapter on every matrix."""
    assert adapter_parameters(SMOLLM2_135M, 16) == 4_884_480


@pytest.mark.parametrize(
    ("size", "layers", "hidden"), [(1.2e9, 18, 2304), (8e9, 34, 4352), (70e9, 69, 8832)]
)
def test_a_shape_of_a_size_has_that_many_parameters(size: float, layers: int, hidden: int) -> None:
    shape = shape_of_size(size)
    assert (shape.parameters, shape.layers, shape.hidden) == (int(size), layers, hidden)
    a_layer = 2 * hidden**2 + 2 * hidden * shape.kv_width + 3 * hidden * shape.intermediate
    assert layers * a_layer == pytest.approx(size, rel=0.15)


def test_a_size_that_is_none_is_refused() -> None:
    with pytest.raises(RecipeError, match="give a count from 1e6 to 1e14"):
        shape_of_size(70)


def test_seconds_of_a_step_by_hand() -> None:
    """32 completions of 64 tokens over prompts of 35, in one wave."""
    made = step_time(plan(INPUTS), ROUND)
    count, width = SMOLLM2_135M.parameters, 4
    cache = 30 * 2 * 192 * width * (35 + 32) * 32
    a_token = max((count * width + cache) / 0.6e12, 2 * count * 32 / 0.4e12)
    prompts = 2 * count * 4 * 35 / 0.5e12
    assert made.sampling == pytest.approx(64 * a_token + prompts + 32 * 1.7e-4)
    forward = 2 * count * (4 * 35 + 32 * 64) / 0.4e12
    passes = 2  # 2,188 tokens in micro-batches of 2,048
    assert made.learning == pytest.approx(3 * forward + passes * 0.01 + count * 28 / 0.6e12)
    assert made.logprobs == 0.0
    assert made.step == made.sampling + made.learning


def test_what_makes_a_step_longer() -> None:
    base = step_time(plan(INPUTS), ROUND)
    longer = {
        "reference": {"reference": True},
        "recomputation": {"gradient_checkpointing": True},
        "critic": {"critic": "separate"},
        "passes": {"passes": 2},
    }
    for name, change in longer.items():
        assert step_time(plan(replace(INPUTS, **change)), ROUND).step > 1.2 * base.step, name
    eight = step_time(plan(INPUTS), ROUND, 8)
    assert base.learning / 8 < eight.learning < base.learning / 2
    short = step_time(plan(INPUTS), ROUND, mean_tokens=16)
    assert (short.mean_tokens, base.mean_tokens) == (16, 64)
    assert short.sampling < base.sampling / 3
    assert step_time(plan(INPUTS), ROUND, mean_tokens=500) == base


def test_cost_is_by_the_price_of_an_hour() -> None:
    made = estimate(plan(INPUTS), GPUS["h100"], 8, price=3.0)
    assert made.run_seconds == pytest.approx(16 * made.time.step)
    assert made.cost(3600.0) == 24.0
    assert estimate(plan(INPUTS), GPUS["h100"], 8).cost(3600.0) is None


def test_the_tables_say_what_was_computed() -> None:
    big = plan(
        replace(INPUTS, shape=shape_of_size(70e9), dtype="bfloat16", gradient_checkpointing=True)
    )
    shown = io.StringIO()
    made = estimate(big, gpu_named("H100"), 8, price=2.5)
    made.print(Console(file=shown, width=120))
    text = shown.getvalue()
    for part in ("8 x h100 (computed)", "group, LoRA", "1.13 TB !", "cost of the run"):
        assert part in text
    rows = {name: fewest for name, _, _, fewest in made.rows}
    assert rows["group"] == -(-1120 * 10**9 // int(0.9 * 80e9 - made.beside))
    shown = io.StringIO()
    measured = replace(ROUND, name="this machine", measured=True)
    estimate(plan(INPUTS), measured).print(Console(file=shown, width=120))
    assert "this machine (measured speed)" in shown.getvalue()


def test_a_later_stage_shows_what_differs() -> None:
    def shown(made: Any) -> str:
        text = io.StringIO()
        made.print(Console(file=text, width=120), "first", plan(INPUTS))
        return text.getvalue()

    assert shown(plan(INPUTS)) == "the same plan as stage first\n"
    longer = shown(plan(replace(INPUTS, steps=32)))
    assert "as stage first, except" in longer
    rows = [line.split("│")[1].strip() for line in longer.splitlines() if "│" in line]
    assert rows == [
        "steps", "epochs", "updates", "prompts", "completions", "tokens, at most",
    ]  # fmt: skip


def test_an_unknown_accelerator_is_named() -> None:
    with pytest.raises(RecipeError, match=r"--gpu h1000: unknown; did you mean 'h100'\? Legal: t4"):
        gpu_named("h1000")


@pytest.mark.parametrize("module", [hardware, render])
def test_the_examples_hold(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["plan", "tiny_arithmetic.toml", "--gpu", "h100", "--count", "8"]
    assert command([*asked, "--parameters", "32e9", "--price", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["computed"] is True
    assert found["inputs"]["shape"]["parameters"] == 32 * 10**9
    assert sum(found["methods"]["group"].values()) == 512 * 10**9
    assert sum(found["methods"]["PPO"].values()) == 1024 * 10**9
    assert found["cost_run"] == pytest.approx(found["run_seconds"] * 8 * 2 / 3600)
    assert command(["plan", "tiny_arithmetic.toml", "--count", "2"]) == 2
    assert "name an accelerator" in capsys.readouterr().err
    assert command(["plan", "tiny_arithmetic.toml", "--json"]) == 0
    here = json.loads(capsys.readouterr().out)
    assert here["computed"] is False
    assert here["hardware"]["name"] == "this machine"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--parameters", "inf", "--parameters inf: give a count from 1e6 to 1e14"),
        ("--parameters", "1e30", "--parameters 1e+30: give a count from 1e6 to 1e14"),
        ("--price", "inf", "--price inf: give the price of one hour, from 0 to 1e6"),
        ("--mean-tokens", "5", "give a mean from 1 to sampling.max_tokens (4)"),
    ],
)
def test_figures_out_of_their_range_are_refused(
    option: str, value: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["plan", "recipes/tiny_arithmetic.toml", "--gpu", "h100", option, value]
    assert command(asked) == 2
    assert message in " ".join(capsys.readouterr().err.split())
