"""Pairs from rows in TRL's shapes and from scored completions; the rows that are no pair."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file

import groupwise as gw
from groupwise.environments.readers import Row
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies import describe_model
from groupwise.records import RunWriter
from groupwise.records.rows import rollout_rows
from groupwise.scorers.classifiers import RewardModel
from groupwise.stages.feedback import Label
from groupwise.stages.pair_stage import judged_gaps, shown
from groupwise.stages.pairs import PairData, Pairing, distinct, no_contradiction, token_pair
from groupwise.stages.pairs import answer_text as texts_of
from groupwise.stages.principles import Principle
from groupwise.stages.sources import examples_of
from groupwise.stages.step_rows import StepData
from groupwise.training.callbacks import Callback
from groupwise.types import Group, Prompt
from groupwise.verifiers.judge.judging import Question, Verdict
from groupwise.verifiers.judge.readouts import JudgeVerifier
from groupwise.verifiers.judge.rubric import Criterion
from pipeline_helpers import pipeline
from record_helpers import group

USER = {"role": "user", "content": "3+4="}


def says(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def pair(chat: bool = True, **values: Any) -> Any:
    return PairData(path="rows.jsonl", chat=chat).pair(Row("line 1", values))


SHAPES = {
    "texts": {"prompt": "3+4=", "chosen": "7", "rejected": "8"},
    "a prompt of messages": {"prompt": [USER], "chosen": "7", "rejected": "8"},
    "messages": {"prompt": [USER], "chosen": [says("7")], "rejected": [says("8")]},
    "an implied prompt": {"chosen": [USER, says("7")], "rejected": [USER, says("8")]},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_of_chats_is_the_same_pair(shape: str) -> None:
    found = pair(**SHAPES[shape])
    assert (found.prompt.messages, found.chosen, found.rejected) == (
        (USER,),
        (says("7"),),
        (says("8"),),
    )
    template = describe_model("tiny").template
    ids = token_pair(found, template)
    assert ids.prompt_ids == ids.rejected.prompt_ids == template.encode_prompt(found.prompt)
    for side, text in ((ids.chosen, "7"), (ids.rejected, "8")):
        assert template.decode(side.completion_ids[:1]) == text
        assert side.completion_ids[-1] in template.stop_ids
        assert all(side.mask)


def test_raw_texts_and_their_common_beginning() -> None:
    given = {"prompt": "3+4=", "chosen": "7", "rejected": "8"}
    implied = {"chosen": "sum 3+4= 7", "rejected": "sum 3+4= 8"}
    for values, text in ((given, "3+4="), (implied, "sum 3+4=")):
        found = pair(chat=False, **values)
        assert found.prompt.text == text
        template = describe_model("tiny").template
        ids = token_pair(found, template)
        assert ids.prompt_ids == template.encode_prompt(found.prompt)
        assert template.decode(ids.chosen.completion_ids[:-1]).strip() == "7"


def test_a_longer_chat_trains_what_follows_the_common_beginning() -> None:
    """The turns that the two chats share are the prompt, with the assistant's own in them."""
    first = [USER, says("7"), {"role": "user", "content": "1+1="}]
    found = pair(chosen=[*first, says("2")], rejected=[*first, says("3")])
    assert list(found.prompt.messages) == first
    assert token_pair(found, describe_model("tiny").template).chosen.completion_ids[0] != 0


