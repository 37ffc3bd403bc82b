"""Every preset trains: a few quickly, all of them in the slow test; the page says what is so."""

from __future__ import annotations

import re
from pathlib import Path

import every_preset as experiment
import pytest

from groupwise.algorithms import PRESETS, preset

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["raft", "rloo", "dapo", "dppo_topk_tv"])
def test_a_few_presets_learn_in_a_few_steps(name: str, tmp_path: Path) -> None:
    """No ratio, KL in the reward, filters and shapers, top-K log-probabilities."""
    result = experiment.measure(name, seed=0, steps=10, folder=tmp_path)
    assert result.last > result.first
    again = experiment.measure(name, seed=0, steps=10, folder=tmp_path)
    assert again == result


@pytest.mark.slow
@pytest.mark.parametrize("name", experiment.trainable())
def test_every_preset_learns(name: str, tmp_path: Path) -> None:
    assert experiment.measure(name, seed=0, folder=tmp_path).learned


ALONE = {name for name in PRESETS if preset(name).needs.teacher == "none"}
"""What a teacher is needed for has runs of its own."""


def test_every_preset_can_be_trained() -> None:
    assert set(experiment.trainable()) == ALONE


def test_the_page_has_every_preset_and_each_rose() -> None:
    rows: dict[str, list[str]] = {}
    for line in experiment.PAGE.read_text(encoding="utf-8").splitlines():
        found = re.match(r"\| \[`(\w+)`\]", line)
        if found:
            rows[found[1]] = [cell.strip() for cell in line.strip("| ").split("|")]
    assert set(rows) == ALONE
    for name, cells in rows.items():
        assert float(cells[1]) == experiment.learning_rate(preset(name))
        seeds = [[float(x) for x in cell.split(" → ")] for cell in cells[3:]]
        assert len(seeds) == len(experiment.SEEDS)
        for first, last in seeds:
            assert last > first, name


def test_a_run_that_does_not_learn_fails_and_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flat = experiment.Result("grpo", 0, 0.5, 0.5)
    monkeypatch.setattr(experiment, "measure", lambda *args, **kwargs: flat)
    assert experiment.main(["--presets", "grpo", "--seeds", "0"]) == 1
    assert "did not learn: grpo (seed 0)" in capsys.readouterr().err
