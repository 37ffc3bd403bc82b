"""The process stage: loss and labels, rows of every shape, Math-Shepherd labels, the verifier."""

from __future__ import annotations

import json
import math
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForTokenClassification, AutoTokenizer

import groupwise as gw
from groupwise.algorithms.process import completion_label, step_loss
from groupwise.environments.readers import Row
from groupwise.errors import RecipeError
from groupwise.policies import load_policy
from groupwise.scorers import ProcessRewardModel
from groupwise.stages import classifier
from groupwise.stages.classifier import classifier_of, tokenizer_at
from groupwise.stages.objective import micro_batches
from groupwise.stages.process import StepLoss
from groupwise.stages.step_rows import StepData, StepExample, step_example, written
from groupwise.training.callbacks import Callback
from groupwise.types import Prompt
from groupwise.verifiers import Case
from pipeline_helpers import pipeline, write_rows

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "algorithms.json").read_text())


# The loss and the labels.


def test_golden_labels_and_losses() -> None:
    golden = GOLDEN["scalars"]["Math-Shepherd"]
    odds = torch.logit(torch.tensor(golden["prm_scores"], dtype=torch.float64))
    for kind in ("hard", "soft"):
        labels = [
            completion_label(sum(each), len(each), hard=kind == "hard")
            for each in golden["rollout_success"]
        ]
        assert labels == golden[kind]
        loss = step_loss(odds, torch.tensor(labels, dtype=torch.float64)).mean()
        assert float(loss) == pytest.approx(golden[f"prm_bce_{kind}"], abs=1e-12)


def test_value_and_gradient_are_the_formula() -> None:
    """In floats alone; and the gradient sigmoid(z) - y."""
    odds = [-30.0, -1.3, 0.0, 0.4, 25.0]
    labels = [0.0, 0.25, 1.0, 0.5, 0.0]
    z = torch.tensor(odds, dtype=torch.float64, requires_grad=True)
    loss = step_loss(z, torch.tensor(labels, dtype=torch.float64))
    for value, at, label in zip(loss.tolist(), odds, labels, strict=True):
        share = 1 / (1 + math.exp(-at))
        plain = -label * math.log(share) - (1 - label) * math.log1p(-share)
        assert value == pytest.approx(plain, rel=1e-4)
    loss.sum().backward()
    wanted = torch.sigmoid(z.detach()) - torch.tensor(labels, dtype=torch.float64)
    torch.testing.assert_close(z.grad, wanted)


def examples(count: int = 7) -> list[StepExample]:
    draw, made = random.Random(1), []
    for _ in range(count):
        ids = tuple(draw.randint(3, 20) for _ in range(draw.randint(3, 14)))
        places = tuple(sorted(draw.sample(range(1, len(ids)), draw.randint(1, 2))))
        made.append(StepExample(ids[:1], ids, places, tuple(draw.random() for _ in places)))
    return made


@pytest.mark.parametrize("budget", [1, 40, 10_000])
def test_value_and_gradient_however_solutions_are_divided(budget: int) -> None:
    """Every row alone, without padding, against padded micro-batches."""
    policy = load_policy("tiny", device="cpu")
    policy.model = classifier_of(policy, "token")
    model: Any = policy.model
    torch.manual_seed(0)
    torch.nn.init.normal_(model.score.weight)
    rows = examples()
    total = sum(len(each.places) for each in rows)
    wanted = torch.zeros(())
    for each in rows:
        logits = model(input_ids=torch.tensor([each.ids])).logits[0]
        for place, label in zip(each.places, each.labels, strict=True):
            logs = logits[place].log_softmax(-1)
            wanted = wanted - (label * logs[1] + (1 - label) * logs[0]) / total
    wanted.backward()
    gradient = model.score.weight.grad.clone()
    model.zero_grad()
    objective, value = StepLoss(), 0.0
    for part in micro_batches([objective.size(each) for each in rows], budget, padded=True):
        loss, _ = objective.sum_loss(policy, [rows[place] for place in part])
        (loss / total).backward()
        value += float(loss.detach()) / total
    assert value == pytest.approx(float(wanted.detach()), rel=1e-5)
    torch.testing.assert_close(model.score.weight.grad, gradient, rtol=1e-4, atol=1e-5)


# Rows.