BAD: list[tuple[dict[str, Any], str]] = [
    ({"prompt": "3+4=", "chosen": "7"}, "has no 'rejected'; its columns are prompt, chosen"),
    ({"prompt": "3+4=", "chosen": "", "rejected": "8"}, "has no 'chosen': it is empty"),
    ({"prompt": "3+4=", "chosen": None, "rejected": "8"}, "has no 'chosen': it is null"),
    ({"prompt": "", "chosen": "7", "rejected": "8"}, "has no 'prompt': it is empty"),
    ({"prompt": "3+4=", "chosen": "7", "rejected": "7"}, "equals the rejected one"),
    ({"chosen": [USER, says("7")], "rejected": [USER, says("7")]}, "equals the rejected one"),
    ({"chosen": "3+4=7", "rejected": "3+4=8"}, "has no 'prompt', and texts; give the column"),
    ({"chosen": [USER, says("7")], "rejected": "8"}, "has a text and a chat as answers"),
    ({"chosen": [USER, says("7")], "rejected": [says("8")]}, "without a common beginning"),
    ({"chosen": [USER, says("7"), says("8")], "rejected": [USER, says("7")]}, "is the beginning"),
    ({"prompt": "3+4=", "chosen": "7", "rejected": "8", "margin": "big"}, "the margin 'big'"),
    ({"prompt": "3+4=", "chosen": "7", "rejected": "8", "margin": float("inf")}, "the margin inf"),
    ({"prompt": "3+4=", "chosen": [{"role": "x"}], "rejected": "8"}, "message 2 "),
]


@pytest.mark.parametrize(("values", "words"), BAD)
def test_a_row_that_is_no_pair_says_why(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        pair(**values)
    assert words in str(caught.value)


def test_equal_and_reversed_pairs_are_refused_or_counted() -> None:
    """Of a prompt with both orders the first stays."""
    values = [
        {"prompt": "3+4=", "chosen": "7", "rejected": "8"},
        {"prompt": "3+4=", "chosen": "8", "rejected": "7"},
        {"prompt": "3+4=", "chosen": "7", "rejected": "7"},
        {"prompt": "1+1=", "chosen": "2", "rejected": "8"},
    ]
    rows = [Row(f"rows.jsonl, line {n}", each) for n, each in enumerate(values, start=1)]
    template = describe_model("tiny").template

    def found(**settings: Any) -> Any:
        data, check = PairData(path="rows.jsonl", **settings), no_contradiction()

        def make(row: Row) -> list[Any]:
            made = token_pair(data.pair(row), template)
            check(made, row.where)
            return [made]

        return examples_of(data, rows, "data.path = 'rows.jsonl'", make)

    kept = found(on_bad_row="drop")
    assert len(kept.examples) == 2
    assert kept.dropped == {
        "reverses another pair": 1,
        "has a chosen answer that equals the rejected one": 1,
    }
    with pytest.raises(RecipeError, match=r"line 2: reverses another pair; rows\.jsonl, line 1"):
        found()


# --- from what a stage sampled --------------------------------------------------------------------


def row(text: str, outcome: str = "correct", reward: float | None = None, **more: Any) -> Any:
    about = {"prompt_id": "p", "outcome": outcome, "reward": reward, "reason": "x", **more}
    return {"messages": [USER, says(text)], **about}


def texts(pairs: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["chosen"][-1]["content"], each["rejected"][-1]["content"]) for each in pairs]


ANSWERS = [
    row("it is 7", reward=1.0),
    row("7", reward=0.9),
    row("8", "incorrect", reward=0.1),
    row("it is maybe 8 or 9", "no_answer", reward=0.0),
]


def test_right_against_wrong_and_best_against_worst() -> None:
    right = texts(Pairing().pairs(ANSWERS, "p", 0))
    good, bad = ("it is 7", "7"), ("8", "it is maybe 8 or 9")
    assert sorted(right) == sorted((one, other) for one in good for other in bad)
    assert texts(Pairing(per_prompt=2).pairs(ANSWERS, "p", 0)) == right[:2]
    orders = {tuple(texts(Pairing().pairs(ANSWERS, "p", seed))) for seed in range(9)}
    assert len(orders) > 1, "the order is keyed by the seed"
    best = texts(Pairing(by="reward", per_prompt=1).pairs(ANSWERS, "p", 0))
    assert best == [("it is 7", "it is maybe 8 or 9")]
    wide = texts(Pairing(by="reward", least_gap=0.5).pairs(ANSWERS, "p", 0))
    assert sorted(wide) == sorted(right)
    assert len(Pairing(by="reward").pairs(ANSWERS, "p", 0)) == 6
    assert Pairing().pairs(ANSWERS[:2], "p", 0) == []
    again = texts(Pairing().pairs([*ANSWERS, *ANSWERS, row("", "incorrect")], "p", 0))
    assert sorted(again) == sorted(right), "a text sampled twice counts once, an empty one never"


