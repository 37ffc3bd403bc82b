"""Collection ahead of learning: what is refused, what a step takes, and replays bit for bit."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import groupwise as gw
from groupwise.environments import Environment, Episode
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.policies import Policy
from groupwise.proving import verify_resume
from groupwise.proving.equality import compare_runs
from groupwise.recipe import load_recipe
from groupwise.records.files import read_json_lines
from groupwise.rollouts.arrivals import Arrivals
from groupwise.rollouts.member import Setting
from groupwise.rollouts.rounds import Progress, Rounds, Started
from groupwise.samplers import SamplingSettings, make_sampler
from groupwise.selection import from_plain, to_plain
from groupwise.training.ahead import Stretch
from groupwise.training.preparing import prepare
from groupwise.training.session import open_session
from groupwise.types import Message, Prompt
from groupwise.verifiers import Component, Composite, load_verifier
from vllm_stub import vllm_stub

BASE: dict[str, Any] = {
    "seed": 5,
    "model": {"name": "tiny"},
    "environment": {"name": "arithmetic", "level": "table", "audit": False},
    "algorithm": {"preset": "grpo", "correction": "truncate"},
    "sampling": {"group_size": 4, "max_tokens": 48, "temperature": 5.0},
    "training": {"prompts_per_step": 4, "steps": 3, "learning_rate": 1e-3},
    "evaluation": {"every": 2, "samples": 1, "max_prompts": 2},
    "checkpoints": {"every": 2, "keep": 1},
    "compute": {"max_staleness": 1, "park_after": 6},
}


def slow(completions: list[Any], answer: list[str], **_: Any) -> list[float]:
    """A verifier whose verdicts arrive in another order every time."""
    time.sleep(next(_UNEVEN))
    texts = [each if isinstance(each, str) else each[-1]["content"] for each in completions]
    return [float(str(gold) in text) for text, gold in zip(texts, answer)]


_UNEVEN = itertools.cycle((0.03, 0.0, 0.01, 0.05, 0.0))
SLOW = {"environment.verifiers": [{"name": "training.test_ahead:slow"}]}


def same(recipe: dict[str, Any], folder: Path, **overrides: Any) -> gw.Run:
    """A run, after its replay was compared with it."""
    settings = {name.replace("__", "."): value for name, value in overrides.items()}
    run = gw.train(recipe, settings, output=folder / "run")
    gw.train(recipe, settings, output=folder / "replay", replay_schedule=folder / "run")
    compared = compare_runs(folder / "run", folder / "replay")
    assert compared.first is None
    assert compared.bits_differing == 0
    return run


def test_a_replay_equals_its_run_bit_for_bit(tmp_path: Path) -> None:
    """Weights, moments, ids, log-probabilities, metrics, checkpoints with what is unfinished."""
    run = same(BASE, tmp_path)
    lines = list(read_json_lines(run.folder / "schedule.jsonl"))
    assert [line["step"] for line in lines] == [0, 1, 2]
    taken = [number for line in lines for number in line["groups"]]
    assert sorted(taken) == list(range(12))
    assert all(line["held"] and line["held"][0] > 0 for line in lines)
    metrics = run.metrics().to_pandas()
    assert metrics["staleness"].tolist()[0] == 0.0
    assert metrics["staleness"].max() == metrics["ahead/staleness_max"].max() == 1.0
    assert metrics["ahead/parked"].sum() > 0
    assert metrics["ahead/unlearned"].tolist() == [4] * 3
    rollouts = run.rollouts().to_pandas()
    assert (rollouts["step"] - rollouts["version"] <= 1).all()
    for row in rollouts.itertuples():
        if row.versions is not None:
            assert len(row.versions) == len(row.completion_ids)
            assert list(row.versions) == sorted(row.versions)
            assert row.version == row.versions[0] < row.versions[-1]


@pytest.mark.slow
@pytest.mark.parametrize("stale", ["wait", "drop", "correct"])
def test_every_policy_for_stale_groups_is_replayed(stale: str, tmp_path: Path) -> None:
    run = same(
        BASE, tmp_path, compute__stale=stale, compute__max_staleness=2, training__steps=5, **SLOW
    )
    metrics, rollouts = run.metrics().to_pandas(), run.rollouts().to_pandas()
    learned = rollouts[rollouts["kind"] == "training"]
    assert len(learned) == 80
    if stale != "correct":
        assert (learned["step"] - learned["version"]).max() <= 2
    discarded = rollouts[rollouts["kind"] == "discarded"]
    assert metrics["ahead/dropped"].sum() * 4 == len(discarded)
    assert stale == "drop" or not len(discarded)


@pytest.mark.slow
def test_tools_and_dynamic_sampling_are_replayed(tmp_path: Path) -> None:
    settings = {
        "compute.max_staleness": 2, "compute.park_after": 5, "sampling.group_size": 8,
        "algorithm.correction": "mask", "training.steps": 3, "training.prompts_per_step": 4,
        "evaluation.max_prompts": 2,
    }  # fmt: skip
    run = gw.train("tool_calculator", settings, output=tmp_path / "run")
    gw.train("tool_calculator", settings, output=tmp_path / "b", replay_schedule=tmp_path / "run")
    assert compare_runs(tmp_path / "run", tmp_path / "b").first is None
    assert run.metrics().to_pandas()["ahead/mixed"].max() > 0
    filters = [{"kind": "dynamic_sampling", "max_batches": 3, "when_short": "partial"}]
    run = same(BASE, tmp_path / "dynamic", algorithm__filters=filters, algorithm__preset="dapo")
    assert run.metrics().to_pandas()["selection/discarded"].sum() > 0


CARRY: dict[str, Any] = BASE | {
    "seed": 0,
    "sampling": {"group_size": 3, "max_tokens": 4},
    "training": {"prompts_per_step": 6, "steps": 5, "learning_rate": 1e-3},
    "evaluation": {"every": 0, "samples": 1, "max_prompts": 2},
    "algorithm": BASE["algorithm"] | {
        "filters": [
            {"kind": "dynamic_sampling", "max_batches": 1, "surplus": "carry", "when_short": "skip"}
        ]
    },
}  # fmt: skip


def test_carried_groups_are_learned_from_later_and_every_group_is_recorded(tmp_path: Path) -> None:
    run = gw.train(CARRY, output=tmp_path / "run")
    metrics, rows = run.metrics().to_pandas(), run.rollouts().to_pandas()
    rows = rows.assign(group=list(zip(rows["prompt_id"], rows["visit"])))
    groups = {kind: set(some["group"]) for kind, some in rows.groupby("kind")}
    assert groups["waiting"] & groups["training"]
    assert not groups["discarded"] & (groups["waiting"] | groups["training"])
    carried = metrics["selection/carried"].tolist()
    assert len(groups["waiting"] - groups["training"]) == carried[-1]
    lines = list(read_json_lines(run.folder / "schedule.jsonl"))
    assert len(set(rows["group"])) == sum(len(line["groups"]) for line in lines)
    assert max(carried) + metrics["ahead/unlearned"].max() <= 12
    assert metrics["ahead/staleness_max"].max() == 1.0  # skipped steps do not count
    assert metrics["ahead/dropped"].sum() == 0.0


@pytest.mark.parametrize("recipe", [CARRY, BASE])
def test_a_checkpoint_that_does_not_know_the_skipped_steps(recipe: dict[str, Any]) -> None:
    """Refused with a keep rule; exact without one, as no step is skipped then."""
    session = open_session(prepare(load_recipe(recipe)))
    try:
        state = session.collector.state_dict()
        assert state["ahead"].pop("skipped") == []
        if recipe is CARRY:
            with pytest.raises(GroupwiseError, match="does not say which steps were skipped"):
                session.collector.load_state_dict(state)
        else:
            session.collector.load_state_dict(state)
            assert session.collector.state_dict()["ahead"]["skipped"] == []
    finally:
        session.close()


@pytest.mark.slow
@pytest.mark.parametrize("stale", ["wait", "drop", "correct"])
def test_carried_groups_are_in_the_checkpoint(stale: str, tmp_path: Path) -> None:
    settings = {"compute.stale": stale, "checkpoints.every": 1, "evaluation.every": 2}
    gw.train(CARRY, settings | {"training.steps": 2}, output=tmp_path / "run")
    run = gw.train(CARRY, settings, output=tmp_path / "run", resume=True)
    assert run.metrics().to_pandas()["selection/carried"].tolist()[1] > 0
    gw.train(CARRY, settings, output=tmp_path / "replay", replay_schedule=tmp_path / "run")
    compared = compare_runs(tmp_path / "run", tmp_path / "replay")
    assert compared.bits_differing == 0
    files = {text.split(":")[0] for _, text in compared.found}
    assert files <= {"environment.json", "recipe.toml"}  # training.steps


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("recipe", ["sums", "tools"])
def test_a_killed_and_resumed_run_equals_its_own_schedule_replayed(recipe: str) -> None:
    """Two steps ahead of short turns, with groups carried over; one step ahead of turns with a
    tool."""
    settings = {
        "compute.max_staleness": 2, "training.steps": 5, "checkpoints.every": 1,
        "sampling.temperature": 2.0, "algorithm.filters": [
            {"kind": "dynamic_sampling", "max_batches": 2, "surplus": "carry", "when_short": "skip"}
        ],
    }  # fmt: skip
    tools = {"compute.max_staleness": 1, "compute.park_after": 5, "algorithm.correction": "mask"}
    found = (
        verify_resume(BASE, settings, kills=2)
        if recipe == "sums"
        else verify_resume("tool_calculator", tools, small=True, kills=1)
    )
    assert found.first_difference is None
    assert found.kills >= 10
    assert recipe == "sums" or "tool call" in found.instants


@pytest.mark.slow
def test_an_engine_that_holds_weights_samples_ahead_and_resumes(tmp_path: Path) -> None:
    with vllm_stub(gw.load_policy("tiny", device="cpu")) as stub:
        sampling = {**BASE["sampling"], "sampler": "vllm", "vllm": {"servers": [stub.url]}}
        recipe = {**BASE, "sampling": {**sampling, "max_tokens": 12, "temperature": 2.0}}
        gw.train(recipe, {"training.steps": 2}, output=tmp_path / "run")
        run = gw.train(recipe, {"training.steps": 4}, output=tmp_path / "run", resume=True)
        metrics = run.metrics().to_pandas()
        assert 0 < metrics["staleness"].max() <= metrics["ahead/staleness_max"].max() == 1
        with pytest.raises(RecipeError, match="what a server decodes together cannot be repeated"):
            gw.train(recipe, output=tmp_path / "again", replay_schedule=run.folder)


def test_what_cannot_run_ahead_is_refused(tmp_path: Path) -> None:
    def refused(match: str, **overrides: Any) -> None:
        settings = {name.replace("__", "."): value for name, value in overrides.items()}
        with pytest.raises(RecipeError, match=match):
            gw.train(BASE, settings, output=tmp_path / "never")
        assert not (tmp_path / "never").exists()

    refused("max_staleness = 1: .* does not correct", algorithm__correction="none")
    refused("set max_staleness to 1 or more", compute__max_staleness=0)
    refused("max_staleness = -1", compute__max_staleness=-1)
    refused("max_staleness = 101: must be at most 100", compute__max_staleness=101)
    with pytest.raises(RecipeError, match=r"runs whole programs.*set 0"):
        gw.train("agent", {"compute.max_staleness": 1, "algorithm.correction": "truncate"})
    refused("no one choice of experts", sampling__routing_replay=True)
    with pytest.raises(RecipeError, match="only an asynchronous run has a schedule"):
        gw.train(BASE, output=tmp_path / "never", replay_schedule=tmp_path)


def test_a_schedule_that_is_damaged_or_of_another_run_is_refused(tmp_path: Path) -> None:
    settings = {"training.steps": 2, "evaluation.max_prompts": 1}
    run = gw.train(BASE, settings, output=tmp_path / "run")
    path = run.folder / "schedule.jsonl"
    good = path.read_text("utf-8")
    first, second = (json.loads(line) for line in good.splitlines())

    def refused(match: str, lines: Sequence[Any] | None = None, **overrides: Any) -> None:
        if lines is not None:
            texts = [each if isinstance(each, str) else json.dumps(each) for each in lines]
            path.write_text("".join(f"{each}\n" for each in texts), "utf-8")
        with pytest.raises(RecipeError, match=match) as caught:
            gw.train(
                BASE, {**settings, **overrides}, output=tmp_path / "b", replay_schedule=run.folder
            )
        assert not (tmp_path / "b").exists()
        assert "resumed" not in str(caught.value)
        path.write_text(good, "utf-8")

    refused(r"line 2 is not JSON", [first, "{"])
    refused(r"line 2 is no object with 'step'", [first, [1]])
    refused(r"line 1: step = 1, where 0 follows", [second, first])
    for name in ("groups", "held"):
        for value in ([1, 2.5], ["1"], [-1], [True], None):
            refused(rf"line 2: {name} = .* is not a list of whole", [first, second | {name: value}])
    refused(r"line 2: held = \[\] is not a list of whole", [first, second | {"held": []}])
    again = [*second["groups"][1:], first["groups"][0]]
    refused(rf"takes group {first['groups'][0]} a second time", [first, second | {"groups": again}])
    refused("schedule of 1 steps, and training.steps = 2; give at most 1", [first])
    refused(r"another recipe: seed \(5 there, 6 now\)\. Its schedule is repeated", seed=6)
    with pytest.raises(RecipeError, match="there is no such folder"):
        gw.train(BASE, output=tmp_path / "b", replay_schedule=tmp_path / "none")
    about = run.folder / "environment.json"
    whole = about.read_text("utf-8")
    changed = json.loads(whole)
    changed["environment"]["data_hash"] = "0" * 60
    about.write_text(json.dumps(changed), "utf-8")
    refused(r"other data \(data_hash 0{60} there.*: its schedule is repeated on the same data")
    about.write_text(whole, "utf-8")
    lines = [first | {"held": [*first["held"][:-1], 100_000]}, second]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in lines), "utf-8")
    with pytest.raises(GroupwiseError, match=r"step 0 does not follow line 1 .*: held = .*100000"):
        gw.train(BASE, settings, output=tmp_path / "c", replay_schedule=run.folder)


class Asks(Episode):
    """Answers the first completion once, with a number of its own."""

    def __init__(self, prompt: Prompt, number: int) -> None:
        super().__init__(prompt)
        self.number, self.asked = number, False

    def next(self, completion: str) -> Sequence[Message] | None:
        if self.asked:
            return None
        self.asked = True
        return [{"role": "user", "content": str(self.number)}]


class Asking(Environment):
    """Two prompts; `numbers` are what its episodes answer, one after the other."""

    def __init__(self, numbers: Sequence[int]) -> None:
        prompts = [
            Prompt(name, messages=({"role": "user", "content": "3+4="},), answer="7")
            for name in ("p", "q")
        ]
        super().__init__("asking", load_verifier("number"), {"train": prompts})
        self.numbers = iter(numbers)

    def start(self, prompt: Prompt) -> Episode:
        return Asks(prompt, next(self.numbers))


def rounds_of(
    policy: Policy, environment: Environment, deadline: float | None = None
) -> tuple[Rounds, list[Started]]:
    done: list[Started] = []
    sampling = SamplingSettings(max_tokens=30, temperature=4.0, deadline=deadline)
    setting = Setting(environment, policy.template, sampling, 1, "training", park_after=4)
    return Rounds(setting, make_sampler("local", policy), done.append), done


def group_of(environment: Environment, number: int) -> Started:
    return Started(number, 0, environment.prompts()[number], 0, 4, True, 30)


def test_unfinished_rollouts_of_several_turns_continue_from_a_checkpoint() -> None:
    """Stopped after every number of steps, stored, and continued: the same ids as never stopped."""
    policy = gw.load_policy("tiny", device="cpu")
    torch.set_num_threads(1)

    def finished(stops: Sequence[int], numbers: Sequence[int]) -> dict[str, list[Any]]:
        environment = Asking(numbers)
        rounds, done = rounds_of(policy, environment)
        groups = [group_of(environment, number) for number in range(2)]
        for group in groups:
            rounds.start(group)
        for stop in stops:
            assert Stretch(rounds, stop).steps <= stop
            stored = [to_plain(tuple(map(tuple, group.progress))) for group in groups]
            environment = Asking(numbers)
            rounds, done = rounds_of(policy, environment)
            groups = [replace(group, rollouts=[]) for group in groups]
            for group, plain in zip(groups, stored):
                back = from_plain(plain, environment.prompt)
                rounds.start(group, [Progress(*each) for each in back])
        Stretch(rounds, 10_000)
        assert sorted(group.number for group in done) == [0, 1]
        return {
            group.prompt.id: [
                [each.token_ids for each in rollout.progress.completions]
                for rollout in group.rollouts
            ]
            for group in groups
        }

    whole = finished([], range(10))
    assert any(len(turns) == 2 for turns in whole["p"])
    assert max(len(ids) for turns in whole["p"] for ids in turns) > 4
    assert finished([1, 4, 2], range(10)) == whole
    with pytest.raises(GroupwiseError, match="otherwise than before the checkpoint"):
        finished([3, 25, 2], itertools.count())


def test_seconds_are_counted_over_interruptions_and_only_while_the_sampler_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every decoding step takes 1 s, and every interruption 100 s."""
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("groupwise.rollouts.rounds.time", clock)

    class Second(Stretch):
        def __call__(self) -> bool:
            now[0] += 1.0
            return super().__call__()

    policy = gw.load_policy("tiny", device="cpu")

    def last_turns(deadline: float, seconds: float) -> list[tuple[int, str]]:
        environment = Asking(range(10))
        environment.limits = replace(environment.limits, seconds=seconds)
        rounds, done = rounds_of(policy, environment, deadline)
        rounds.setting = replace(rounds.setting, park_after=0)
        group = group_of(environment, 0)
        rounds.start(group)
        for steps in (2, 2, 100):
            Second(rounds, steps)
            now[0] += 100.0
        assert done == [group]
        ends = [each.member.turns[-1].completion for each in group.rollouts]
        return [(each.num_tokens, each.finish_reason) for each in ends]

    assert "deadline" not in [reason for _, reason in last_turns(60.0, 60.0)]
    assert last_turns(5.5, 60.0).count((4, "deadline")) == 3  # of 2 decoding steps each
    assert "deadline" in [reason for _, reason in last_turns(60.0, 5.5)]


