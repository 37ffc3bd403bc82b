"""Held-out prompts in the training data: found through case, white space and width."""

from __future__ import annotations

import json

import pytest

from groupwise.environments import load_environment
from groupwise.environments.overlap import Kept, Placed, keep_apart
from groupwise.errors import RecipeError
from groupwise.types import Prompt


def placed(*texts):
    return [Placed(f"place {n}", Prompt(str(n), text=text)) for n, text in enumerate(texts)]


def test_overlap_is_found_through_case_white_space_and_width() -> None:
    train = placed("What is  3+4?", "x", "what is 3+4?")
    heldout = placed("what is 3+4?", "WHAT IS ３+4?\n", "y", "what is 3-4?")
    assert keep_apart(train, heldout, "drop", "here") == Kept({0, 2}, 2)
    assert keep_apart(train, heldout, "allow", "here") == Kept(set(), 2)
    assert keep_apart(train, heldout[2:], "refuse", "here") == Kept(set(), 0)


def test_overlap_stops_the_run_unless_it_is_allowed_or_dropped(tmp_path) -> None:
    """Fault 49: evaluation rows taken from training rows."""
    for name, texts in (("data.jsonl", ["a", "b", "2+5="]), ("eval.jsonl", ["2+5=", "3+4="])):
        rows = [{"prompt": text, "answer": 7} for text in texts]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    def load(**arguments):
        return load_environment(
            "dataset",
            verifiers=[{"name": "number"}],
            path=str(tmp_path / "data.jsonl"),
            heldout_path=str(tmp_path / "eval.jsonl"),
            **arguments,
        )

    with pytest.raises(RecipeError) as error:
        load()
    assert str(error.value) == (
        "environment 'dataset': 1 held-out prompts are also in the training data (eval.jsonl, line "
        '1 = data.jsonl, line 3); set on_overlap = "drop" to take them out of training, or "allow"'
    )
    allowed = load(on_overlap="allow")
    assert allowed.describe()["splits"] == {"train": 3, "heldout": 2}
    assert allowed.notes == ["held-out prompts that are also in the training data: 1"]
    dropped = load(on_overlap="drop")
    assert [prompt.last_text for prompt in dropped.prompts()] == ["a", "b"]
    assert dropped.describe()["dropped_overlap"] == 1
    with pytest.raises(RecipeError, match="did you mean 'on_overlap'"):
        load(near_overlap=0.5)