def test_pairs_that_differ_in_length_or_in_words_come_first() -> None:
    def first(order: Any) -> tuple[str, str]:
        return texts(Pairing(first=order, per_prompt=1).pairs(ANSWERS, "p", 0))[0]

    assert first("differ_in_length") == ("7", "it is maybe 8 or 9")
    assert first("alike") == ("it is 7", "it is maybe 8 or 9")
    assert first("differ_in_words")[0] == "7" or first("differ_in_words")[1] == "8"
    near = texts(Pairing(length_ratio=3.0).pairs(ANSWERS, "p", 0))
    assert sorted(near) == [("7", "8"), ("it is 7", "it is maybe 8 or 9")]


def test_the_control_tosses_a_coin() -> None:
    orders = [texts(Pairing(by="coin").pairs(ANSWERS, f"p{n}", 0)) for n in range(50)]
    flat = [pair for pairs in orders for pair in pairs]
    share = sum(one in ("7", "it is 7") for one, _ in flat) / len(flat)
    assert 0.4 < share < 0.6


def test_a_stages_rows_kept_and_dropped_make_pairs(tmp_path: Path) -> None:
    kept = [row("7"), {**row("2"), "prompt_id": "q"}]
    cut = "not finished (length)"
    dropped = [row("8", "incorrect"), row("7 7 7", "incorrect", reason=cut)]
    for name, rows in (("data.jsonl", kept), ("dropped.jsonl", dropped)):
        (tmp_path / name).write_text("".join(json.dumps(each) + "\n" for each in rows))
    data = PairData(stage="samples")
    rows, named, remark = data.rows(tmp_path, 0)
    assert texts([each.values for each in rows]) == [("7", "8")]
    assert (named, remark) == ("data.stage = 'samples'", "1 of 2 prompts make no pair")
    assert data.pair(rows[0]).prompt.messages == (USER,)
    (tmp_path / "dropped.jsonl").unlink()
    with pytest.raises(GroupwiseError, match="none of its 2 prompts has a better and a worse"):
        data.rows(tmp_path, 0)


def test_a_verifiers_value_ranks_and_one_tells_approaches_apart() -> None:
    """A judge's opinion against the reward, and pairs across two approaches alone."""
    parts = [
        {"judge": 0.2, "steps": 1.0},
        {"judge": 0.9, "steps": 0.0},
        {"judge": 0.5, "steps": 0.0},
        {"judge": None, "steps": 1.0},
    ]
    judged = [{**each, "parts": own} for each, own in zip(ANSWERS, parts, strict=True)]
    ranked = Pairing(by="verifier", verifier="judge")
    assert texts(ranked.pairs(judged, "p", 0)) == [("7", "it is 7"), ("7", "8"), ("8", "it is 7")]
    wide = ranked.model_copy(update={"least_gap": 0.5})
    assert texts(wide.pairs(judged, "p", 0)) == [("7", "it is 7")]
    apart = texts(Pairing(differ_in="steps").pairs(judged, "p", 0))
    assert sorted(apart) == [("7", "it is maybe 8 or 9"), ("it is 7", "8")]
    with pytest.raises(GroupwiseError, match="no completion has a value of the verifier 'jude', o"):
        Pairing(differ_in="jude").check_labels(judged, "data.stage = 'x'")
    with pytest.raises(ValueError, match="go together; give both or neither"):
        Pairing(verifier="judge")


MARKS = {"it is 7": 0.2, "7": 0.9, "8": 0.5, "it is maybe 8 or 9": 0.4}


class Prefers(JudgeVerifier):
    """Prefers by `MARKS` (another text by its length), and the first place by 0.1."""

    verifier_name: ClassVar[str] = "prefers"
    asked: ClassVar[list[str]] = []

    @property
    def passes_from(self) -> float:
        return 1.0

    def ask(self, questions: Sequence[Question]) -> list[Verdict]:
        return [self._verdict(question) for question in questions]

    def _verdict(self, question: Question) -> Verdict:
        texts = [part.splitlines()[1] for part in question.parts if "completion_" in part]
        self.asked.append(" | ".join(texts))
        one, other = (MARKS.get(text, len(text) / 100) for text in texts)
        first = 0.5 + (one - other) / 2 + 0.05
        return Verdict((first, 1 - first), "by its mark")


