"""The reward_model stage: held-out pairs with a control, the verifier that loads it, length."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import groupwise as gw
from groupwise.errors import RecipeError
from groupwise.policies import get_model, load_policy
from groupwise.scorers import RewardModel
from groupwise.stages import classifier, reward_model
from groupwise.stages.classifier import classifier_of
from groupwise.stages.objective import micro_batches
from groupwise.stages.output import weights_of
from groupwise.stages.reward_model import RewardLoss, scores
from groupwise.training.callbacks import Callback
from groupwise.types import Prompt
from groupwise.verifiers import Case
from pair_helpers import make_pairs
from pipeline_helpers import pipeline, write_rows


def stage(data: Path, **more: Any) -> dict[str, Any]:
    training = {"learning_rate": 2e-3, "examples_per_step": 16, **more.pop("training", {})}
    return {
        "name": "rm",
        "kind": "reward_model",
        "data": {"path": str(data)},
        "training": training,
        "checkpoints": {"every": 0},
        **more,
    }


def trained(made: dict[str, Any], output: Path, *more: dict[str, Any], **options: Any) -> Any:
    table = pipeline(Path(), made, *more)
    del table["environment"], table["evaluation"]
    return gw.train(table, output=output, **options)


def model_of(folder: Path) -> Path:
    return folder / "stages" / "rm" / "model"


def few_rows() -> list[Any]:
    """Small answers are better than large ones, whatever the prompt."""
    draw, rows = random.Random(1), []
    for number in range(160):
        one, other = sorted(draw.sample(range(10), 2))
        prompt = f"{draw.randint(0, 9)}+{draw.randint(0, 9)}="
        rows.append(
            {"prompt": f"{number % 10}{prompt}", "chosen": str(one), "rejected": str(other)}
        )
    return rows


def test_held_out_pairs_are_learned_and_shuffled_ones_are_not(tmp_path: Path) -> None:
    found = {}
    for shuffled in (False, True):
        rows, draw = few_rows(), random.Random(2)
        for row in rows if shuffled else ():
            if draw.random() < 0.5:
                row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
        data = write_rows(tmp_path / f"{shuffled}.jsonl", rows)
        made = stage(data, training={"epochs": 3}, heldout_share=0.4, centring=0.01)
        made["data"]["on_bad_row"] = "drop"
        run = trained(made, tmp_path / str(shuffled))
        found[shuffled] = run.summary["stages"][0]
    first, last = found[False]["first"], found[False]["last"]
    assert first["fit/eval_loss"] == pytest.approx(0.693147, abs=1e-6)
    assert first["fit/eval_accuracy"] == 0.5
    assert last["fit/eval_accuracy"] > 0.85
    assert 0.3 < found[True]["last"]["fit/eval_accuracy"] < 0.7


def test_the_verifier_loads_the_model_and_scores_as_the_stage_did(tmp_path: Path) -> None:
    """And the policy stays what it was: the next stage starts where this one did."""
    data = write_rows(tmp_path / "rows.jsonl", few_rows()[:40])
    made = stage(data, training={"epochs": 2})
    after: dict[str, Any] = {"name": "after", "kind": "evaluate", "evaluation": {"max_prompts": 2}}
    after["environment"] = {"name": "arithmetic", "level": "table", "audit": False}
    run = trained(made, tmp_path / "run", after)
    folder = model_of(run.folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["LlamaForSequenceClassification"]
    user = {"role": "user", "content": "13+4="}
    cases = [Case(Prompt("p", (user,)), str(n)) for n in range(10)]
    raw, squashed = (
        [
            each.value
            for each in RewardModel(model=str(folder), device="cpu", scale=scale).score(cases)
        ]
        for scale in ("raw", "sigmoid")
    )
    assert raw[0] > raw[9]
    assert squashed == pytest.approx(torch.tensor(raw).sigmoid().tolist())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    ids = tokenizer.apply_chat_template(
        [user, {"role": "assistant", "content": "3"}], return_tensors="pt", return_dict=False
    )
    plain = AutoModelForSequenceClassification.from_pretrained(folder)
    assert raw[3] == pytest.approx(float(plain(ids).logits.detach()[0, 0]), abs=1e-5)
    lineage = json.loads((run.folder / "stages/after/lineage.json").read_text(encoding="utf-8"))
    assert lineage["parent"] == {"stage": "base", "weights_hash": weights_of("tiny")}


@pytest.mark.parametrize("budget", [1, 60, 10_000])
def test_value_and_gradient_however_pairs_are_divided(budget: int) -> None:
    """Every row alone, without padding, against padded micro-batches."""
    policy = load_policy("tiny", device="cpu")
    policy.model = classifier_of(policy)
    model: Any = policy.model
    torch.manual_seed(0)
    torch.nn.init.normal_(model.score.weight)
    pairs = make_pairs(margins=True)
    wanted = torch.zeros(())
    for pair in pairs:
        rewards = [
            model(input_ids=torch.tensor([[*side.prompt_ids, *side.completion_ids]])).logits[0, 0]
            for side in pair.sides
        ]
        gap = rewards[0] - rewards[1] - pair.margin
        loss = torch.log1p(torch.exp(-gap)) + 0.1 * (rewards[0] + rewards[1]) ** 2
        wanted = wanted + loss / len(pairs)
    wanted.backward()
    gradient = model.score.weight.grad.clone()
    model.zero_grad()
    objective, value = RewardLoss(0.1, 0.0), 0.0
    parts = micro_batches([objective.size(each) for each in pairs], budget, padded=True)
    for part in parts:
        loss, _ = objective.sum_loss(policy, [pairs[place] for place in part])
        (loss / len(pairs)).backward()
        value += float(loss.detach()) / len(pairs)
    assert value == pytest.approx(float(wanted.detach()), rel=1e-5)
    torch.testing.assert_close(model.score.weight.grad, gradient, rtol=1e-4, atol=1e-5)


def test_length_is_measured_and_taken_from_the_score(tmp_path: Path) -> None:
    """The longer answer was always chosen: the model learns length, and says so."""
    rows = [
        {
            "prompt": f"{n // 10}{n % 10}+{n % 7}=",
            "chosen": "1" * (3 + n % 5),
            "rejected": "1" * (1 + n % 2),
        }
        for n in range(60)
    ]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    made = stage(data, training={"epochs": 4}, heldout_share=0.4)
    run = trained(made, tmp_path / "run")
    last = run.summary["stages"][0]["last"]
    assert last["fit/eval_accuracy"] > 0.9
    assert last["length/correlation"] > 0.8
    assert last["length/slope"] > 0
    assert last["length/accuracy"] <= last["fit/eval_accuracy"]
    folder = str(model_of(run.folder))
    prompt = Prompt("p", ({"role": "user", "content": "11+4="},))
    cases = [Case(prompt, "1" * length) for length in (1, 3)]

    def judge(model: Path | str, control: bool) -> list[Any]:
        given: Any = {"model": str(model), "device": "cpu", "scale": "raw"}
        return RewardModel(**given, length_control=control).score(cases)

    plain, controlled = ([each.value for each in judge(folder, own)] for own in (False, True))
    slope, mean = last["length/slope"], last["length/mean"]
    expected = [value - slope * (n + 1 - mean) for value, n in zip(plain, (1, 3), strict=True)]
    assert controlled == pytest.approx(expected, abs=1e-5)
    bare = shutil.copytree(folder, tmp_path / "bare")
    config = json.loads((bare / "config.json").read_text(encoding="utf-8"))
    del config["length_slope"]
    (bare / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(RecipeError, match=r"has no length_slope in its config\.json"):
        judge(bare, True)


def test_what_length_is_worth_is_told_from_what_being_chosen_is_worth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scores of 2 for the chosen answer and 0.1 a token: length explains all at equal label."""

    def known(_: Any, pairs: Any) -> Tensor:
        lengths = [
            [float(len(pair.sides[place].completion_ids)) for pair in pairs] for place in (0, 1)
        ]
        return 0.1 * torch.tensor(lengths) + torch.tensor([[2.0], [0.0]])

    monkeypatch.setattr(reward_model, "scores", known)
    pairs = make_pairs(9)
    found = reward_model.length_values(load_policy("tiny", device="cpu"), pairs, 60)
    assert found["length/slope"] == pytest.approx(0.1, abs=1e-6)
    assert found["length/correlation_equal"] == pytest.approx(1.0, abs=1e-6)
    assert -1 < found["length/correlation"] < 0.9
    assert found["length/accuracy"] == 1.0


