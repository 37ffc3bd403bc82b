"""Whole runs with a teacher: the student comes nearer, a control does not, resume is exact."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import groupwise as gw
from groupwise.policies import load_policy, save_pretrained
from run_helpers import Keep, StopAfter

BASE: dict[str, Any] = {
    "seed": 3,
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "on_policy_distillation"},
    # the same policy at half its temperature is right more often: a teacher that costs nothing
    "teacher": {"name": "tiny", "temperature": 0.5},
    "sampling": {"group_size": 2, "max_tokens": 3},
    "training": {"prompts_per_step": 22, "steps": 3, "learning_rate": 1e-3},
    "evaluation": {"every": 0, "samples": 1, "max_prompts": 4},
    "checkpoints": {"every": 2, "keep": 3},
}
WHOLE = {"kind": "distillation", "form": "reverse_kl"}
MODES: dict[str, dict[str, Any]] = {
    "sampled": {},
    "whole distributions": {
        "algorithm": {"preset": "on_policy_distillation", "extras": [WHOLE]},
        "training": {**BASE["training"], "minibatches": 2},
    },
    "itself with the answer, and the reward": {
        "algorithm": {
            "preset": "grpo",
            "extras": [{"kind": "distillation", "form": "jsd", "coef": 0.5, "top_k": 8}],
        },
        "teacher": {"name": "self", "weights": "step", "context": "answer", "wording": "{text}"},
    },
    "itself as it began, with a sibling": {
        "teacher": {"name": "self", "context": "sibling"},
        "sampling": {"group_size": 4, "max_tokens": 3},
    },
}


def last_weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoints" / "step_000003" / "model.safetensors")


@pytest.mark.parametrize("name", list(MODES))
def test_a_broken_run_equals_the_whole_one(name: str, tmp_path: Path) -> None:
    recipe = {**BASE, **MODES[name]}
    gw.train(recipe, output=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        gw.train(recipe, output=tmp_path / "broken", callbacks=[StopAfter(2)])
    gw.train(recipe, output=tmp_path / "broken", resume=True)
    whole, broken = last_weights(tmp_path / "whole"), last_weights(tmp_path / "broken")
    assert all(torch.equal(tensor, broken[key]) for key, tensor in whole.items())
    start = load_policy("tiny").model.state_dict()
    assert any(not torch.equal(tensor, start[key]) for key, tensor in whole.items() if key in start)
    steps = gw.open_run(tmp_path / "whole").metrics().to_pylist()
    if "sibling" in name:  # some groups had no right completion, and then no teacher
        assert sum(step["teacher/untaught"] for step in steps) > 0
    else:
        assert all(step["teacher/untaught"] == 0 for step in steps)


def test_the_student_comes_nearer_and_a_twin_teaches_nothing(tmp_path: Path) -> None:
    """With the cooler teacher accuracy rises and the divergence falls; with the same policy at the
    same temperature there is nothing to learn."""
    recipe = {**BASE, "algorithm": {"preset": "on_policy_distillation", "extras": [WHOLE]}}
    whole = {"evaluation.samples": 8, "evaluation.max_prompts": 55}
    overrides = {"training.steps": 12, **whole}
    kept = Keep()
    run = gw.train(recipe, overrides, output=tmp_path / "run", callbacks=[kept])
    steps = run.metrics().to_pylist()
    assert run.summary["eval/accuracy_last"] > run.summary["eval/accuracy_first"] + 0.15
    assert steps[-1]["teacher/divergence"] < 0.3 * steps[0]["teacher/divergence"]
    teachers = kept.session.teachers
    assert teachers is not None
    start = load_policy("tiny").model.state_dict()
    own = teachers.policies["tiny"].model.state_dict()
    assert all(torch.equal(tensor, start[key]) for key, tensor in own.items())
    same = {"teacher.temperature": 1.0, "training.steps": 1, **whole}
    twin = gw.train(recipe, same, output=tmp_path / "twin")
    (step,) = twin.metrics().to_pylist()  # one step: Adam makes a whole step of a rounding error
    assert abs(step["teacher/divergence"]) < 1e-4 * steps[0]["teacher/divergence"]
    assert step["grad_norm"] < 1e-3 * steps[0]["grad_norm"]
    assert twin.summary["eval/accuracy_last"] < twin.summary["eval/accuracy_first"] + 0.1


def test_sources_have_their_own_teachers_and_other_weights_stop_a_resume(tmp_path: Path) -> None:
    """The second source's teacher is cooler; its share alone is taught by another policy."""
    policy = load_policy("tiny")
    with torch.no_grad():
        policy.model.lm_head.weight.mul_(2.0)  # type: ignore[union-attr]
    save_pretrained(policy, tmp_path / "sharp")
    source = {"name": "arithmetic", "level": "table"}
    recipe = {
        **BASE,
        "environment": {
            "name": "mixture",
            "on_overlap": "allow",
            "sources": [{**source, "label": "a"}, {**source, "label": "b"}],
        },
        "teacher": {"name": "tiny", "by_source": {"b": str(tmp_path / "sharp")}},
        "algorithm": {"preset": "on_policy_distillation", "extras": [WHOLE]},
        "training": {**BASE["training"], "steps": 2},
    }
    kept = Keep()
    with pytest.raises(KeyboardInterrupt):
        gw.train(
            recipe,
            {"checkpoints.every": 1},
            output=tmp_path / "run",
            callbacks=[kept, StopAfter(1)],
        )
    line = gw.open_run(tmp_path / "run").metrics().to_pylist()[0]
    assert line["teacher/divergence"] > 0.05  # half of the tokens have a teacher that differs
    with torch.no_grad():
        policy.model.lm_head.weight.mul_(2.0)  # type: ignore[union-attr]
    shutil.rmtree(tmp_path / "sharp")
    save_pretrained(policy, tmp_path / "sharp")
    with pytest.raises(gw.GroupwiseError, match=r"teacher .*sharp.* are not those"):
        gw.train(recipe, {"checkpoints.every": 1}, output=tmp_path / "run", resume=True)
