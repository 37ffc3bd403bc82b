"""Pairs from rows in TRL's shapes and from scored completions; the rows that are no pair."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from groupwise.environments.readers import Row
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies import describe_model
from groupwise.records import RunWriter
from groupwise.records.rows import rollout_rows
from groupwise.stages.pairs import PairData, Pairing, no_contradiction, token_pair
from groupwise.stages.sources import examples_of
from groupwise.types import Group, Prompt
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
    ({"prompt": "3+4=", "chosen": "", "rejected": "8"}, "has no 'chosen'"),
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