def solutions(row: dict[str, Any], **fields: Any) -> list[tuple[Any, ...]]:
    found = StepData(path="rows.jsonl", **fields).solutions(Row("line 1", row))
    return [(each.prompt.messages[0]["content"], each.steps, each.labels) for each in found]


def test_rows_of_every_shape() -> None:
    steps = ("a", "b")
    for row, labels in (
        ({"steps": ["a", "b"], "labels": [1, 0.25]}, (1.0, 0.25)),
        ({"steps": ["a", "b"], "labels": [None, True]}, (None, 1.0)),
        ({"completions": ["a", "b"], "labels": [True, False]}, (1.0, 0.0)),
        ({"steps": ["a", "b"], "ratings": [0, -1]}, (1.0, 0.0)),
        ({"steps": [{"text": "a", "rating": 1}, {"text": "b", "rating": None}]}, (1.0, None)),
        ({"steps": [{"text": "a", "label": 0}, {"text": "b", "label": 1}]}, (0.0, 1.0)),
    ):
        assert solutions({"prompt": "q", **row}) == [("q", steps, labels)]
    for neutral, label in (("wrong", 0.0), ("skip", None)):
        found = solutions({"prompt": "q", "steps": ["a"], "ratings": [0]}, neutral=neutral)
        assert found == [("q", ("a",), (label,))]
    user, answer = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a\nb"}
    for row in (
        {"prompt": "q", "completion": "a\nb", "label": True},
        {"messages": [user, answer], "outcome": "correct"},
    ):
        assert solutions(row) == [("q", ("a\nb",), (1.0,))]


def test_a_row_of_prm800k_is_its_path_and_the_alternatives() -> None:
    label = {
        "steps": [
            {
                "completions": [{"text": "x", "rating": -1}, {"text": "a", "rating": 1}],
                "human_completion": None,
                "chosen_completion": 1,
            },
            {
                "completions": [{"text": "b", "rating": 0}, {"text": "y", "rating": None}],
                "human_completion": {"text": "c", "rating": None},
                "chosen_completion": None,
            },
            {
                "completions": [{"text": "z", "rating": -1}],
                "human_completion": None,
                "chosen_completion": None,
            },
        ],
        "finish_reason": "found_error",
    }
    found = solutions({"question": {"problem": "q"}, "label": label})
    assert found == [
        ("q", ("a", "c"), (1.0, None)),
        ("q", ("x",), (0.0,)),
        ("q", ("a", "b"), (None, 1.0)),
        ("q", ("a", "c", "z"), (None, None, 0.0)),
    ]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"steps": ["1", "2"], "labels": [1]}, "has 2 steps and 1 label; give one a step"),
        ({"steps": ["1", "2"]}, "has 2 steps and no labels"),
        ({"steps": [{"text": "1", "label": 1}, "2"]}, "has steps of tables and others; give"),
        ({"question": {"problem": "1+1="}, "label": {"steps": [{}]}}, ".* PRM800K: no step has"),
        ({"steps": [], "labels": []}, r"has the steps \[\]; give a list of at least one"),
        ({"steps": ["1", " "], "labels": [1, 0]}, "has the step 2 ' '; give texts that are not"),
        ({"steps": ["1"], "labels": [-1]}, "has the label -1; .*belong in a column 'ratings'"),
        ({"steps": ["1"], "ratings": [0.5]}, "has the rating 0.5; give -1, 0, 1 or null"),
        ({"steps": ["1"], "labels": [None]}, "has no labelled step"),
        ({"steps": ["1\n2"], "labels": [1]}, r"has 1 step, and the separator '\\n' divides their"),
        ({"text": "1"}, "has neither 'steps' nor 'label'; its columns are prompt, text"),
        ({"steps": ["1" * 1100], "labels": [1]}, r"is longer than the model's \d+ positions"),
    ],
)
def test_bad_rows_are_refused_with_their_line_before_weights_load(
    row: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_weights(monkeypatch)
    good = {"prompt": "1+1=", "steps": ["1", "2"], "labels": [1, 1]}
    data = write_rows(tmp_path / "rows.jsonl", [good, {"prompt": "1+1=", **row}])
    with pytest.raises(RecipeError, match=rf"stage 'prm': .*line 2: {words}"):
        trained(stage(data), tmp_path / "run")


def test_bad_rows_are_dropped_and_counted(tmp_path: Path) -> None:
    good, bad = ({"prompt": "1+1=", "steps": ["1"], "labels": [1] * n} for n in (1, 2))
    made = stage(write_rows(tmp_path / "rows.jsonl", [good, bad]), training={"steps": 0})
    made["data"]["on_bad_row"] = "drop"
    run = trained(made, tmp_path / "run")
    about = gw.open_run(run.folder / "stages" / "prm").environment
    assert about["dropped_rows"] == [{"has 1 step and 2 labels": 1}]


def test_a_step_that_ends_within_a_token_is_refused() -> None:
    """The tokenizer's token 'b\\nc' would be the last of one step and the first of another."""

    class Whole:
        chat_template = None

        def __call__(self, text: str, **_: Any) -> Any:
            offsets = [(0, 1), (1, 4), (4, len(text))]
            values = {"input_ids": [1, 2, 3], "offset_mapping": offsets}
            return type("Encoded", (), values)()

    row = Row("line 1", {"prompt": "q", "steps": ["ab", "cd"], "labels": [1, 0]})
    (solution,) = StepData(path="x").solutions(row)
    with pytest.raises(ValueError, match=r"has a step that ends within a token, 'ab\\n'"):
        step_example(Whole(), solution, "\n", "soft")


# The stage.


def refuse_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*_: Any, **__: Any) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(classifier, "load_classifier", load)
    monkeypatch.setattr(classifier, "classifier_of", load)


