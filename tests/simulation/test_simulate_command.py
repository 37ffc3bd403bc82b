"""`groupwise simulate`: JSON, recorded runs, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.simulation import RUNS, local_rows

from groupwise.cli.app import run as command

RECORDED = Path(__file__).parents[2] / "benchmarks" / "simulation.json"
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
        (["--spread", "nan"], "--spread nan: give a standard deviation of logs from 0 to 3"),
        (["--link", "inf"], "--link inf: give"),
        (["--verify-seconds", "inf"], "--verify-seconds inf: give at most 1e+06"),
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