class Break(Callback):
    def on_step(self, line: Any) -> None:
        if line["step"] == 3:
            raise KeyboardInterrupt


def test_killed_inside_it_ends_as_the_unbroken_stage_does(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", few_rows()[:60])
    made = stage(data, training={"steps": 5}, heldout_share=0.2, checkpoints={"every": 2})
    trained(made, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        trained(made, tmp_path / "broken", callbacks=[Break()])
    trained(made, tmp_path / "broken", resume=True)
    one, other = (
        load_file(model_of(tmp_path / name) / "model.safetensors") for name in ("whole", "broken")
    )
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_a_reward_model_is_learned_on_and_one_of_two_labels_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", few_rows()[:40])
    run = trained(stage(data, training={"epochs": 2}), tmp_path / "run")
    folder = model_of(run.folder)
    made = stage(data, training={"steps": 1})
    again = trained({**made, "model": {"name": str(folder)}}, tmp_path / "again")
    loss = again.summary["stages"][0]["first"]["loss"]
    assert loss < run.summary["stages"][0]["first"]["loss"] - 0.02, "it starts with the head"
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["id2label"] = {"0": "bad", "1": "good"}
    config["label2id"] = {"bad": 0, "good": 1}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")

    def load(*_: Any, **__: Any) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(classifier, "load_classifier", load)
    with pytest.raises(RecipeError, match=r"with 2 labels .*trains a sequence classifier .*has 1;"):
        trained({**made, "model": {"name": str(folder)}}, tmp_path / "two")


def test_an_adapter_and_the_head_train_and_the_model_is_written_whole(tmp_path: Path) -> None:
    """Held-out pairs are learned, a killed stage ends as the unbroken one, and the model that is
    left loads as any reward model; further training of it has no adapter."""
    data = write_rows(tmp_path / "rows.jsonl", few_rows())
    made = stage(
        data,
        model={"adapter": {"rank": 4, "alpha": 8}},
        training={"epochs": 3, "learning_rate": 1e-2},
        heldout_share=0.4,
        checkpoints={"every": 2},
    )
    made["data"]["on_bad_row"] = "drop"
    run = trained(made, tmp_path / "whole")
    assert run.summary["stages"][0]["first"]["fit/eval_loss"] == pytest.approx(0.693147, abs=1e-6)
    assert run.summary["stages"][0]["last"]["fit/eval_accuracy"] > 0.8
    with pytest.raises(KeyboardInterrupt):
        trained(made, tmp_path / "broken", callbacks=[Break()])
    trained(made, tmp_path / "broken", resume=True)
    one, other = (
        load_file(model_of(tmp_path / name) / "model.safetensors") for name in ("whole", "broken")
    )
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    entry = get_model("tiny")
    assert entry is not None
    base = load_file(entry.get() / "model.safetensors")
    moved = {name for name in base.keys() & one.keys() if not torch.equal(base[name], one[name])}
    assert moved
    assert all(name.endswith("_proj.weight") for name in moved)
    user = {"role": "user", "content": "13+4="}
    cases = [Case(Prompt("p", (user,)), str(n)) for n in (0, 9)]
    low, high = RewardModel(model=str(model_of(run.folder)), device="cpu").score(cases)
    assert low.value > high.value
    again = {**made, "model": {"name": str(model_of(run.folder)), "adapter": {"rank": 4}}}
    with pytest.raises(RecipeError, match="is a reward model already, which is trained further as"):
        trained(again, tmp_path / "again")


def test_an_answer_that_is_no_text_of_the_assistant_is_refused(tmp_path: Path) -> None:
    user = {"role": "user", "content": "1+1="}
    rows = [{"prompt": [user], "chosen": [user], "rejected": "3"}]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    with pytest.raises(RecipeError, match="line 1: has an answer that does not end with a text"):
        trained(stage(data), tmp_path / "run")


def test_scores_are_of_the_last_token_whatever_stands_behind_it() -> None:
    policy = load_policy("tiny", device="cpu")
    policy.model = classifier_of(policy)
    assert not scores(policy, make_pairs()).any(), "the head is 0 at the start"
    torch.nn.init.ones_(policy.model.score.weight)  # type: ignore[union-attr, arg-type]
    pairs = make_pairs()
    together: Tensor = scores(policy, pairs).detach()
    alone = torch.cat([scores(policy, [pair]).detach() for pair in pairs], 1)
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-5)


def test_reversed_pairs_give_the_negative_of_the_reward_model(tmp_path: Path) -> None:
    """The head starts at 0, so the two fits mirror each other step by step: the control of a run
    on a reward model is the same model with the weight -1."""
    found = []
    for sides in (("chosen", "rejected"), ("rejected", "chosen")):
        rows = [
            {"prompt": row["prompt"], "chosen": row[sides[0]], "rejected": row[sides[1]]}
            for row in few_rows()[:40]
        ]
        data = write_rows(tmp_path / f"{sides[0]}.jsonl", rows)
        run = trained(stage(data, training={"epochs": 2}, centring=0.01), tmp_path / sides[0])
        cases = [Case(Prompt("p", ({"role": "user", "content": "13+4="},)), str(n)) for n in (0, 9)]
        verifier = RewardModel(model=str(model_of(run.folder)), device="cpu", scale="raw")
        found.append([score.value for score in verifier.score(cases)])
    assert abs(found[0][0]) > 0.1
    assert found[1] == pytest.approx([-value for value in found[0]], abs=1e-4)
