"""A model of the process stage in use: rewards of steps in training, and the choice in a search."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import groupwise as gw
from groupwise.errors import RecipeError
from groupwise.policies import load_policy
from groupwise.scorers import ProcessRewardModel
from groupwise.search import SearchSettings, search
from groupwise.types import Prompt
from groupwise.verifiers import Case, score_cases
from pipeline_helpers import pipeline, write_rows


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model of steps that end behind a 7, and a hot policy that is rewarded by it."""
    folder = tmp_path_factory.mktemp("rewarded")
    rows = [
        {"prompt": f"{a}+{a}=", "steps": list(own), "labels": [1, 0, 1][: len(own)]}
        for a in range(5)
        for own in (("1", "22"), ("3", "x", "9"), ("5",))
    ]
    prm = {
        "name": "prm",
        "kind": "process",
        "data": {"path": str(write_rows(folder / "rows.jsonl", rows))},
        "separator": "7",
        "training": {"steps": 4, "learning_rate": 1e-2},
        "checkpoints": {"every": 0},
    }
    rl = {
        "name": "rl",
        "kind": "rl",
        "algorithm": {"preset": "grpo_process"},
        "environment": {
            "verifiers": [
                {"name": "process_reward_model", "arguments": {"model": {"stage": "prm"}}},
                {"name": "number", "weight": 0.0, "label": "gold"},
            ]
        },
        "sampling": {"temperature": 3.0, "group_size": 8},
        "training": {"steps": 1, "prompts_per_step": 6, "learning_rate": 1e-3},
        "checkpoints": {"every": 0},
    }
    return gw.train(pipeline(Path(), prm, rl), output=folder / "run")


def test_grpo_process_learns_from_the_steps_of_an_earlier_stage(run: Any) -> None:
    """Every step's reward is the model's probability, at the token that ends the step."""
    rows = gw.open_run(run.folder / "stages" / "rl").rollouts().to_pylist()
    model = str(run.folder / "stages" / "prm" / "model")
    verifier = ProcessRewardModel(model=model, device="cpu")
    template = load_policy("tiny", device="cpu").template
    several = 0
    for row in rows:
        ends = row["step_ends"]
        several += len(ends) > 1
        texts = [template.decode_completion(row["completion_ids"][: end + 1]) for end in ends]
        for text in texts[:-1]:
            assert text.endswith("7")
        if row["text"].strip():
            assert texts[-1] == row["text"]
            assert len(row["step_rewards"]) == len(ends)
            assert row["reward"] == pytest.approx(min(row["step_rewards"]))
    assert several > 2
    assert len({round(each, 4) for row in rows for each in row["step_rewards"]}) > 10
    first = next(row for row in rows if len(row["step_ends"]) > 1)
    question = load_environment_prompt(first["prompt_id"])
    (score,) = score_cases(verifier, [Case(question, first["text"])])
    assert [each.value for each in score.steps or ()] == pytest.approx(first["step_rewards"])
    lines = gw.open_run(run.folder / "stages" / "rl").metrics().to_pylist()
    assert lines[0]["custom/process_reward_model/unaligned_steps"] == 0.0
    assert lines[0]["grad_norm"] > 0


def load_environment_prompt(name: str) -> Prompt:
    prompts = gw.load_environment("arithmetic", level="table", seed=5).prompts(split="all")
    return next(each for each in prompts if each.id == name)


@pytest.mark.parametrize("method", ["process", "best_of_n", "beam"])
def test_a_search_takes_the_folder(run: Any, method: str) -> None:
    environment = gw.load_environment("arithmetic", level="table", seed=5)
    model = str(run.folder / "stages" / "prm" / "model")
    separator: Any = {} if method == "best_of_n" else {"separator": "7"}
    found = search(
        load_policy("tiny", device="cpu"),
        environment.prompts(3),
        SearchSettings(method=method, samples=2, max_tokens=4, **separator),
        correct_by=environment.verifier,
        verifier=ProcessRewardModel(model=model, device="cpu"),
    )
    assert found.scorer == "process_reward_model"
    assert found.unscored == 0


def test_bad_folders_are_refused_before_weights_load(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another number of labels, another model's tokenizer, a model of whole texts."""

    def load(*_: Any, **__: Any) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr("groupwise.training.session.load_policy", load)
    monkeypatch.setattr("groupwise.scorers.classifiers.load_classifier", load)
    folder = run.folder / "stages" / "prm" / "model"

    def changed(name: str, **config: Any) -> str:
        own = shutil.copytree(folder, tmp_path / name)
        found = json.loads((own / "config.json").read_text("utf-8"))
        (own / "config.json").write_text(json.dumps(found | config), "utf-8")
        return str(own)

    one_label = changed("one", id2label={"0": "good"}, label2id={"good": 0})
    swapped = changed("swapped", vocab_size=8)
    whole = changed("whole", architectures=["LlamaForSequenceClassification"])
    for model, label, words in (
        (str(folder), 2, "label = 2: '{}' has labels 0 to 1"),
        (one_label, 1, "label = 1: '{}' has labels 0 to 0"),
        (swapped, 1, "model = '{}': its tokenizer has 104 ids and its embeddings 8: the tok"),
        (whole, 1, "model = '{}' is not a token classifier (its architectures: LlamaForSeq"),
    ):
        arguments = {"model": model, "label": label}
        verifier = {"name": "process_reward_model", "arguments": arguments}
        recipe = {
            "model": {"name": "tiny"},
            "environment": {"name": "arithmetic", "level": "table", "verifiers": [verifier]},
            "algorithm": {"preset": "grpo_process"},
            "training": {"steps": 1},
        }
        with pytest.raises(RecipeError) as caught:
            gw.train(recipe, output=tmp_path / "other")
        assert words.format(model) in str(caught.value)
        assert not (tmp_path / "other").exists()