def test_groups_arrive_in_the_order_of_their_verdicts_and_errors_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    policy = gw.load_policy("tiny", device="cpu")
    environment = Asking(range(20))
    rounds, _ = rounds_of(policy, environment)
    arrivals = Arrivals(rounds.setting)
    rounds.complete = arrivals.put
    groups = [group_of(environment, number) for number in range(2)]
    with arrivals.judging:
        for group in groups:
            rounds.start(group)
        Stretch(rounds, 10_000)
    first = arrivals.take(lambda group: group.number == 1, lambda: False)
    assert first is not None
    assert first.started is groups[1]
    assert [each.score.outcome for each in first.group.rollouts]
    assert first.group.greedy is not None
    assert arrivals.take(lambda group: group.number == 7, lambda: False) is None
    monkeypatch.setattr(environment, "score", lambda cases: 1 / 0)
    arrivals.put(groups[0])
    with pytest.raises(ZeroDivisionError):
        arrivals.take(lambda group: group.number == 7, lambda: True)


def test_a_run_that_ends_begins_no_call_and_leaves_one_that_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment = Asking(range(40))
    rounds, done = rounds_of(gw.load_policy("tiny", device="cpu"), environment)
    for number in range(2):
        rounds.start(group_of(environment, number))
    Stretch(rounds, 10_000)
    begun, go_on, score = threading.Event(), threading.Event(), environment.score
    calls: list[int] = []

    def hangs(cases: Any) -> Any:
        calls.append(len(cases))
        begun.set()
        assert go_on.wait(20.0)
        return score(cases)

    monkeypatch.setattr(environment, "score", hangs)
    for waits in (0.05, 20.0):  # the call hangs; it ends while it is waited for
        monkeypatch.setattr("groupwise.rollouts.arrivals._LAST_CALL", waits)
        arrivals = Arrivals(rounds.setting)
        begun.clear(), go_on.clear(), caplog.clear(), calls.clear()
        arrivals.put(done[0])
        assert begun.wait(20.0)
        arrivals.put(done[1])
        if waits > 1.0:
            threading.Timer(0.05, go_on.set).start()
        arrivals.close()
        arrivals.put(done[1])
        assert ("is abandoned" in caplog.text) == (waits < 1.0)
        go_on.set()
        work = arrivals._work
        assert work is None or work.result(20.0) is None
        assert len(calls) == 1