def stage(data: Path, **more: Any) -> dict[str, Any]:
    training = {"learning_rate": 2e-3, "examples_per_step": 16, **more.pop("training", {})}
    return {
        "name": "prm",
        "kind": "process",
        "data": {"path": str(data)},
        "separator": "\n",
        "training": training,
        "checkpoints": {"every": 0},
        **more,
    }


def trained(made: dict[str, Any], output: Path, *more: dict[str, Any], **options: Any) -> Any:
    table = pipeline(Path(), made, *more)
    del table["environment"], table["evaluation"]
    return gw.train(table, output=output, **options)


def model_of(folder: Path) -> str:
    return str(folder / "stages" / "prm" / "model")


def rows(count: int = 200, shuffled: bool = False) -> list[Any]:
    """Digits by line; a step is right where it is no smaller than the one before it."""
    draw, made = random.Random(1), []
    for number in range(count):
        digits = [draw.randint(0, 9) for _ in range(3)]
        labels = [True, *(b >= a for a, b in pairwise(digits))]
        prompt = f"{number % 10}{number // 10 % 10}+{number // 100}="
        made.append({"prompt": prompt, "steps": list(map(str, digits)), "labels": labels})
    every = [label for row in made for label in row["labels"]]
    draw.shuffle(every)
    for row in made if shuffled else ():
        row["labels"] = [every.pop() for _ in row["labels"]]
    return made


def test_steps_are_learned_and_shuffled_labels_are_not(tmp_path: Path) -> None:
    """And the folder scores a completion as the stage did, at the ends of its lines."""
    found = {}
    for shuffled in (False, True):
        data = write_rows(tmp_path / f"{shuffled}.jsonl", rows(shuffled=shuffled))
        made = stage(data, training={"epochs": 6}, heldout_share=0.3)
        run = trained(made, tmp_path / str(shuffled))
        found[shuffled] = run.summary["stages"][0]
    first, last = found[False]["first"], found[False]["last"]
    assert first["fit/eval_loss"] == pytest.approx(math.log(2), abs=1e-6)
    assert first["fit/eval_accuracy"] == 0.5
    share = last["fit/eval_label"]
    assert last["fit/eval_accuracy"] > max(share, 1 - share) + 0.1
    assert found[True]["last"]["fit/eval_accuracy"] < share + 0.05

    folder = model_of(tmp_path / "False")
    verifier = ProcessRewardModel(model=folder, device="cpu")
    prompt = Prompt("p", ({"role": "user", "content": "12+0="},))
    cases = [Case(prompt, "3\n5\n9"), Case(prompt, "9\n5\n"), Case(prompt, "")]
    up, down, blank = verifier.score(cases)
    assert [step.end for step in up.steps] == [2, 4, 5]
    assert [step.end for step in down.steps] == [2, 4]
    assert min(step.value for step in up.steps) == pytest.approx(up.value)
    assert up.value > down.value
    assert (blank.outcome, blank.steps) == ("no_answer", ())
    assert verifier.gives_steps
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForTokenClassification.from_pretrained(folder)
    row = StepData(path="x").solutions(
        Row("1", {"prompt": "12+0=", "steps": ["3", "5", "9"], "labels": [1, 1, 1]})
    )
    example = step_example(tokenizer, row[0], "\n", "soft")
    shares = model(torch.tensor([example.ids])).logits[0].softmax(-1)[:, 1].detach()
    wanted = [float(shares[place]) for place in example.places]
    assert [step.value for step in up.steps] == pytest.approx(wanted, abs=1e-5)


