"""The rejection stage: what is kept and why, hints, repairs, resume, refusals, and its effect."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

import groupwise as gw
from groupwise.environments import EnvironmentSettings, environment_from_settings
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.stages import check_pipeline, load_pipeline, traces
from groupwise.stages.chats import TokenExample
from groupwise.stages.keeping import Rules, keep
from groupwise.stages.rejection import Rationalise, Repair
from groupwise.stages.supervised import TokenLoss, mask_of, token_nll
from groupwise.stages.traces import Trace
from groupwise.training.process import Interrupted
from groupwise.types import Prompt
from pipeline_helpers import pipeline

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "algorithms.json").read_text())
STAGE: dict[str, Any] = {"name": "traces", "kind": "rejection", "prompts": 20}
LEARN: dict[str, Any] = {
    "name": "learn",
    "kind": "supervised",
    "data": {"stage": "traces"},
    "training": {"learning_rate": 1e-3, "steps": 3, "examples_per_step": 8},
}


def trace(text: str, reward: float | None = 1.0, prompt: str = "p", **more: Any) -> Trace:
    outcome = "not_applicable" if reward is None else "correct" if reward == 1 else "incorrect"
    accuracy = None if reward is None else float(reward == 1)
    row = {"prompt": prompt, "completion": text}
    return Trace(prompt, row, text, accuracy, outcome, reward=reward, **more)


def reasons(given: Sequence[Trace], **rules: Any) -> dict[str, str]:
    """The reason of every trace by its text."""
    found = keep(given, Rules(**rules))
    assert len(found.rows) + len(found.dropped) == len(given)
    return {row["completion"]: row["reason"] for row in [*found.rows, *found.dropped]}


def test_the_best_of_each_prompt_by_reward() -> None:
    given = [
        trace("a", 0.2),
        trace("b", 0.9),
        trace("c", 0.9),
        trace("d", None),
        trace("e", 0.1, prompt="q"),
        trace("f", 0.4, prompt="q"),
    ]
    assert reasons(given, keep="best") == {
        "a": "not among the best 1",
        "b": "among the best",
        "c": "not among the best 1",
        "d": "no reward: not_applicable",
        "e": "not among the best 1",
        "f": "among the best",
    }
    kept = keep(given, Rules(keep="best", best=3, at_least=0.4))
    assert [row["completion"] for row in kept.rows] == ["b", "c", "f"]
    assert kept.reasons == {"reward below 0.4": 2, "no reward": 1}


def test_those_above_the_mean_reward_of_their_prompt() -> None:
    given = [
        trace("a", 0.2),
        trace("b", 0.9),
        trace("c", 0.5),
        trace("d", None),
        trace("e", 0.6, prompt="q"),
        trace("f", 0.6, prompt="q"),
    ]
    low = "not above the mean of its prompt"
    assert reasons(given, keep="above_mean") == {
        "a": low,
        "b": "above the mean",
        "c": low,
        "d": "no reward: not_applicable",
        "e": low,
        "f": low,
    }
    assert reasons(given[:2], keep="above_mean", at_least=0.95)["b"] == "reward below 0.95: 0.9"


def test_filters_and_lengths() -> None:
    given = [
        trace("mixed", parts={"english": 0.5}, tokens=30),
        trace("clear", parts={"english": 1.0}, tokens=30),
        trace("direct", parts={"english": None}, tokens=5),
        trace("long", parts={"english": 1.0}, tokens=90),
    ]
    filters = [{"verifier": "english", "at_least": 0.9}]
    assert reasons(given, filters=filters, max_length=80) == {
        "mixed": "english below 0.9: 0.5",
        "clear": "correct",
        "direct": "correct",
        "long": "longer than 80 tokens",
    }
    found = reasons(given, filters=[{**filters[0], "missing": "drop"}], min_length=6)
    assert found["direct"] == "shorter than 6 tokens"
    found = reasons(given, filters=[{**filters[0], "missing": "drop"}])
    assert found["direct"] == "without english"
    found = reasons(given, filters=[{"verifier": "english", "at_most": 0.9}])
    assert found["clear"] == "english above 0.9: 1"


def test_hinted_and_repaired_completions_are_right_whatever_is_kept() -> None:
    given = [trace("a", 0.0), trace("b", 0.0, how="hinted"), trace("c", how="repaired")]
    found = keep(given, Rules(keep="all"))
    assert [(row["completion"], row["reason"]) for row in found.rows] == [
        ("a", "no verdict asked"),
        ("c", "correct"),
    ]
    assert found.dropped[0]["reason"] == "not correct: incorrect"


def test_a_threshold_of_accuracy() -> None:
    partial = Trace("p", {}, "x", 0.6, "partial", reward=0.6)
    assert len(keep([partial], Rules()).rows) == 0
    assert len(keep([partial], Rules(at_least=0.5)).rows) == 1


def test_the_golden_value_of_raft() -> None:
    """Kept are the rows with a reward of 0.5 or more; the loss is the mean over their tokens."""
    fixture = GOLDEN["fixture"]
    prompts = [f"prompt {place // 4}" for place in range(8)]
    given = [
        trace(str(place), reward, prompt)
        for place, (reward, prompt) in enumerate(zip(fixture["rewards"], prompts, strict=True))
    ]
    rows = keep(given, Rules(keep="best", best=4, at_least=0.5)).rows
    kept = [int(row["completion"]) for row in rows]
    wanted = GOLDEN["advantages"]["raft: 1[r>=0.5], no baseline"]
    assert kept == [place for place, value in enumerate(wanted) if value == 1]
    values = torch.tensor(fixture["new_logp"], dtype=torch.float64)[kept].requires_grad_()
    lengths = [fixture["lengths"][place] for place in kept]
    examples = [TokenExample((1,), (5,) * int(n), (True,) * int(n)) for n in lengths]
    loss = token_nll(values, mask_of(examples, values)) / sum(map(TokenLoss().count, examples))
    assert float(loss.detach()) == pytest.approx(0.9625, abs=1e-12)


# --- the stage ------------------------------------------------------------------------------------


def rows(folder: Path, name: str, stage: str = "traces") -> list[dict[str, Any]]:
    text = (folder / "stages" / stage / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def question(row: dict[str, Any]) -> str:
    return str(row["messages"][0]["content"])


def is_right(row: dict[str, Any]) -> bool:
    return str(eval(question(row).rstrip("="))) == str(row["messages"][-1]["content"])


def test_rows_with_reasons_and_a_restart_from_base(tmp_path: Path) -> None:
    stage = {**STAGE, "per_prompt": 2, "skip": 3}
    mixed = [{"stage": "traces"}, {"path": "", "limit": 4, "repeat": 2}]
    general = tmp_path / "general.jsonl"
    general.write_text(json.dumps({"prompt": "1+1=", "completion": "2"}) + "\n", encoding="utf-8")
    mixed[1]["path"] = str(general)
    learn = {**LEARN, "from": "base", "data": mixed}
    run = gw.train(pipeline(Path(), stage, learn), output=tmp_path / "run")
    kept, dropped = rows(run.folder, "data.jsonl"), rows(run.folder, "dropped.jsonl")
    assert all(map(is_right, kept))
    assert len(kept) + len(dropped) == 20 * 4
    assert max(Counter(map(question, kept)).values()) <= 2
    wrong = [row for row in dropped if row["reason"].startswith("not correct")]
    assert wrong
    assert not any(map(is_right, wrong))
    settings = EnvironmentSettings.model_validate({"name": "arithmetic", "level": "table"})
    prompts = environment_from_settings(settings, seed=5).prompts()
    asked = [str(prompt.messages[0]["content"]) for prompt in prompts]
    assert {question(row) for row in [*kept, *dropped]} == set(asked[3:23])
    entry, after = run.summary["stages"]
    assert entry["output"] is None
    assert entry["last"]["traces/kept"] == len(kept)
    assert entry["last"]["traces/sampled"] == 80
    assert entry["last"]["traces/dropped/not correct"] == len(wrong)
    sampled = rows(run.folder, "sampled.jsonl")
    tokens = sum(each["tokens"] for group in sampled for each in group)
    assert gw.open_run(run.folder / "stages" / "traces").summary["tokens"] == tokens > 80
    about = gw.open_run(run.folder / "stages" / "learn").environment
    assert about["examples"] == len(kept) + 2
    assert after["status"] == "finished"


def test_an_empty_stage_says_why_and_the_next_does_not_start(tmp_path: Path) -> None:
    stage = {**STAGE, "prompts": 2, "min_length": 50, "keep": "all"}
    message = r"all 8 rows were dropped \(shorter than 50 tokens: 8;.*group_size"
    with pytest.raises(GroupwiseError, match=message):
        gw.train(pipeline(Path(), stage, LEARN), output=tmp_path / "run")
    assert len(rows(tmp_path / "run", "dropped.jsonl")) == 8
    assert not (tmp_path / "run" / "stages" / "learn").exists()
    assert gw.open_run(tmp_path / "run" / "stages" / "traces").summary["status"] == "failed"


def test_killed_inside_it_resumes_to_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once among the samples (with a torn line), once among the hinted ones, once by a signal."""
    sampling = {"group_size": 1, "temperature": 1.5}
    again = {"rationalise": {"hint": "{answer}{prompt}"}, "repair": {}}
    stage = {**STAGE, "sampling": sampling, **again}
    recipe = pipeline(Path(), stage, LEARN)
    monkeypatch.setattr(traces, "CHUNK", 4)
    gw.train(recipe, output=tmp_path / "whole")
    sample, folder = traces.sampled, tmp_path / "broken"

    def kill_at(count: int) -> None:
        left = iter([False] * count + [True])

        def killed(*arguments: Any) -> Any:
            if next(left):
                raise KeyboardInterrupt
            return sample(*arguments)

        monkeypatch.setattr(traces, "sampled", killed)

    kill_at(3)
    with pytest.raises(KeyboardInterrupt):
        gw.train(recipe, output=folder)
    path = folder / "stages" / "traces" / "sampled.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    assert len(lines) == 12
    path.write_text("".join(lines[:9]) + lines[9][:30], encoding="utf-8")
    kill_at(4)
    with pytest.raises(KeyboardInterrupt):
        gw.train(recipe, output=folder, resume=True)
    assert len(rows(folder, "hinted.jsonl")) == 4
    monkeypatch.setattr(traces, "sampled", signalled(sample))
    with pytest.raises(Interrupted, match=r"stage 'traces': interrupted after 5 of .* \(hinted\)"):
        gw.train(recipe, output=folder, resume=True)
    assert gw.open_run(folder).summary["stages"][0]["status"] == "interrupted"
    monkeypatch.setattr(traces, "sampled", sample)
    gw.train(recipe, output=folder, resume=True)
    for name in ("sampled.jsonl", "hinted.jsonl", "repaired.jsonl", "data.jsonl", "dropped.jsonl"):
        whole, broken = (rows(tmp_path / each, name) for each in ("whole", "broken"))
        assert whole == broken
        assert whole
    weights = "stages/learn/model/model.safetensors"
    assert (tmp_path / "whole" / weights).read_bytes() == (folder / weights).read_bytes()