@pytest.mark.parametrize("settings", [{}, {"least_gap": 0.45}, {"per_prompt": 2}])
def test_pairs_by_a_judge_are_those_by_its_marks(settings: dict[str, Any]) -> None:
    """Both orders take out what the first place gains, so the gaps are the marks' exactly."""
    judge = Prefers(readout="pair")
    table = {"name": f"{__name__}:Prefers"}
    pairing = Pairing(by="judge", judge=table, **settings)
    prompts = {"p": [*ANSWERS, ANSWERS[0], row(" ")]}

    def ask(asked: Any) -> list[Label]:
        found = judge.both_orders([(each.prompt, each.texts) for each in asked])
        return [Label(each.values[0], each.reason, each.first) for each in found if each.values]

    gaps, said = judged_gaps(prompts, pairing, judge, ask)
    assert said == "; the judge compared 6 in both orders, 0 unread, position bias +0.10"
    assert gaps["p"]["7", "it is 7"] == pytest.approx(0.7)
    marked = [{**each, "parts": {"mark": MARKS[texts_of(each)]}} for each in ANSWERS]
    wanted = Pairing(by="verifier", verifier="mark", **settings).pairs(marked, "p", 0)
    assert texts(pairing.pairs(prompts["p"], "p", 0, gaps["p"])) == texts(wanted)
    assert texts(wanted)[0] == ("7", "it is 7")
    near = pairing.model_copy(update={"length_ratio": 3.0})
    _, said = judged_gaps(prompts, near, judge, ask)
    assert "compared 2 in both" in said, "what cannot be a pair is not asked"


def test_a_judge_reads_what_two_chats_share_as_the_prompt() -> None:
    asked = shown("p", row("7"), row("8"))
    assert (asked.prompt.messages, asked.texts) == ((USER,), ("7", "8"))
    longer = {"messages": [USER, says("6"), {"role": "user", "content": "No."}, says("7")]}
    other = {"messages": [USER, says("5"), {"role": "user", "content": "No."}, says("7")]}
    asked = shown("p", longer, other)
    assert asked.prompt.messages == (USER,)
    assert asked.texts[0] == "assistant: 6\nuser: No.\nassistant: 7"
    raw = [{"prompt": "3+4=", "completion": text} for text in ("7", "8")]
    asked = shown("p", *raw)
    assert (asked.prompt.text, asked.texts) == ("3+4=", ("7", "8"))


def test_a_preference_stage_asks_its_judge_once_for_each_pair(tmp_path: Path) -> None:
    """Killed behind the labels and resumed, it asks nothing again and pairs as before."""
    samples = {"kind": "rejection", "prompts": 6, "keep": "all", "unfinished": True}
    judge = {"name": f"{__name__}:Prefers", "rubric": "It is long."}
    stage = {
        "kind": "preference",
        "data": {"stage": "rejection", "pairing": {"by": "judge", "judge": judge}},
        "training": {"steps": 2, "examples_per_step": 4},
        "checkpoints": {"every": 1},
    }
    table = pipeline(tmp_path, samples, stage)
    Prefers.asked.clear()
    whole = gw.train(table, output=tmp_path / "whole")
    asked = list(Prefers.asked)
    rows = (whole.folder / "stages/rejection/data.jsonl").read_text("utf-8").splitlines()
    by_prompt: dict[str, list[Any]] = {}
    for each in map(json.loads, rows):
        by_prompt.setdefault(each["prompt_id"], []).append(each)
    pairs = {frozenset((texts_of(a), texts_of(b))) for group in by_prompt.values()
             for a, b in permutations(distinct(group), 2)}  # fmt: skip
    count = sum(len(distinct(g)) * (len(distinct(g)) - 1) // 2 for g in by_prompt.values())
    assert len(asked) == 2 * count > 0
    assert {frozenset(each.split(" | ")) for each in asked} == pairs
    folder = whole.folder / "stages" / "preference"
    labelled = [json.loads(line) for line in (folder / "labels_0.jsonl").read_text().splitlines()]
    about = json.loads((folder / "environment.json").read_text("utf-8"))
    assert len(labelled) == count
    assert about["examples"] == sum(value != 0.5 for value, *_ in labelled)

    with pytest.raises(KeyboardInterrupt):
        gw.train(table, output=tmp_path / "broken", callbacks=[Stop()])
    Prefers.asked.clear()
    broken = gw.train(table, output=tmp_path / "broken", resume=True)
    assert Prefers.asked == []
    ends = [load_file(run.folder / "stages/preference/model/model.safetensors")
            for run in (whole, broken)]  # fmt: skip
    assert all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items())


