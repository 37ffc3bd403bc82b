"""What a resumed run is compared with: data, template, tools; and where a record is written."""

from __future__ import annotations

import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import groupwise as gw
from groupwise.environments import Environment
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies.tiny import build_tiny
from groupwise.recipe import load_recipe
from groupwise.training.output import same_data
from groupwise.training.preparing import prepare
from groupwise.training.session import open_session
from groupwise.training.trained import evaluate_source
from groupwise.types import Prompt
from groupwise.verifiers import load_verifier
from run_helpers import Keep, StopAfter

SUMS = [(a, b) for a in range(6) for b in range(4)]


def jsonl(path: Path, sums: Any, more: int = 0) -> str:
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b + more)} for a, b in sums]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def recipe(environment: dict[str, Any], **tables: Any) -> dict[str, Any]:
    return {
        "seed": 3,
        "model": {"name": "tiny"},
        "environment": {"audit": False, **environment},
        "algorithm": {"preset": "grpo"},
        "sampling": {"group_size": 2, "max_tokens": 3},
        "training": {"prompts_per_step": 2, "steps": 4, "learning_rate": 1e-3},
        "evaluation": {"every": 0, "samples": 1, "max_prompts": 2},
        "checkpoints": {"every": 2, "keep": 3},
        **tables,
    }


def dataset(folder: Path, **arguments: Any) -> dict[str, Any]:
    path = jsonl(folder / "train.jsonl", SUMS)
    return {"name": "dataset", "path": path, "verifiers": [{"name": "number"}], **arguments}


