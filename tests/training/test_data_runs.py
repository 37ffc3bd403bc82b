"""Whole runs on a file, on a mixture, and on chats with template variables; resumed ones too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import groupwise as gw
from groupwise.environments import Environment, Episode
from groupwise.errors import RecipeError
from groupwise.policies.tiny import build_tiny
from groupwise.recipe import load_recipe
from groupwise.training.preparing import prepare
from groupwise.training.session import open_session
from groupwise.types import Prompt
from groupwise.verifiers import load_verifier
from run_helpers import StopAfter

SUMS = [(a, b) for a in range(10) for b in range(10) if a + b <= 9]


def jsonl(path: Path, sums: Any) -> str:
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a, b in sums]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def recipe(environment: dict[str, Any], **tables: Any) -> dict[str, Any]:
    return {
        "seed": 3,
        "model": {"name": "tiny"},
        "environment": {"audit": False, **environment},
        "algorithm": {"preset": "grpo"},
        "sampling": {"group_size": 4, "max_tokens": 4},
        "training": {"prompts_per_step": 6, "steps": 6, "learning_rate": 1e-3},
        "evaluation": {"every": 0, "samples": 1, "max_prompts": 4},
        "checkpoints": {"every": 2, "keep": 3},
        **tables,
    }


def rows(folder: Path) -> dict[str, Any]:
    return {
        "name": "dataset",
        "path": jsonl(folder / "train.jsonl", SUMS[:25]),
        "heldout_path": jsonl(folder / "held.jsonl", SUMS[40:]),
        "chat": True,
        "verifiers": [{"name": "number"}],
    }


def mixture(folder: Path) -> dict[str, Any]:
    source = {key: value for key, value in rows(folder).items() if key != "audit"}
    sums = {"name": "arithmetic", "level": "table", "weight": 2.0}
    return {
        "name": "mixture",
        "on_overlap": "allow",
        "sources": [{**source, "label": "file"}, sums],
    }


@pytest.mark.slow
@pytest.mark.parametrize("kind", [rows, mixture])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(kind: Any, tmp_path: Path) -> None:
    table = recipe(kind(tmp_path))
    whole = gw.train(table, output=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        gw.train(table, output=tmp_path / "parts", callbacks=[StopAfter(2)])
    parts = gw.train(table, output=tmp_path / "parts", resume=True)
    columns = ["step", "prompt_id", "group_index", "completion_ids", "reward"]
    asked = [run.rollouts().to_pandas()[columns].astype(str) for run in (whole, parts)]
    assert asked[0].equals(asked[1])
    assert len(set(asked[0]["prompt_id"])) > 20
    weights = [
        load_file(tmp_path / name / "checkpoints" / "step_000006" / "model.safetensors")
        for name in ("whole", "parts")
    ]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    if kind is mixture:
        labels = asked[0]["prompt_id"].str.split("/").str[0].value_counts()
        assert dict(labels) == {"arithmetic": 96, "file": 48}


def test_prompts_that_leave_no_room_name_their_rows(tmp_path: Path) -> None:
    """Fault 33: nothing is cut; the row is named, or dropped and counted when asked."""
    path = tmp_path / "train.jsonl"
    rows = [{"prompt": "3+4=", "answer": "7"}, {"prompt": "1" * 50 + "=", "answer": "7"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    environment = {"name": "dataset", "path": str(path), "verifiers": [{"name": "number"}]}
    sampling = {"group_size": 4, "max_tokens": 1004}
    table = recipe(environment, sampling=sampling)
    with pytest.raises(
        RecipeError, match=r"1 prompt does not fit: train.jsonl, line 2 \(55 tokens"
    ):
        gw.train(table, output=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    dropping = recipe({**environment, "drop_too_long": True}, sampling=sampling)
    prepared = prepare(load_recipe(dropping))
    facts = prepared.environment.describe()
    assert (facts["splits"]["train"], facts["dropped_too_long"]) == (1, 1)
    assert prepared.longest_prompt == 8
    notes = ["prompts dropped because they leave no room for a completion: 1"]
    assert prepared.environment.notes == notes


def test_a_variable_that_the_chat_template_does_not_read_is_refused(tmp_path: Path) -> None:
    table = recipe(rows(tmp_path), template={"chat_template_kwargs": {"enable_thinking": False}})
    with pytest.raises(RecipeError) as error:
        gw.train(table, output=tmp_path / "run")
    assert str(error.value) == (
        "template.chat_template_kwargs: the chat template does not read 'enable_thinking'; it "
        "reads none"
    )


class Asks(Environment):
    """A user who answers once, and then ends the rollout."""

    def __init__(self, seed: int) -> None:
        prompts = [Prompt("p", messages=({"role": "user", "content": "3+4="},), answer="7")]
        super().__init__("asks", load_verifier("number"), {"train": prompts})

    def start(self, prompt: Prompt) -> Episode:
        return AsksOnce(prompt)


class AsksOnce(Episode):
    asked = False

    def next(self, completion: str) -> Any:
        asked, self.asked = self.asked, True
        return None if asked else [{"role": "user", "content": "1+1="}]


DROPS_THINKING = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>' }}"
    "{{ m['content'].split('</think>')[-1] if m['role'] == 'assistant' else m['content'] }}"
    "{{ '<|end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def test_raw_text_for_a_chat_model_is_told(tmp_path: Path) -> None:
    def notes(**arguments: Any) -> str:
        session = open_session(prepare(load_recipe(recipe({**rows(tmp_path), **arguments}))))
        session.close()
        return " ".join(session.notes())

    assert "the prompts are raw text" in notes(chat=False)
    assert "the prompts are raw text" not in notes(chat=True)


def test_a_template_that_rewrites_earlier_turns_is_refused_or_kept(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(build_tiny(), folder)
    (folder / "chat_template.jinja").write_text(DROPS_THINKING)
    table = recipe({"name": "test_data_runs:Asks"}, model={"name": str(folder)})
    table["training"] = {"prompts_per_step": 1, "steps": 1}
    with pytest.raises(RecipeError) as error:
        gw.train(table, output=tmp_path / "run")
    assert "drops the thinking of an earlier completion once a message of the role 'user'" in str(
        error.value
    )
    assert 'template.history = "keep"' in str(error.value)
    run = gw.train({**table, "template": {"history": "keep"}}, output=tmp_path / "run")
    assert run.summary["status"] == "finished"
    kept = {**table, "template": {"history": "keep"}}
    session = open_session(prepare(load_recipe(kept)))
    assert "the run keeps what was sampled" in " ".join(session.notes())
    session.close()
    tiny = recipe({"name": "test_data_runs:Asks"}, training=table["training"])
    assert gw.train(tiny, output=tmp_path / "tiny").summary["status"] == "finished"
