"""The recipe's checkpoint and evaluation tables, the machine's description, hashes."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

import pytest
from pydantic import ValidationError

from groupwise.records import (
    CheckpointSettings,
    EvaluationSettings,
    available_cpus,
    describe_machine,
    file_hash,
    recipe_hash,
    text_hash,
)


def test_defaults_are_the_designs():
    assert CheckpointSettings().model_dump() == {
        "every": 20,
        "keep": 2,
        "grace_seconds": None,
        "best": None,
        "keep_best": 1,
        "best_direction": None,
    }
    settings = EvaluationSettings()
    assert (settings.every, settings.samples, settings.max_prompts) == (20, 4, None)


@pytest.mark.parametrize("model", [CheckpointSettings, EvaluationSettings])
def test_every_field_is_described(model):
    for name, field in model.model_fields.items():
        assert field.description, name


def test_a_misspelt_best_metric_fails_with_the_names():
    """Fault 46."""
    with pytest.raises(ValidationError, match="no metric is called 'eval/acuracy'") as caught:
        CheckpointSettings(best="eval/acuracy")
    assert "did you mean eval/accuracy" in str(caught.value)
    assert "eval/heldout_greedy" in str(caught.value)


def test_the_direction_comes_from_the_metric():
    assert CheckpointSettings(best="eval/heldout").direction == "higher"
    assert CheckpointSettings(best="verifier/number").direction == "higher"
    assert CheckpointSettings(best="unscored").direction == "lower"
    assert CheckpointSettings().direction is None


def test_loss_is_no_measure_of_the_best():
    with pytest.raises(ValidationError, match="neither direction of this metric is progress"):
        CheckpointSettings(best="loss")
    assert CheckpointSettings(best="loss", best_direction="lower").direction == "lower"
    with pytest.raises(ValidationError, match="best is not"):
        CheckpointSettings(best_direction="lower")
    with pytest.raises(ValidationError, match="keep_best is set and best is not"):
        CheckpointSettings(keep_best=3)


def test_limits():
    for wrong in ({"keep": 0}, {"every": -1}, {"evry": 2}):
        with pytest.raises(ValidationError):
            CheckpointSettings(**wrong)
    with pytest.raises(
        ValidationError, match=r"pass_at_k holds 8; k must be from 1 to samples \(4\)"
    ):
        EvaluationSettings(pass_at_k=(1, 8))
    with pytest.raises(ValidationError, match="both name heldout"):
        EvaluationSettings(splits=("heldout",), guards=("heldout",))
    assert EvaluationSettings(samples=1).samples == 1


def test_the_machine_is_described():
    found = describe_machine(threads=1, data_hash="abc")
    assert found["versions"]["python"] == platform.python_version()
    assert found["versions"]["torch"] == metadata.version("torch")
    assert found["cpus"] == available_cpus() >= 1
    assert found["memory_bytes"] > 10**8
    assert (found["threads"], found["data_hash"]) == (1, "abc")


def test_the_code_s_commit_is_recorded_in_a_checkout():
    root = Path(__file__).parents[2]
    code = describe_machine()["code"]
    if not (root / ".git").exists():
        assert code == {}
    else:
        assert len(code["commit"]) == 40
        assert isinstance(code["changed"], bool)


def test_hashes(tmp_path: Path):
    (tmp_path / "f").write_bytes("ü\n".encode())
    assert file_hash(tmp_path / "f") == text_hash("ü\n")
    one, other = "b = 1\n[t]\nx = 2\ny = 3\n", "b = 1\nt = { y = 3, x = 2 }\n"
    assert recipe_hash(one) == recipe_hash(other) != recipe_hash(one.replace("2", "4"))
    assert text_hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