def signalled(sample: Any) -> Any:
    """Samples, and is asked to stop meanwhile."""

    def asked(*arguments: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return sample(*arguments)

    return asked


def test_hints_and_repairs_are_asked_for_and_not_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only prompts without a right completion are asked again; repairs only where hints failed
    too; the rows have the prompt as it was, or the whole conversation by option."""
    stage = {
        **STAGE,
        "sampling": {"group_size": 2},
        "rationalise": {"hint": "{answer}{prompt}", "samples": 3},
        "repair": {"wording": "{reason}", "samples": 5, "learn": "conversation"},
    }
    asked: dict[str, list[Prompt]] = {}
    sample = traces.sampled

    def noted(source: Any, prompts: Any, policy: Any) -> Any:
        asked.setdefault(source.how, []).extend(prompts)
        return sample(source, prompts, policy)

    monkeypatch.setattr(traces, "sampled", noted)
    run = gw.train(pipeline(Path(), stage), output=tmp_path / "run")
    sampled, hinted, repaired = (
        rows(run.folder, f"{how}.jsonl") for how in ("sampled", "hinted", "repaired")
    )
    failing = [g[0]["prompt_id"] for g in sampled if not any(each["accuracy"] for each in g)]
    assert 0 < len(failing) < 20
    assert [group[0]["prompt_id"] for group in hinted] == failing
    assert {len(group) for group in hinted} == {3}
    for prompt in asked["hinted"]:
        sum_ = prompt.last_text.removeprefix(str(prompt.answer))
        assert eval(sum_.rstrip("=")) == int(prompt.answer)
    still = [g[0]["prompt_id"] for g in hinted if not any(each["accuracy"] for each in g)]
    assert [group[0]["prompt_id"] for group in repaired] == still
    first = {g[0]["prompt_id"]: g[0] for g in sampled}
    for prompt in asked["repaired"]:
        _, failed, reason = prompt.messages
        assert failed["content"] == first[prompt.id]["text"]
        assert reason == {"role": "user", "content": first[prompt.id]["verdict"]}
    every = [*rows(run.folder, "data.jsonl"), *rows(run.folder, "dropped.jsonl")]
    for row in every:
        assert len(row["messages"]) == (4 if row["how"] == "repaired" else 2)
        assert question(row)[1:2] == "+"
    assert {row["how"] for row in every} == {"sampled", "hinted", "repaired"}
    kept = rows(run.folder, "data.jsonl")
    assert all(row["outcome"] == "correct" for row in kept)


def test_a_hint_and_a_repair_change_only_what_is_asked() -> None:
    chat = Prompt("p", ({"role": "system", "content": "s"}, {"role": "user", "content": "q"}), "7")
    asked = Rationalise(hint="{prompt} ({answer})").asked(chat)
    assert [each["content"] for each in asked.messages] == ["s", "q (7)"]
    assert (asked.id, asked.answer) == ("p", "7")
    raw = Rationalise().asked(Prompt("p", text="q", answer=7))
    assert raw.text == "q\n\nThe correct answer is 7."
    failed = trace("wrong", 0.0, verdict="case 2: expected 4, got 5")
    asked = Repair(wording="Error: {reason}").asked(chat, failed)
    assert [each["role"] for each in asked.messages] == ["system", "user", "assistant", "user"]
    assert asked.messages[-1]["content"] == "Error: case 2: expected 4, got 5"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"keep": "some"}, "keep = 'some'"),
        ({"keep": "all", "at_least": 0.5}, 'at_least = 0.5 with keep = "all"'),
        ({"best": 3}, r'best = 3 has no effect with keep = "correct"; set keep = "best"'),
        ({"at_least": 5}, r'at_least = 5 with keep = "correct" is an accuracy'),
        ({"prompts": 5000}, "prompts = 5000: the environment has 44 training prompts; give at mo"),
        ({"prompts": 40, "skip": 5}, "44 training prompts, 39 after skip = 5; give at most 39"),
        ({"skip": 44}, "skip = 44: the environment has 44 training prompts"),
        ({"min_length": 9, "max_length": 8}, "max_length = 8 is below min_length = 9"),
        ({"filters": [{"verifier": "number"}]}, "filter on 'number' has no bound"),
        (
            {"filters": [{"verifier": "tone", "at_least": 1}]},
            "verifier = 'tone' is not known; one of number",
        ),
        ({"rationalise": {"hint": "{prompt}"}}, r"it needs \{prompt\} and \{answer\}"),
        ({"rationalise": {"hint": "{prompt}{answer}" + "1" * 2000}}, "the model has"),
        ({"repair": {"wording": "again"}}, r"it needs \{reason\}"),
        ({"repair": {}, "environment": {"name": "tic_tac_toe"}}, "plays several turns"),
    ],
)
def test_bad_stages_are_refused_before_weights_load(changes: dict[str, Any], message: str) -> None:
    with pytest.raises((RecipeError, ValidationError), match=message):
        check_pipeline(load_pipeline(pipeline(Path(), {**STAGE, **changes})))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"repair": {}}, r"repair: prompt .* is raw text"),
        ({"rationalise": {}}, r"rationalise: prompt .* has no answer to hint"),
    ],
)
def test_raw_prompts_and_prompts_without_an_answer(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = tmp_path / "sums.jsonl"
    path.write_text("".join(f'{{"prompt": "{n}+1="}}\n' for n in range(4)), encoding="utf-8")
    data = {"name": "dataset", "path": str(path), "chat": False}
    data["verifiers"] = [{"name": "regex", "arguments": {"pattern": "1"}}]
    recipe = pipeline(Path(), {**STAGE, "prompts": 4, **changes}, environment=data)
    with pytest.raises(RecipeError, match=message):
        check_pipeline(load_pipeline(recipe))


def test_right_rows_raise_the_heldout_accuracy_and_random_ones_do_not(tmp_path: Path) -> None:
    """The control learns as many rows by the same updates, whatever the verifier says of them."""
    draw = {"kind": "rejection", "sampling": {"group_size": 8}}
    training = {"learning_rate": 1e-3, "epochs": 4, "examples_per_step": 16}
    random = {"keep": "all", "duplicates": True, "per_prompt": 1, "from": "base"}
    stages = [
        {**draw, "name": "right"},
        {**LEARN, "data": {"stage": "right"}, "training": training},
        {**draw, "name": "random", **random},
        {**LEARN, "name": "control", "from": "base", "training": training},
    ]
    stages[3]["data"] = {"stage": "random", "limit": 43}
    guard = {"every": 0, "samples": 16, "splits": ["heldout"]}
    run = gw.train(pipeline(Path(), *stages, evaluation=guard), output=tmp_path / "run")
    found = {each["name"]: each for each in run.summary["stages"]}
    assert found["right"]["last"]["traces/kept"] == pytest.approx(43, abs=2)
    before = found["learn"]["first"]["guard/accuracy"]
    assert found["learn"]["last"]["guard/accuracy"] > before + 0.1
    assert found["control"]["last"]["guard/accuracy"] < before + 0.05
