"""The doctor names the fault of each broken recipe, and its change makes the recipe learn."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

import groupwise as gw
from groupwise.doctor import Diagnosis, Finding, diagnose
from groupwise.errors import RecipeError
from groupwise.recipe import find_recipe, load_recipe

FOLDER = Path(__file__).parents[2] / "recipes" / "broken"
FAULTS = {
    "flat_reward": "base_rate_zero", "no_signal": "too_hard", "too_many_passes": "clip_saturation",
}  # fmt: skip


def first_fault(found: Diagnosis) -> Finding:
    return next(finding for finding in found.findings if finding.level != "info")


def accuracies(run: gw.Run) -> list[float]:
    """Held out, before and after."""
    held = run.evaluations().column("eval/heldout").to_pylist()
    return [held[0], held[-1]]


def test_they_are_found_by_name_and_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sorted(FAULTS) == sorted(path.stem for path in FOLDER.glob("*.toml"))
    monkeypatch.chdir(tmp_path)
    assert find_recipe("recipes/broken/no_signal.toml").samefile(FOLDER / "no_signal.toml")
    with pytest.raises(RecipeError) as error:
        find_recipe("no_signal.toml")
    assert "no_signal.toml" not in str(error.value).split("that ships")[1]


@pytest.mark.parametrize("name", FAULTS)
def test_its_recipe_is_valid(name: str) -> None:
    assert load_recipe(FOLDER / f"{name}.toml").training.steps <= 40


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_named_change_makes_it_learn(name: str, tmp_path: Path) -> None:
    broken = gw.train(FOLDER / f"{name}.toml", output=tmp_path / "broken")
    fault = first_fault(diagnose(broken))
    assert fault.kind == FAULTS[name]
    flags = shlex.split(fault.flags)
    changes = {
        field.removeprefix("--"): value
        for field, value in zip(flags[::2], flags[1::2], strict=True)
    }
    mended = gw.train(FOLDER / f"{name}.toml", changes, output=tmp_path / "mended")
    before, after = accuracies(mended)
    assert after > before + 0.1
    assert after > accuracies(broken)[1] + 0.1
