"""`groupwise simulate`: JSON, recorded runs, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from benchmarks.simulation import RUNS, local_rows

from groupwise.cli.app import run as command

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "benchmarks" / "simulation.json"
RECIPES = ROOT / "recipes"
ASKED = ["simulate", "tiny_arithmetic.toml", "--gpu", "h100", "--parameters", "8e9"]


def test_other_settings_of_recorded_runs_are_predicted_within_20_percent() -> None:
    rows = local_rows(json.loads(RECORDED.read_text("utf-8")))
    assert len(rows) == sum(len(settings) - 1 for settings in RUNS.values())
    for recipe, settings, predicted, measured in rows:
        assert predicted == pytest.approx(measured, rel=0.2), (recipe, settings)


def test_json_has_every_layout(capsys: pytest.CaptureFixture[str]) -> None:
    assert command([*ASKED, "--gpus", "8,32", "--staleness", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["layout"]["samplers"] > 0 for each in found["best"]] == [True, True]
    assert found["hardware"] == "h100"
    assert found["max_staleness"] == 2
    assert found["mean_tokens"] == 2.0  # half of sampling.max_tokens
    assert found["calibration"] == {"rollout": 1.0, "logprobs": 1.0, "learn": 1.0, "rest": 0.0}
    assert {"step", "busy", "staleness", "staleness_max"} <= found["played"][0].keys()
    assert command([*ASKED, "--gpus", "8,32"]) == 0
    shown = capsys.readouterr().out
    assert "samplers of 1 devices" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpus", "8,none"], "--gpus 8,none: give numbers from 1 to 65536, as 8,64,512"),
        (["--gpus", "0"], "--gpus 0: give numbers"),
        (["--mean-tokens", "9000"], "give a mean from 1 to sampling.max_tokens (4)"),
        (["--mean-tokens", "nan"], "--mean-tokens nan: give a mean from 1 to"),
        (["--mean-tokens", "-3"], "--mean-tokens -3: give a mean from 1 to"),
        (["--mean-tokens", "0.001"], "--mean-tokens 0.001: give a mean from 1 to"),
        (["--verifiers", "100000000"], "--verifiers 1e+08: give at most 1e6"),
        (["--spread", "nan"], "--spread nan: give a standard deviation of logs from 0 to 3"),
        (["--link", "inf"], "--link inf: give"),
        (["--verify-seconds", "inf"], "--verify-seconds inf: give at most 1e6"),
        (["--gpu", "h1000"], "did you mean 'h100'"),
        (["--staleness", "-1"], "'--staleness': Input should be greater than or equal to 0"),
        (["--gpus", "1"], "policy and optimiser need at least 4 x h100"),
    ],
)
def test_figures_out_of_their_range_are_refused(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command([*ASKED, *options]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_staleness_is_the_recipes_or_one(capsys: pytest.CaptureFixture[str]) -> None:
    ahead = ["--compute.max_staleness", "3", "--algorithm.correction", "truncate"]
    for options, staleness in (([], 1), (ahead, 3), ([*ahead, "--staleness", "2"], 2)):
        assert command([*ASKED, "--gpus", "8", "--json", *options]) == 0
        assert json.loads(capsys.readouterr().out)["max_staleness"] == staleness


@pytest.mark.parametrize(
    "compute", ["max_staleness = 2", "processes = 2", 'cluster = "auto"'], ids=str.split
)
def test_a_run_that_is_not_one_process_in_turn_does_not_calibrate(
    compute: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = (RECIPES / "tiny_arithmetic.toml").read_text("utf-8")
    corrected = recipe.replace("[algorithm]", '[algorithm]\ncorrection = "truncate"')
    (tmp_path / "recipe.toml").write_text(f"{corrected}\n[compute]\n{compute}\n", "utf-8")
    assert command(["simulate", str(tmp_path)]) == 2
    said = " ".join(capsys.readouterr().err.replace("'", '"').split())
    assert f"was recorded with compute.{compute}: its seconds are not" in said


def test_without_simpy_the_package_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "simpy", None)
    assert command(ASKED) == 2
    assert "needs the package simpy: pip install simpy" in capsys.readouterr().err
