"""A later stage's verifier reads an earlier stage's reward model, or its policy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import groupwise as gw
from groupwise.errors import RecipeError
from groupwise.policies import get_model
from groupwise.scorers import RewardModel
from groupwise.stages import check_pipeline, load_pipeline
from groupwise.texts import from_toml
from groupwise.training.callbacks import Callback
from groupwise.types import Prompt
from groupwise.verifiers import Case
from pair_helpers import wrong_rows
from pipeline_helpers import pipeline, write_rows

USE = {"name": "reward_model", "arguments": {"model": {"stage": "scorer"}, "device": "cpu"}}
RL: dict[str, Any] = {
    "name": "rl",
    "kind": "rl",
    "environment": {"verifiers": [USE]},
    "training": {"steps": 3, "prompts_per_step": 2, "learning_rate": 1e-3},
    "checkpoints": {"every": 1},
}


def scorer(data: Path) -> dict[str, Any]:
    training = {"steps": 4, "examples_per_step": 16, "learning_rate": 2e-3}
    return {
        "name": "scorer",
        "kind": "reward_model",
        "data": {"path": str(data)},
        "training": training,
        "checkpoints": {"every": 0},
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "pairs.jsonl", wrong_rows())


class Break(Callback):
    """Stops in the rl stage, behind its second step."""

    def __init__(self) -> None:
        self.kind = ""

    def on_stage(self, name: str, kind: str, folder: Path) -> None:
        self.kind = kind

    def on_step(self, line: Any) -> None:
        if self.kind == "rl" and line["step"] == 2:
            raise KeyboardInterrupt


def test_rl_reads_the_reward_of_the_stage_and_survives_a_kill(data: Path, tmp_path: Path) -> None:
    table = pipeline(data, RL, scorer(data))  # the order of the run is that of the reads
    table["stages"] = [stage | {"from": "base"} for stage in table["stages"]]
    whole = gw.train(table, output=tmp_path / "whole")
    assert [each["name"] for each in whole.summary["stages"]] == ["scorer", "rl"]
    folder = whole.folder / "stages" / "scorer" / "model"
    verifier = RewardModel(model=str(folder), device="cpu")
    rows = gw.open_run(whole.folder / "stages" / "rl").rollouts().to_pylist()[:8]
    prompts = {each.id: each for each in gw.load_environment("arithmetic", level="table").prompts()}
    for row in rows:
        prompt = Prompt("p", prompts[row["prompt_id"]].messages)
        (score,) = verifier.score([Case(prompt, row["text"])])
        assert row["reward"] == pytest.approx(score.value, abs=1e-5)
    assert len({row["reward"] for row in rows}) > 1
    assert {row["outcome"] for row in rows} == {"no_verdict"}
    judged = gw.open_run(whole.folder / "stages" / "rl").summary
    accuracies = [judged[f"eval/{name}_last"] for name in ("accuracy", "greedy", "heldout")]
    assert accuracies == [None] * 3, "a reward model alone says nothing about what is right"
    assert 0 < judged["eval/last"]["eval/verifier/reward_model"] < 1
    lineage = json.loads((whole.folder / "stages" / "rl" / "lineage.json").read_text("utf-8"))
    made = json.loads((whole.folder / "stages" / "scorer" / "lineage.json").read_text("utf-8"))
    assert lineage["scorers"] == {"scorer": made["weights_hash"]}
    assert lineage["parent"]["stage"] == "base"

    with pytest.raises(KeyboardInterrupt):
        gw.train(table, output=tmp_path / "broken", callbacks=[Break()])
    broken = gw.train(table, output=tmp_path / "broken", resume=True)
    one, other = (
        load_file(run.folder / "stages" / "rl" / "model" / "model.safetensors")
        for run in (whole, broken)
    )
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_rejection_and_evaluate_read_it_too(data: Path, tmp_path: Path) -> None:
    best = {"kind": "rejection", "keep": "best", "prompts": 4, "unfinished": True}
    evaluate = {"kind": "evaluate", "evaluation": {"max_prompts": 4}}
    judged = [{**each, "environment": {"verifiers": [USE]}} for each in (best, evaluate)]
    table = pipeline(data, scorer(data), *judged)
    del table["environment"]["audit"]
    run = gw.train({**table, "guard": {"evaluation": {"max_prompts": 2}}}, output=tmp_path / "run")
    rows = [
        json.loads(line)
        for line in (run.folder / "stages/rejection/data.jsonl").read_text("utf-8").splitlines()
    ]
    assert len(rows) == 4
    assert all(0 < row["reward"] < 1 for row in rows)
    assert 0 < run.summary["stages"][2]["last"]["eval/verifier/reward_model"] < 1


def refused(table: Any) -> str:
    with pytest.raises(RecipeError) as caught:
        check_pipeline(load_pipeline(table))
    return str(caught.value)


def using(verifier: str = "reward_model", stage: str = "scorer", **arguments: Any) -> Any:
    arguments = {"model": {"stage": stage}, **arguments}
    return {**RL, "environment": {"verifiers": [{"name": verifier, "arguments": arguments}]}}


def test_bad_uses_are_refused_before_weights_load(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: Any, **__: Any) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr("groupwise.stages.stage.load_policy", load)
    monkeypatch.setattr("groupwise.scorers.classifiers.load_classifier", load)
    made = scorer(data)
    judged = {"environment": {"verifiers": [USE]}}
    rejected = {"name": "best", "kind": "rejection", "prompts": 4, **judged}
    export = {"name": "plain", "kind": "export"}
    for stages, words in (
        ([made, using(stage="scorre")], "the stage 'scorre' is not known; did you mean 'scorer'?"),
        ([made, using(stage="x")], "the stage 'x' is not known; one of base, scorer"),
        (
            [made, {"kind": "preference", "data": {"stage": "base"}}],
            "the stage 'base' is not known; one of scorer",
        ),
        ([{**made, "data": {"stage": "x"}}], "the stage 'x' is not known; one of none"),
        ([export, using(stage="plain")], """'plain' leaves no model for it; name a stage that"""),
        ([export, using(stage="plain")], 'trains one (kind "reward_model")'),
        ([made, using(stage="base")], "model.stage = 'base' leaves no model for it"),
        (
            [made, using("process_reward_model")],
            'trains one (kind "process")',
        ),
        ([made, using("local_judge")], "leaves a model for the verifier 'reward_model', and this"),
        (
            [made, {"kind": "merge", "from": "scorer"}],
            "from = 'scorer': the kind 'reward_model' leaves a model for",
        ),
        *(
            ([made, stage | {"from": "scorer"}], '; name a stage that trains one, or "base"')
            for stage in ({"kind": "export"}, RL, {"kind": "evaluate"}, {**made, "name": "other"})
        ),
        (
            [made, {"kind": "merge", "from": "base", "models": [{"stage": "scorer"}]}],
            "stage 'merge': models.stage = 'scorer': the kind 'reward_model' leaves a model for",
        ),
        (
            [made, {"kind": "distillation", "from": "base", "teacher": {"stage": "scorer"}}],
            "teacher.stage = 'scorer': the kind 'reward_model' leaves a model for the verifier",
        ),
        (
            [
                made,
                {
                    "kind": "distillation",
                    "mode": "on_policy",
                    "from": "base",
                    "teacher": {"stage": "scorer"},
                },
            ],
            "teacher.stage = 'scorer': the kind 'reward_model' leaves a model for the verifier",
        ),
        (
            [
                made,
                {**rejected, "keep": "all"},
                {
                    "kind": "preference",
                    "data": {
                        "stage": "best",
                        "pairing": {
                            "by": "judge",
                            "judge": {"name": "local_judge", "model": {"stage": "scorer"}},
                        },
                    },
                },
            ],
            "verifier 'local_judge': model.stage = 'scorer' leaves a model for the verifier 'rew",
        ),
        (
            [made, {**rejected, "keep": "correct"}],
            'keep = "correct" asks which completions are right, and verifier ',
        ),
        (
            [made, {**rejected, "keep": "all", "repair": {}}],
            "repair asks which completions are right, and verifier 'reward_model' gives values",
        ),
        (
            [made, {**rejected, "keep": "all"}, {"kind": "preference", "data": {"stage": "best"}}],
            "data.stage = 'best': pairing.by = 'correct' asks which completions are right",
        ),
        (
            [made, {**RL, **judged, "selection": {"pool": {"low": 0.1, "high": 0.9}}}],
            "selection.pool asks which completions are right",
        ),
        ([{**made, "from": "rl"}, RL], "read each other in a circle: scorer -> rl -> scorer"),
    ):
        assert words in refused(pipeline(data, *stages)), words
    table = pipeline(data, made, {"name": "rl", "kind": "rl"})
    table["environment"]["verifiers"] = [USE]
    assert "guard set is measured before the first stage" in refused(table)
    check_pipeline(load_pipeline(pipeline(data, export, using("local_judge", "plain"))))
    check_pipeline(load_pipeline(pipeline(data, export, using("local_judge", "base"))))


def test_a_stage_starts_from_the_last_one_before_it_that_leaves_a_policy(data: Path) -> None:
    sft = {"kind": "supervised", "data": {"path": str(data)}}
    second = {**scorer(data), "name": "second"}
    made = load_pipeline(pipeline(data, scorer(data), sft, second, RL))
    starts = {node.name: node.start for node in made.nodes}
    assert starts == {"scorer": "base", "supervised": "base", "second": "supervised",
                      "rl": "supervised"}  # fmt: skip
    assert load_pipeline(from_toml(made.to_toml())) == made


def test_folders_that_hold_no_reward_model_are_refused(data: Path, tmp_path: Path) -> None:
    entry = get_model("tiny")
    assert entry is not None
    tiny = str(entry.get())
    recipe = pipeline(data)
    recipe["training"] = {"steps": 1}
    del recipe["stages"]

    def message(**arguments: Any) -> str:
        verifier = {"name": "reward_model", "arguments": {"device": "cpu", **arguments}}
        recipe["environment"]["verifiers"] = [verifier]
        with pytest.raises(RecipeError) as caught:
            gw.train(recipe, output=tmp_path / "run")
        assert not (tmp_path / "run").exists()
        return str(caught.value)

    assert "no such folder" in message(model=str(tmp_path / "nowhere"))
    assert "is not a sequence classifier (its architectures: LlamaFor" in message(model=tiny)
    run = gw.train(
        {key: value for key, value in pipeline(data, scorer(data)).items() if key != "environment"},
        {"stages.scorer.training.steps": 1},
        output=tmp_path / "pairs",
    )
    folder = run.folder / "stages" / "scorer" / "model"
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["id2label"] = {"0": "a", "1": "b", "2": "c"}
    labelled = shutil.copytree(folder, tmp_path / "labelled")
    (labelled / "config.json").write_text(json.dumps(config), "utf-8")
    assert "label = 3: " in message(model=str(labelled), label=3)
    small = shutil.copytree(folder, tmp_path / "small")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (small / "config.json").write_text(json.dumps({**config, "vocab_size": 8}), "utf-8")
    assert "the tokenizer is another model's" in message(model=str(small))
