"""Files of one run in the folder of another: told apart by the run's id, never by their shapes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from survival_recipe import RECIPE

import groupwise as gw
from groupwise.checkpoints import checkpoint_steps, damage, is_complete, newest_complete, prune
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.training.trained import trained_policy
from pipeline_helpers import pipeline, sum_rows, write_rows
from run_helpers import Keep, StopAfter


def begun(folder: Path, **overrides: Any) -> str:
    """A run that ends within its third step; its id."""
    with pytest.raises(KeyboardInterrupt):
        gw.train(RECIPE, overrides, output=folder, callbacks=[StopAfter(2)])
    run_id: str = gw.open_run(folder).environment["run_id"]
    return run_id


def test_a_checkpoint_of_another_run_is_named_and_never_used(tmp_path: Path) -> None:
    whole = gw.train(RECIPE, output=tmp_path / "whole")
    run, other = tmp_path / "run", tmp_path / "other"
    own_id = begun(run)
    other_id = begun(other, seed=6)
    path = run / "checkpoints" / "step_000002"
    shutil.rmtree(path)
    shutil.copytree(other / "checkpoints" / path.name, path)
    why = f"it was written by the run {other_id}, and this one is {own_id}"
    assert damage(path) == why
    with pytest.raises(GroupwiseError, match=why):
        trained_policy(run, step=2)
    keep = Keep()
    resumed = gw.train(RECIPE, output=run, resume=True, callbacks=[keep])
    assert any(note.startswith("step_000002 skipped: ") and why in note for note in keep.notes)
    assert "resumed at step 1" in keep.notes
    name = "checkpoints/step_000003/model.safetensors"
    ours, theirs = load_file(resumed.folder / name), load_file(whole.folder / name)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert is_complete(path), "written again by its own run"


def test_a_newer_checkpoint_of_another_run_costs_none_of_the_runs_own(tmp_path: Path) -> None:
    """With keep = 1 it was the newest complete one, and the run's own would be deleted."""
    run, other = tmp_path / "run", tmp_path / "other"
    begun(run)
    gw.train(RECIPE, output=other)
    folder = run / "checkpoints"
    shutil.copytree(other / "checkpoints" / "step_000003", folder / "step_000003")
    assert checkpoint_steps(folder) == [1, 2, 3]
    assert prune(folder, keep=1) == [folder / "step_000001"]
    with pytest.warns(UserWarning, match="step_000003 skipped: it was written by"):
        assert newest_complete(folder) == folder / "step_000002"


@pytest.mark.slow
def test_a_copied_run_keeps_its_id_and_one_without_an_id_still_resumes(tmp_path: Path) -> None:
    begun(tmp_path / "run")
    copy = Path(shutil.copytree(tmp_path / "run", tmp_path / "copy"))
    assert gw.train(RECIPE, output=copy, resume=True).summary["status"] == "finished"
    about = json.loads((tmp_path / "run" / "environment.json").read_text())
    del about["run_id"]  # as a version before wrote it
    (tmp_path / "run" / "environment.json").write_text(json.dumps(about))
    keep = Keep()
    gw.train(RECIPE, output=tmp_path / "run", resume=True, callbacks=[keep])
    assert "resumed at step 2" in keep.notes


@pytest.mark.parametrize("output", ["../../elsewhere", "/tmp/elsewhere", "stages/rl/model", 3])
def test_a_lineage_names_no_folder_but_its_own(tmp_path: Path, output: Any) -> None:
    recipe = pipeline(write_rows(tmp_path / "sums.jsonl", sum_rows()))
    recipe["stages"] = recipe["stages"][:1]
    small = {"stages.0.training.steps": 1}
    run = gw.train(recipe, small, output=tmp_path / "run")
    path = run.folder / "stages" / "sft" / "lineage.json"
    lineage = json.loads(path.read_text())
    assert lineage["result"]["output"] == "stages/sft/model"
    path.write_text(json.dumps(lineage | {"result": lineage["result"] | {"output": output}}))
    with pytest.raises(RecipeError, match="is not the stage's own folder 'stages/sft/model'"):
        gw.train(recipe, small, output=run.folder, resume=True)


def test_a_stages_model_is_no_link_to_elsewhere(tmp_path: Path) -> None:
    recipe = pipeline(write_rows(tmp_path / "sums.jsonl", sum_rows()))
    recipe["stages"] = recipe["stages"][:1]
    small = {"stages.0.training.steps": 1}
    run = gw.train(recipe, small, output=tmp_path / "run")
    model = run.folder / "stages" / "sft" / "model"
    os.rename(model, tmp_path / "elsewhere")
    model.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RecipeError, match="a model from elsewhere is not read"):
        gw.train(recipe, small, output=run.folder, resume=True)
