"""The constitution stage: critique and revision, soft labels, counts, refusals, resume."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

import groupwise as gw
from groupwise.algorithms.preference import bradley_terry
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.examples import rule_judge
from groupwise.policies import load_policy
from groupwise.stages import traces
from groupwise.stages.pairs import Pair, PairData, no_contradiction, token_pair
from groupwise.stages.preference import LossSettings, PairLoss, wrong_order
from groupwise.stages.principles import Principle, Refusals, drawn, read_principles
from groupwise.types import Prompt
from groupwise.verifiers.judge.judge import Judge
from pipeline_helpers import pipeline, write_rows

TWO = [
    {"text": "small", "critique": "big?", "revision": "again:"},
    {"text": "large", "critique": "{principle}?", "revision": "once more:"},
]
REVISE: dict[str, Any] = {
    "name": "revised",
    "kind": "constitution",
    "prompts": 40,
    "principles": TWO,
    "sampling": {"group_size": 2},
}
LEARN: dict[str, Any] = {
    "name": "sl",
    "kind": "supervised",
    "from": "base",
    "data": {"stage": "revised"},
    "training": {"steps": 2, "examples_per_step": 8},
}
URL = "test_constitution_stage:small_is_better"
LABEL: dict[str, Any] = {
    "name": "labelled",
    "kind": "constitution",
    "mode": "label",
    "prompts": 40,
    "principles": [{"text": "small"}],
    "feedback": {"url": URL, "model": "rules"},
}


def mark(rubric: str, task: str, completion: str) -> float | None:
    """Smaller digits are better; a text that is no digit has no mark."""
    return 1 - int(completion) / 10 if completion.isdigit() and len(completion) == 1 else None


def small_is_better() -> str:
    return rule_judge.start(mark)


def rows(folder: Path, name: str, stage: str) -> list[Any]:
    text = (folder / "stages" / stage / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_answers_are_criticised_by_a_drawn_principle_and_revised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, list[Prompt]] = {}
    sample = traces.sampled

    def noted(source: Any, prompts: Any, policy: Any) -> Any:
        asked.setdefault(source.how, []).extend(prompts)
        return sample(source, prompts, policy)

    monkeypatch.setattr(traces, "sampled", noted)
    run = gw.train(pipeline(Path(), REVISE, LEARN), output=tmp_path / "run")
    kept, dropped = (rows(run.folder, name, "revised") for name in ("data.jsonl", "dropped.jsonl"))
    assert len(kept) + len(dropped) == 40 * 2
    assert all(row["reason"] for row in [*kept, *dropped])
    last = run.summary["stages"][0]["last"]
    assert (last["rows/kept"], last["rows/dropped"]) == (len(kept), len(dropped))
    assert last["rows/revised"] == sum(row["reason"] == "revised" for row in kept) > 0
    for row in kept:
        same = row["messages"][-1]["content"] == row["answer"]
        assert row["reason"] == ("the answer stood" if same else "revised")
    by_id = {prompt.id: prompt for prompt in asked["revision_0"]}
    words = {"small": ("big?", "again:"), "large": ("large?", "once more:")}
    for row in kept:
        prompts = [by_id[f"{row['prompt_id']}#{n}"] for n in (0, 1)
                   if f"{row['prompt_id']}#{n}" in by_id]  # fmt: skip
        chat = [[each["content"] for each in prompt.messages] for prompt in prompts]
        question = row["messages"][0]["content"]
        critique, again = words[row["principle"]]
        assert [question, row["answer"], critique, row["critique"], again] in chat
    assert {row["principle"] for row in kept} == {"small", "large"}
    again = gw.train(pipeline(Path(), REVISE, LEARN), output=tmp_path / "again")
    assert rows(again.folder, "data.jsonl", "revised") == kept


def test_principles_are_drawn_by_key() -> None:
    two = (Principle(text="a"), Principle(text="b"))
    found = [drawn(two, 0, f"p{n}", 0).text for n in range(200)]
    assert found == [drawn(two, 0, f"p{n}", 0).text for n in range(200)]
    assert 70 < found.count("a") < 130
    assert found != [drawn(two, 1, f"p{n}", 0).text for n in range(200)]


def test_pairs_have_soft_labels_of_both_orders(tmp_path: Path) -> None:
    """The stand-in prefers the smaller digit; after reasons the label is clamped to 0.6."""
    run = gw.train(pipeline(Path(), LABEL), output=tmp_path / "run")
    kept, dropped = (rows(run.folder, name, "labelled") for name in ("data.jsonl", "dropped.jsonl"))
    assert len(kept) + len(dropped) == 40 * 2
    assert all(int(row["chosen"]) < int(row["rejected"]) for row in kept)
    assert {row["target"] for row in kept} == {0.6}
    reasons = {row["reason"].partition(":")[0] for row in dropped}
    assert reasons <= {"two equal answers", "undecided", "unread", "no answer"}
    equal = [row for row in dropped if row["reason"] == "two equal answers"]
    assert equal
    assert all(row["answer"] == row["other"] for row in equal)
    last = run.summary["stages"][0]["last"]
    assert last["labels/mean"] == pytest.approx(0.6)
    assert last["labels/position_bias"] == 0.0
    certain = gw.train(
        pipeline(Path(), {**LABEL, "clamp": [0.0, 1.0]}), output=tmp_path / "certain"
    )
    assert {row["target"] for row in rows(certain.folder, "data.jsonl", "labelled")} == {1.0}


def test_a_local_feedback_model_labels_softly_without_a_clamp(tmp_path: Path) -> None:
    """`model.stage` names the policy that a stage left, here the base."""
    feedback = {"name": "local_judge", "model": {"stage": "base"}, "device": "cpu"}
    run = gw.train(
        pipeline(Path(), {**LABEL, "feedback": feedback, "prompts": 12}), output=tmp_path / "run"
    )
    targets = [row["target"] for row in rows(run.folder, "data.jsonl", "labelled")]
    assert all(0.5 < each < 1 for each in targets)
    assert len(set(targets)) > 3
    lineage = json.loads((run.folder / "stages/labelled/lineage.json").read_text("utf-8"))
    assert lineage["scorers"].keys() == {"base"}


def kill_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """An interruption before that chunk of labels."""
    whole, asked = Judge.both_orders, [0]

    def killed(self: Any, *arguments: Any) -> Any:
        asked[0] += 1
        if asked[0] >= number:
            raise KeyboardInterrupt
        return whole(self, *arguments)

    monkeypatch.setattr(Judge, "both_orders", killed)


def test_a_stage_killed_inside_resumes_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between two writes of labels and in the middle of a line, and among the critiques."""
    monkeypatch.setattr("groupwise.stages.feedback.CHUNK", 8)
    recipe = pipeline(Path(), REVISE, LEARN, {**LABEL, "from": "sl"})
    gw.train(recipe, output=tmp_path / "whole")
    folder, sample, calls = tmp_path / "broken", traces.sampled, [0]

    def counted(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == 4:
            raise KeyboardInterrupt
        return sample(*arguments)

    monkeypatch.setattr(traces, "sampled", counted)
    with pytest.raises(KeyboardInterrupt):
        gw.train(recipe, output=folder)
    assert len(rows(folder, "critique_0.jsonl", "revised")) == 32
    kill_at(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        gw.train(recipe, output=folder, resume=True)
    path = folder / "stages" / "labelled" / "labels.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    assert len(lines) == 16
    path.write_text("".join(lines[:9]) + lines[9][:4], encoding="utf-8")
    monkeypatch.undo()
    gw.train(recipe, output=folder, resume=True)
    for stage in ("revised", "labelled"):
        for name in ("data.jsonl", "dropped.jsonl"):
            assert rows(folder, name, stage) == rows(tmp_path / "whole", name, stage)
    whole, broken = (gw.open_run(tmp_path / each).summary for each in ("whole", "broken"))
    assert [s["last"] for s in whole["stages"]] == [s["last"] for s in broken["stages"]]
    weights = "stages/sl/model/model.safetensors"
    assert (tmp_path / "whole" / weights).read_bytes() == (folder / weights).read_bytes()


def soft(gap: float, target: float) -> float:
    """Cross-entropy of a Bernoulli with the target, in plain Python."""
    return target * math.log1p(math.exp(-gap)) + (1 - target) * math.log1p(math.exp(gap))


def test_soft_labels_by_hand() -> None:
    """Bradley-Terry, and DPO through the tiny policy: the loss of a target t is t times that of
    the pair and 1 - t times that of its reverse."""
    chosen, rejected = torch.tensor([[1.3, -0.2], [0.4, 0.9]], dtype=torch.float64)
    pairs = [made(target) for target in (0.6, 0.9)]
    found = bradley_terry(chosen, rejected, label_smoothing=wrong_order(pairs, 0.0))
    assert found.tolist() == pytest.approx([soft(0.9, 0.6), soft(-1.1, 0.9)], abs=1e-12)
    assert wrong_order(pairs, 0.1).tolist() == pytest.approx([0.4 * 0.9 + 0.06, 0.18], abs=1e-12)
    policy, loss = load_policy("tiny", device="cpu"), PairLoss(LossSettings(beta=0.5))
    with torch.no_grad():
        values = [float(loss.sum_loss(policy, [made(t)])[0]) for t in (0.7, 1.0, 0.0)]
    assert values[0] == pytest.approx(0.7 * values[1] + 0.3 * values[2], abs=1e-5)
    assert values[1] != pytest.approx(values[2], abs=1e-2)
    digests = {loss.digest(made(target)) for target in (0.7, 1.0)}
    assert len(digests) == 2


def made(target: float) -> Any:
    answers = [({"role": "assistant", "content": each},) for each in "73"]
    pair = Pair(Prompt("p", ({"role": "user", "content": "3+4="},)), *answers, target=target)
    return token_pair(pair, load_policy("tiny", device="cpu").template)


def test_rows_with_targets() -> None:
    from groupwise.environments.readers import Row

    data = PairData(path="rows.jsonl")
    row = {"prompt": "3+4=", "chosen": "7", "rejected": "8"}
    assert data.pair(Row("r", row)).target == 1.0
    assert data.pair(Row("r", {**row, "target": 0.6})).target == 0.6
    for bad in (1.5, -0.1, "high", True):
        with pytest.raises(ValueError, match="from 0 to 1"):
            data.pair(Row("r", {**row, "target": bad}))
    check = no_contradiction()
    check(made(1.0), "a")
    reverse = made(0.6)
    check(type(reverse)(reverse.rejected, reverse.chosen, target=0.6), "b")
    with pytest.raises(ValueError, match="reverses another pair; a"):
        check(type(reverse)(reverse.rejected, reverse.chosen), "c")


def test_refusals_are_counted_as_evasive_or_explained() -> None:
    texts = [
        "I can't.",
        "I cannot help, because it hurts.",
        "Sure!",
        "I won't; ask a doctor instead",
    ]
    assert Refusals().counts(texts, "kept") == {
        "refusals/evasive/kept": 1, "refusals/explained/kept": 2
    }  # fmt: skip
    with pytest.raises(ValidationError, match="not a regular expression"):
        Refusals(refuses="(")


def test_files_of_principles(tmp_path: Path) -> None:
    file = tmp_path / "principles.txt"
    file.write_text("# ours\nBe kind.\n\nBe brief.\n")
    kind, brief = read_principles(str(file))
    assert (kind.text, brief.text) == ("Be kind.", "Be brief.")
    assert "{principle}" in kind.critique
    (harm,) = read_principles("groupwise.examples:harm.toml")
    assert harm.critique == "Does that harm people?"
    file.write_text("# nothing\n\n")
    for name, words in ((str(file), "is empty; write a principle a line"),
                        ("nowhere.txt", "cannot be read"), ("no_such:file", "cannot be read"),
                        ("nowhere.toml", "there is no such file")):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            read_principles(name)


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ({**REVISE, "principles": []}, "is empty; give a file"),
        ({**REVISE, "principles": ""}, "is empty; give a file"),
        ({**REVISE, "mode": "other"}, "give one of revise, label"),
        ({**LABEL, "sampling": {"group_size": 1}}, "a pair has two answers"),
        ({**LABEL, "clamp": [0.6, 0.9]}, "on either side of 0.5"),
        ({**LABEL, "feedback": {"name": "number"}}, "'number' is not a judge"),
        ({**REVISE, "skip": 10**6}, "so none is left"),
        (
            {**REVISE, "principles": [{"text": "a", "critique": "{answer}"}]},
            "it takes {principle} or none",
        ),
    ],
)
def test_bad_settings_are_refused_before_weights_load(
    stage: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=words):
        gw.train(pipeline(Path(), stage), output=tmp_path / "run")


def test_principles_are_tables(tmp_path: Path) -> None:
    file = tmp_path / "principles.toml"
    file.write_text('principles = ["be good"]')
    with pytest.raises(RecipeError, match="has principles that are no tables; give tables"):
        gw.train(pipeline(Path(), {**REVISE, "principles": str(file)}), output=tmp_path / "run")


def test_raw_prompts_and_nothing_kept_are_named(tmp_path: Path) -> None:
    data = write_rows(tmp_path / "rows.jsonl", [{"prompt": "3+4=", "answer": "7"}])
    raw = {"name": "dataset", "path": str(data), "chat": False, "verifiers": [{"name": "number"}]}
    one = {**REVISE, "environment": raw, "prompts": 1}
    with pytest.raises(RecipeError, match="is raw text, which has no turns"):
        gw.train(pipeline(Path(), one), output=tmp_path / "raw")
    dead = {"url": "http://127.0.0.1:9", "model": "m", "tries": 1}
    unread = {**LABEL, "feedback": dead, "prompts": 2}
    with pytest.raises(GroupwiseError, match=r"rows were dropped.*unread"):
        gw.train(pipeline(Path(), unread), output=tmp_path / "run")