def test_an_outcome_has_one_label_at_the_end(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", rows(20))
    run = trained(stage(data, labels="outcome", training={"steps": 1}), tmp_path / "run")
    config = json.loads(Path(model_of(run.folder), "config.json").read_text(encoding="utf-8"))
    assert config["step_separator"] == ""
    about = gw.open_run(run.folder / "stages" / "prm").environment
    assert about["labelled_steps"] == about["examples"] == 20
    verifier = ProcessRewardModel(model=model_of(run.folder), device="cpu")
    (score,) = verifier.score([Case(Prompt("p", ({"role": "user", "content": "1="},)), "1\n2")])
    assert [step.end for step in score.steps] == [3]


def test_hard_labels_are_one_where_any_completion_was_right() -> None:
    policy = load_policy("tiny", device="cpu")
    tokenizer = tokenizer_at(policy.template)
    values = {"prompt": "1+1=", "steps": ["1", "2", "3"], "labels": [0.125, 0, 1]}
    (solution,) = StepData(path="x").solutions(Row("1", values))
    soft, hard = (step_example(tokenizer, solution, "\n", k).labels for k in ("soft", "hard"))
    assert (soft, hard) == ((0.125, 0.0, 1.0), (1.0, 0.0, 1.0))
    assert "".join(written(solution.steps, "\n")) == "1\n2\n3"


class Break(Callback):
    def on_step(self, line: Any) -> None:
        if line["step"] == 3:
            raise KeyboardInterrupt


def test_killed_inside_it_ends_as_the_unbroken_stage_does(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", rows(60))
    made = stage(data, training={"steps": 5}, heldout_share=0.2, checkpoints={"every": 2})
    trained(made, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        trained(made, tmp_path / "broken", callbacks=[Break()])
    trained(made, tmp_path / "broken", resume=True)
    one, other = (
        load_file(Path(model_of(tmp_path / name)) / "model.safetensors")
        for name in ("whole", "broken")
    )
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_it_is_learned_on_and_other_classifiers_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", rows(40))
    folder = model_of(trained(stage(data, training={"epochs": 2}), tmp_path / "run").folder)
    again = trained(
        {**stage(data, training={"steps": 1}), "model": {"name": folder}}, tmp_path / "2"
    )
    assert again.summary["stages"][0]["first"]["loss"] < math.log(2) - 0.02, "it keeps the head"
    path = Path(folder, "config.json")
    config = json.loads(path.read_text(encoding="utf-8"))
    config["id2label"] = {"0": "bad", "1": "good", "2": "best"}
    config["label2id"] = {"bad": 0, "good": 1, "best": 2}
    path.write_text(json.dumps(config), encoding="utf-8")
    made = {**stage(data, training={"steps": 2}), "model": {"adapter": {"rank": 2}}}
    adapted = load_file(
        Path(model_of(trained(made, tmp_path / "lora").folder), "model.safetensors")
    )
    assert not any("lora" in name for name in adapted)
    assert adapted["score.weight"].any()
    refuse_weights(monkeypatch)
    with pytest.raises(RecipeError, match=r"with 3 labels .*trains a token classifier that has 2;"):
        trained({**stage(data), "model": {"name": folder}}, tmp_path / "three")
    for both in ({"rollouts": {}}, {"data": None}):
        made = {**stage(data), **both}
        made = {key: value for key, value in made.items() if value is not None}
        with pytest.raises(RecipeError, match=r"give data .*or rollouts .*one of two"):
            trained(made, tmp_path / "both")