class Stop(Callback):
    """Stops behind the first step of the preference stage."""

    kind = ""

    def on_stage(self, name: str, kind: str, folder: Path) -> None:
        self.kind = kind

    def on_step(self, line: Any) -> None:
        if self.kind == "preference":
            raise KeyboardInterrupt


def test_the_rollouts_of_an_rl_stage_make_pairs(tmp_path: Path) -> None:
    scores = [1.0, 0.0, 0.0, 1.0]
    words, cut = ["7", "8", "9", "seven"], [2]
    made = group("p", scores, texts=words, truncated=cut, parts=[{"form": v} for v in scores])
    with RunWriter.create(tmp_path / "rl", "", {}) as writer:
        writer.rollouts(0, rollout_rows(0, [made]))
        writer.rollouts(1, rollout_rows(1, [made], kind="replayed"))
    data = PairData(stage="rl", pairing=Pairing(by="verifier", verifier="form"))
    rows, named, remark = data.rows(tmp_path / "rl", 0)
    assert sorted(texts([each.values for each in rows])) == [("7", "8"), ("seven", "8")]
    assert (named, remark) == ("data.stage = 'rl'", "0 of 1 prompts make no pair")
    found = data.pair(rows[0])
    assert found.prompt.messages == ({"role": "user", "content": "p?"},)
    raw = replace(made.rollouts[0], prompt=Prompt("t", text="3+4=", answer="7"))
    other = replace(made.rollouts[1], prompt=raw.prompt)
    with RunWriter.create(tmp_path / "raw", "", {}) as writer:
        group_of_texts = Group(raw.prompt, (raw, other))
        writer.rollouts(0, rollout_rows(0, [group_of_texts]))
    rows, _, _ = PairData(stage="raw", chat=False).rows(tmp_path / "raw", 0)
    values = {"prompt": "3+4=", "chosen": "7", "rejected": "8"}
    assert [each.values for each in rows] == [values]


def test_pairing_is_of_a_stage() -> None:
    with pytest.raises(ValueError, match=r"data\.pairing makes pairs of what a stage sampled"):
        PairData(path="rows.jsonl", pairing=Pairing(by="reward"))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"labels": 1}, "has the labels 1; give a list"),
        ({"labels": [1]}, "has 2 steps and 1 label; give one a step"),
        ({"labels": [1, 0], "ratings": [1, -1]}, "has both 'labels' and 'ratings'"),
    ],
)
def test_labels_that_are_none_of_steps_are_refused(values: dict[str, Any], words: str) -> None:
    row = Row("steps.jsonl, line 1", {"prompt": "3+4=", "steps": ["3+4", "=7"], **values})
    with pytest.raises(ValueError, match=r".") as caught:
        StepData(path="steps.jsonl").solutions(row)
    assert words in str(caught.value)


def test_blank_principles_and_criteria_are_empty() -> None:
    for kind, fields in ((Principle, {}), (Criterion, {"name": "a"})):
        with pytest.raises(ValueError, match="is empty; write a text"):
            kind.model_validate({**fields, "text": " "})
    with pytest.raises(ValueError, match=r"it takes \{principle\} or none"):
        Principle(text="be kind", critique="say {foo}")


@pytest.mark.parametrize("bound", [0.0, 1.5])
def test_a_bound_outside_the_scale_is_refused(bound: float) -> None:
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        RewardModel(model="m", correct_from=bound)
    assert RewardModel(model="m", scale="raw", correct_from=bound).correct_from == bound
