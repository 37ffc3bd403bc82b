"""Losses of a user's own module: found in the current folder, built, recorded, or refused early."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from groupwise.algorithms import algorithm_from_table, preset
from groupwise.algorithms.describe import describe_parts
from groupwise.cli.app import run
from groupwise.errors import RecipeError

MODULE = """
import torch
from groupwise.algorithms import part
from groupwise.algorithms.extras import Extra
from groupwise.algorithms.parts import Positive
from groupwise.algorithms.surrogates import Surrogate

@part
class Squashed(Surrogate):
    cap: Positive = 2.0

    def __call__(self, terms):
        return self.cap * (terms.ratio / self.cap).tanh() * terms.advantages

@part
class Half(Extra):
    def factor(self, terms):
        return torch.full_like(terms.ratio, 0.5)

class Bare(Surrogate):
    pass

class Other:
    pass

def plain(terms):
    return terms.ratio * terms.advantages

def two(terms, more):
    return terms

def scalar(terms):
    return terms.ratio.sum()

def nothing(terms):
    return None

made = Squashed(cap=4.0)
number = 3
"""
RECIPE = """
seed = 0
[model]
name = "tiny"
[environment]
name = "arithmetic"
[algorithm]
preset = "grpo"
surrogate = {surrogate}
[sampling]
group_size = 2
[training]
steps = 1
prompts_per_step = 2
[evaluation]
samples = 1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_parts", raising=False)
    (tmp_path / "own_parts.py").write_text(MODULE)
    return tmp_path


@pytest.mark.parametrize(
    ("surrogate", "cap"),
    [
        ("own_parts:Squashed", 2.0),
        ({"kind": "own_parts:Squashed"}, 2.0),
        ({"kind": "own_parts:Squashed", "cap": 3}, 3.0),
        ({"function": "own_parts:Squashed"}, 2.0),
        ("own_parts:made", 4.0),
    ],
)
def test_a_class_becomes_a_part_and_is_recorded(
    surrogate: object, cap: float, folder: Path
) -> None:
    made = algorithm_from_table({"preset": "grpo", "surrogate": surrogate})
    assert made.surrogate.to_table() == {"kind": "own_parts:Squashed", "cap": cap}
    assert algorithm_from_table(made.to_table()) == made
    assert preset("grpo", surrogate=type(made.surrogate)).surrogate.to_table()["cap"] == 2.0
    changed = algorithm_from_table({"preset": "grpo", "extras": ["own_parts:Half"]})
    assert changed.to_table()["extras"] == [{"kind": "own_parts:Half"}]


@pytest.mark.parametrize(
    ("surrogate", "words"),
    [
        (
            "nowhere:f",
            "algorithm.surrogate = 'nowhere:f': no module 'nowhere'",
        ),
        ("own_parts:plian", "has no 'plian'; did you mean 'plain'?"),
        ("own_parts.py:plain", 'give "own_parts:plain"'),
        ("own_parts:number", "is neither a part, a function"),
        ("own_parts:Other", "is a class, but not a part"),
        ("own_parts:Bare", "without the decorator @part"),
        ("own_parts:Half", "belongs to algorithm.extras"),
        ("own_parts:two", r"must be a function of \(terms\), not of \(terms, more\)"),
        ({"kind": "own_parts:plain", "cap": 3.0}, "takes no cap"),
        ({"kind": "own_parts:Squashed", "cpa": 3.0}, "did you mean 'cap'"),
        ({"kind": "own_parts:Squashed", "cap": -1.0}, "surrogate.cap = -1.0: .* for example 2.0"),
        ({"cap": torch.zeros(50, 50)}, "surrogate.cap"),
    ],
)
def test_anything_else_is_refused_in_one_short_message(
    surrogate: object, words: str, folder: Path
) -> None:
    with pytest.raises(RecipeError, match=words) as refused:
        algorithm_from_table({"preset": "cispo", "surrogate": surrogate})
    assert len(str(refused.value)) < 600
    assert "tensor(" not in str(refused.value)


@pytest.mark.parametrize(("name", "got"), [("scalar", "the shape ()"), ("nothing", "NoneType")])
def test_a_result_of_another_shape_is_refused(name: str, got: str, folder: Path) -> None:
    made = preset("grpo", kl_coef=0, surrogate=f"own_parts:{name}")
    with pytest.raises(ValueError, match="must return the objective of every token") as refused:
        made.loss(torch.zeros(1, 2), mask=torch.ones(1, 2).bool(), advantages=torch.ones(1))
    assert str(refused.value).endswith(f"got {got}")


def test_a_token_weight_that_does_not_exist_is_refused_early(folder: Path) -> None:
    for name, words in (("", "not `module:name`"), ("own_parts:number", "is not a function")):
        with pytest.raises(RecipeError, match=words):
            preset("grpo", extras=[{"kind": "token_weight", "function": name}])


def test_a_command_finds_the_file_in_its_folder(folder: Path) -> None:
    """As a user runs it: nothing but the current folder leads to the module."""
    assert run(["init", "loss", "my_loss"]) == 0
    (folder / "mine.toml").write_text(RECIPE.format(surrogate='"my_loss:my_loss"'))
    path = os.pathsep.join(each for each in sys.path if each.endswith("src"))
    done = subprocess.run(
        [sys.executable, "-m", "groupwise", "train", "mine.toml", "--output", "run"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_part_trains_resumes_and_evaluates(folder: Path) -> None:
    table = '{ kind = "own_parts:Squashed", cap = 3.0 }'
    (folder / "mine.toml").write_text(RECIPE.format(surrogate=table))
    assert run(["train", "mine.toml", "--output", "run"]) == 0
    again = ["train", "mine.toml", "--output", "run", "--resume", "--training.steps", "2"]
    assert run(again) == 0
    assert run(["eval", "run"]) == 0


def test_a_wrong_loss_exits_with_2_before_weights_load(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "mine.toml").write_text(RECIPE.format(surrogate='"own_parts:Other"'))
    assert run(["train", "mine.toml", "--output", "run"]) == 2
    shown = capsys.readouterr()
    assert "is a class, but not a part" in shown.err
    assert len(shown.err) < 600
    assert not (folder / "run").exists()


@pytest.mark.parametrize("name", ["squashed", "gpro", "klip", "vspo", "zzz", "rewards"])
def test_show_gives_the_nearest_names(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["algorithms", "show", name]) == 2
    shown = capsys.readouterr().err
    assert "groupwise algorithms list" in shown
    assert len(shown) < 200
    assert ", ," not in shown


def test_show_gives_legal_values() -> None:
    (kl,) = describe_parts("k3")
    assert '  placement = "none"  ("none" or "loss" or "token_reward" or "sequence_reward")' in (
        kl.text()
    )
    assert "  refresh_mix = 1  (float > 0 and ≤ 1)" in kl.text()
    (clip,) = describe_parts("clip")
    assert "  dual = unset  (float > 1 or unset)" in clip.text()
    (kernel,) = describe_parts("gamma_kernel")
    assert "  positive = [2.0, 3.0]  ([float, float])" in kernel.text()
