"""The distillation recipes do what their pages say, and their controls do not."""

from __future__ import annotations

from pathlib import Path

import pytest

import groupwise as gw

RECIPES = Path(__file__).parents[2] / "recipes"


def guards(name: str, output: Path) -> dict[str, tuple[float, float]]:
    """Held-out sampled accuracy before and after each stage of a whole recipe."""
    run = gw.train(RECIPES / f"{name}.toml", output=output)
    return {
        each["name"]: (each["first"]["guard/heldout"], each["last"]["guard/heldout"])
        for each in run.summary["stages"]
    }


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_tenth_of_the_completions_brings_the_student_next_to_its_teacher(tmp_path: Path) -> None:
    """And an untrained teacher, the student itself, teaches nothing."""
    found = guards("on_policy_distillation", tmp_path / "run")
    (start, taught), (before, after) = found["teacher"], found["student"]
    assert before == start
    assert taught > start + 0.3
    assert after > taught - 0.1
    folders = {name: tmp_path / "run" / "stages" / name for name in found}
    tokens = {name: gw.open_run(folder).summary["tokens"] for name, folder in folders.items()}
    assert tokens["student"] < 0.2 * tokens["teacher"]
    steps = gw.open_run(folders["student"]).metrics().to_pylist()
    assert steps[-1]["teacher/divergence"] < 0.2 * steps[0]["teacher/divergence"]
    control = gw.train(
        RECIPES / "on_policy_distillation.toml",
        {
            "stages.teacher.training.steps": 0,
            "stages.student.training.steps": 5,
            "stages.student.evaluation.every": 0,
        },
        output=tmp_path / "control",
    ).summary["stages"][1]
    assert abs(control["last"]["guard/heldout"] - start) < 0.08


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_traces_beat_rl_at_equal_compute_and_the_students_own_teach_nothing(tmp_path: Path) -> None:
    found = guards("distil_r1", tmp_path / "run")
    start = found["distilled"][0]
    assert found["distilled"][1] > found["direct"][1] + 0.1 > start + 0.1
    assert found["distilled"][1] > found["teacher"][1] - 0.1
    assert abs(found["control"][1] - start) < 0.08