def begun(table: dict[str, Any], output: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        gw.train(table, output=output, callbacks=[StopAfter(2)])


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_other_answers_are_another_run(tmp_path: Path) -> None:
    table = recipe(dataset(tmp_path))
    begun(table, tmp_path / "run")
    before = files(tmp_path / "run")
    jsonl(tmp_path / "train.jsonl", SUMS, more=1)
    with pytest.raises(
        RecipeError, match=r"was made with other data \(data_hash [0-9a-f]{60} there"
    ):
        gw.train(table, output=tmp_path / "run", resume=True)
    assert files(tmp_path / "run") == before
    jsonl(tmp_path / "train.jsonl", SUMS)
    assert gw.train(table, output=tmp_path / "run", resume=True).summary["steps"] == 4


def test_a_source_that_grew_is_another_run(tmp_path: Path) -> None:
    table = recipe({"name": "mixture", "sources": [{**dataset(tmp_path), "label": "file"}]})
    begun(table, tmp_path / "run")
    jsonl(tmp_path / "train.jsonl", [*SUMS, (8, 1)])
    with pytest.raises(RecipeError, match=r"sources\.file\.data_hash [0-9a-f]+"):
        gw.train(table, output=tmp_path / "run", resume=True)


def test_another_chat_template_is_another_run(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(build_tiny(), folder)
    table = recipe(dataset(tmp_path, chat=True), model={"name": str(folder)})
    begun(table, tmp_path / "run")
    template = folder / "chat_template.jinja"
    template.write_text("{# other #}" + template.read_text())
    with pytest.raises(RecipeError, match="was made with another tokenizer or chat template"):
        gw.train(table, output=tmp_path / "run", resume=True)


def test_a_template_that_writes_the_date_is_a_warning(tmp_path: Path) -> None:
    known = {"environment": {"data_hash": "x", "tools": [1]}, "template_hash": "monday"}
    (tmp_path / "environment.json").write_text(json.dumps(known))
    now = {"environment": {"data_hash": "x", "tools": [1], "new": 1}, "template_hash": "tuesday"}
    assert same_data(tmp_path, {**now, "template_reads_clock": True}) == [
        "the chat template writes the date, and it is another day: prompts differ"
    ]
    with pytest.raises(RecipeError, match="another tokenizer"):
        same_data(tmp_path, {**now, "template_reads_clock": False})
    (tmp_path / "environment.json").write_text("{")
    with pytest.raises(RecipeError, match=r"environment\.json' cannot be read"):
        same_data(tmp_path, {**now, "template_reads_clock": False})


class Odd(Environment):
    """Columns that JSON has no word for, and that cannot be copied."""

    def __init__(self, seed: int) -> None:
        columns = {"names": {"b", "a", "c"}, "lock": threading.Lock(), "thing": object()}
        prompts = [Prompt(str(n), text=f"{n}+1=", answer=n + 1, columns=columns) for n in range(4)]
        super().__init__("odd", load_verifier("number"), {"train": prompts})


def test_columns_of_any_kind_are_the_same_data(tmp_path: Path) -> None:
    table = recipe({"name": "test_resume_compared:Odd"})
    begun(table, tmp_path / "run")
    run = gw.train(table, output=tmp_path / "run", resume=True)
    assert (run.summary["status"], run.events("warning")) == ("finished", [])


def test_a_checkpoint_without_the_order_of_prompts_is_refused_by_name(tmp_path: Path) -> None:
    session = open_session(prepare(load_recipe(recipe(dataset(tmp_path)))))
    tensors = session.extra_tensors()
    session.load_extra_tensors(tensors)
    del tensors["collector.state"]
    with pytest.raises(GroupwiseError, match=r"has no collector\.state.*start the run again"):
        session.load_extra_tensors(tensors)
    session.close()
    moving = {"preset": "grpo", "kl": {"placement": "loss", "coef": 0.1, "refresh_every": 2}}
    session = open_session(prepare(load_recipe(recipe(dataset(tmp_path), algorithm=moving))))
    tensors = session.extra_tensors()
    session.load_extra_tensors(tensors)
    del tensors[next(name for name in tensors if name.startswith("reference."))]
    with pytest.raises(GroupwiseError, match="does not fit the reference: it holds"):
        session.load_extra_tensors(tensors)
    session.close()


def test_resume_where_there_is_no_run_starts_one_and_says_so(tmp_path: Path) -> None:
    told = Keep()
    run = gw.train(
        recipe(dataset(tmp_path)), output=tmp_path / "new", resume=True, callbacks=[told]
    )
    assert run.summary["steps"] == 4
    assert f"no run in {tmp_path / 'new'} to resume: starting a new one" in told.notes


def wandering(completions: list[Any], **_: Any) -> list[float]:
    """Works somewhere else from its first call on."""
    os.chdir(os.environ["ELSEWHERE"])
    return [float(len(completion) % 2) for completion in completions]


def test_what_is_named_relative_to_the_directory_is_found_whoever_changes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reward function is tried on the data, and audited, before the model's weights load."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.setenv("ELSEWHERE", str(elsewhere))
    monkeypatch.chdir(home)
    shutil.copytree(build_tiny(), home / "model")
    environment = dataset(tmp_path, audit=True)
    environment["verifiers"] = [{"name": "test_resume_compared:wandering"}]
    run = gw.train(recipe(environment, model={"name": "model"}), output="run")
    assert (run.folder, Path.cwd()) == (home / "run", elsewhere)
    monkeypatch.chdir(home)
    assert evaluate_source("run")["eval/accuracy"] is not None


def test_a_reward_that_changes_the_directory_does_not_split_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    monkeypatch.setenv("ELSEWHERE", str(elsewhere))
    monkeypatch.chdir(home)
    jsonl(home / "train.jsonl", SUMS)
    jsonl(home / "held.jsonl", [(7, 2)])
    table = recipe(
        {
            "name": "dataset",
            "path": "train.jsonl",
            "heldout_path": "held.jsonl",
            "verifiers": [{"name": "test_resume_compared:wandering"}],
        },
        evaluation={"every": 2, "samples": 1, "max_prompts": 2},
        training={"prompts_per_step": 8, "steps": 4, "learning_rate": 1e-3},  # beyond one epoch
    )
    run = gw.train(table, output="runs/a")
    assert Path.cwd() == elsewhere
    assert run.folder == home / "runs" / "a"
    assert list(elsewhere.iterdir()) == []
    assert run.rollouts().num_rows == 4 * 8 * 2
    assert (run.folder / "checkpoints" / "step_000004").is_dir()
    assert run.evaluation_rollouts(4).num_rows > 0
    monkeypatch.chdir(home)
    assert gw.train(table, output="runs/a", resume=True).folder == run.folder