ASKED: list[int] = []


async def asked(completions: list[Any], **_: Any) -> list[float]:
    """A judge behind an endpoint, which answers four calls once it has all of them."""
    ASKED.append(len(completions))
    deadline = time.monotonic() + 20.0
    while len(ASKED) < 4:
        assert time.monotonic() < deadline, "the calls came one after the other"
        await asyncio.sleep(0.01)
    return [1.0] * len(completions)


def test_a_verifier_that_waits_judges_several_groups_at_a_time() -> None:
    policy = gw.load_policy("tiny", device="cpu")
    environment = Asking(range(20))
    judge = load_verifier("training.test_ahead:asked")
    environment.verifier = Composite([Component(load_verifier("number")), Component(judge, 0.5)])
    assert not environment.verifier.waits
    assert environment.verifier.overlaps
    rounds, done = rounds_of(policy, environment)
    group = group_of(environment, 0)
    rounds.start(group)
    Stretch(rounds, 10_000)
    assert done == [group]
    arrivals = Arrivals(rounds.setting)
    arrivals._finished += [group] * 3
    arrivals.put(group)
    found = [arrivals.take(lambda _: True, lambda: False) for _ in range(4)]
    assert all(each is not None and each.started is group for each in found)
    assert importlib.import_module("training.test_ahead").ASKED == [5] * 4
