"""Rollouts of several turns: ids grow by concatenation, context never trains, limits hold."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from groupwise.batches import align
from groupwise.environments import Environment, Episode, Limits, load_environment
from groupwise.errors import GroupwiseError, VerifierError
from groupwise.policies import load_policy
from groupwise.randomness import stream_key
from groupwise.records import group_totals, rollout_rows
from groupwise.records.rows import rows_table
from groupwise.rollouts import collect
from groupwise.samplers import SamplingSettings, ScriptedSampler
from groupwise.templates import Template
from groupwise.types import Extras, Group, Message, Prompt, Score, StepReward
from groupwise.verifiers import Case, Verifier, load_verifier
from groupwise.waiting.calls import CallQueue
from groupwise.waiting.deadlines import BackgroundCall
from step_verifier import Sums


@pytest.fixture(scope="module")
def template() -> Template:
    return load_policy("tiny", device="cpu").template


def prompt(name: str = "p") -> Prompt:
    return Prompt(name, messages=({"role": "user", "content": "go"},), answer="7")


class Asks(Episode):
    """Says LEAK after every completion, until one says "done"."""

    def next(self, completion: str) -> Sequence[Message] | None:
        self.counts["heard"] += 1
        return None if completion == "done" else [{"role": "user", "content": "LEAK 7"}]


class Heard(Verifier):
    """1 where the case's text is "done"; keeps the cases."""

    name = "heard"  # type: ignore[assignment]

    def __init__(self) -> None:
        self.cases: list[Case] = []

    def score_case(self, case: Case) -> Score:
        self.cases.append(case)
        right = case.text == "done"
        return Score(float(right), "correct" if right else "incorrect")


class Asking(Environment):
    """Prompts by name, plays of a given class."""

    def __init__(self, play: type[Episode] = Asks, verifier: Verifier | None = None, **limits: Any):
        super().__init__("asking", verifier or Heard(), {"train": [prompt("p"), prompt("q")]})
        self.play = play
        self.limits = Limits(**limits)

    def start(self, prompt: Prompt) -> Episode:
        return self.play(prompt)


def played(
    environment: Environment, template: Template, replies: Any, **settings: Any
) -> tuple[list[Group], ScriptedSampler]:
    sampler = ScriptedSampler(template, replies)
    size = settings.pop("group_size", 1)
    groups = collect(
        environment,
        sampler,
        template,
        [(prompt, 0) for prompt in environment.prompts(settings.pop("prompts", 1))],
        group_size=size,
        sampling=SamplingSettings(**{"max_tokens": 40, "group_size": size, **settings}),
        seed=3,
        step=2,
    )
    environment.close()
    return groups, sampler


def test_ids_grow_by_concatenation(template: Template) -> None:
    (group,), sampler = played(Asking(), template, ["ask", "done"])
    (rollout,) = group.rollouts
    first, second = sampler.requests
    context = rollout.turns[1].context_ids
    assert template.decode(context) == "<|user|>LEAK 7<|end|><|assistant|>"
    assert first.prompt_ids == template.encode_prompt(rollout.prompt)
    assert second.prompt_ids == (
        *first.prompt_ids,
        *rollout.turns[0].completion.token_ids,
        *context,
    )
    assert [request.key for request in (first, second)] == [
        stream_key(3, "training", "p", 0, 0, turn) for turn in (0, 1)
    ]
    assert (first.max_tokens, second.max_tokens) == (40, 36)  # "ask" and its end took 4
    assert (rollout.reward, rollout.finish_reason, rollout.step) == (1.0, "stop", 2)
    assert rollout.extras.messages == (
        {"role": "assistant", "content": "ask"},
        {"role": "user", "content": "LEAK 7"},
        {"role": "assistant", "content": "done"},
    )
    assert rollout.extras.counts == {"heard": 2}


def test_fault_28_context_is_attended_to_but_never_trained_on_nor_judged(
    template: Template,
) -> None:
    verifier = Heard()
    (group,), sampler = played(Asking(verifier=verifier), template, ["ask", "done"])
    rollout = group.rollouts[0]
    (case,) = verifier.cases
    assert case.text == "done"
    assert "LEAK" not in rollout.text
    rows = align([group])
    context = len(rollout.turns[1].context_ids)
    assert rows.mask[0].tolist() == [True] * 4 + [False] * context + [True] * 5
    assert rows.sampler_logprobs[0].tolist() == [-0.5] * 4 + [0.0] * context + [-0.5] * 5
    assert "LEAK" in template.decode(sampler.requests[1].prompt_ids)
    assert case.turns is not None
    assert case.turns[1]["content"] == "LEAK 7"


def test_all_turns_are_judged_where_the_environment_says_so(template: Template) -> None:
    verifier = Heard()
    environment = Asking(verifier=verifier)
    environment.judged = "all"
    played(environment, template, ["ask", "done"])
    assert verifier.cases[0].text == "ask\ndone"


def test_fault_29_an_empty_completion(template: Template) -> None:
    end = min(template.stop_ids)
    environment = Asking()
    environment.judged = "all"
    (group,), _ = played(environment, template, [[end], [end], "done"])
    rollout = group.rollouts[0]
    assert [turn.completion.num_tokens for turn in rollout.turns] == [1, 1, 5]
    assert sum(rollout.mask) == 7
    (group,), _ = played(Asking(), template, [[]])  # not one token: nothing to train on
    rows = align([group])
    assert (group.rollouts[0].reward, int(rows.mask.sum())) == (0.0, 0)


@pytest.mark.parametrize(
    ("limits", "sampling", "replies", "named", "reason", "turns"),
    [
        ({"turns": 2}, {}, ["a"], "turns", "length", 2),
        ({}, {"max_tokens": 4}, ["a"], "tokens", "length", 2),
        ({"length": 28}, {}, ["a"], "length", "length", 2),
        ({"seconds": 1e-9}, {}, ["a"], "seconds", "deadline", 1),
    ],
)
def test_limits_end_a_rollout_by_name(
    template: Template,
    limits: dict[str, Any],
    sampling: dict[str, Any],
    replies: list[str],
    named: str,
    reason: str,
    turns: int,
) -> None:
    (group,), _ = played(Asking(**limits), template, replies, **sampling)
    rollout = group.rollouts[0]
    assert (rollout.extras.limit, rollout.finish_reason) == (named, reason)
    assert (len(rollout.turns), rollout.truncated, rollout.reward) == (turns, True, 0.0)


def test_a_turn_has_its_own_tokens(template: Template) -> None:
    (group,), sampler = played(Asking(turn_tokens=6), template, ["ask", "done"])
    assert [request.max_tokens for request in sampler.requests] == [6, 6]
    (group,), _ = played(Asking(turn_tokens=3), template, ["ask", "done"])
    assert (len(group.rollouts[0].turns), group.rollouts[0].finish_reason) == (1, "length")


class Broken(Asks):
    """Fails where the policy asks for it."""

    def next(self, completion: str) -> Sequence[Message] | None:
        if completion == "fail":
            raise OSError("the server is gone")
        if completion == "hang":
            time.sleep(1.0)
        return super().next(completion)


def test_a_failed_rollout_is_marked_and_the_rest_goes_on(template: Template) -> None:
    (group,), _ = played(Asking(Broken), template, ["fail", "done"], group_size=2)
    failed, right = group.rollouts
    assert (failed.finish_reason, failed.reward) == ("error", None)
    assert failed.score.outcome == "infrastructure_error"
    assert failed.score.reason == "environment 'asking', turn 1: OSError: the server is gone"
    assert (right.finish_reason, right.reward) == ("stop", 1.0)


def test_fault_56_an_answer_that_never_comes(template: Template) -> None:
    started = time.monotonic()
    environment = Asking(Broken, wait_seconds=0.1)
    (group,), _ = played(environment, template, ["hang", "done"], group_size=2)
    assert time.monotonic() - started < 0.9
    hung, right = group.rollouts
    assert (hung.finish_reason, right.reward) == ("error", 1.0)
    assert "TimeoutError: no answer after 0.1 s" in hung.score.reason


def test_a_run_in_which_every_rollout_fails_stops(template: Template) -> None:
    with pytest.raises(GroupwiseError, match=r"failed in all 2 rollouts; the first: turn 1: OSErr"):
        played(Asking(Broken), template, ["fail"], group_size=2)


class Later(Asks):
    """Answers later."""

    async def next(self, completion: str) -> Sequence[Message] | None:  # type: ignore[override]
        return super().next(completion)


def test_answers_may_be_async(template: Template) -> None:
    (group,), _ = played(Asking(Later), template, ["ask", "done"])
    assert group.rollouts[0].reward == 1.0


class Rewarded(Asks):
    """0.25 for every turn but the last, which gives 1."""

    def next(self, completion: str) -> Sequence[Message] | None:
        answer = super().next(completion)
        self.rewards.append(0.25 if answer else 1.0)
        return answer


def test_rewards_of_turns_end_at_their_last_tokens(template: Template) -> None:
    from groupwise.verifiers import load_verifier

    environment = Asking(Rewarded, load_verifier("play", turns=True))
    environment.judged = "all"
    (group,), _ = played(environment, template, ["ask", "hm", "done"])
    rollout = group.rollouts[0]
    context = len(rollout.turns[1].context_ids)
    assert rollout.reward == 1.5
    assert rollout.score.steps == (StepReward(0.25, 4), StepReward(0.25, 7), StepReward(1.0, 11))
    assert rollout.step_ends == (3, 3 + context + 3, 3 + context + 3 + context + 5)
    assert [rollout.mask[end] for end in rollout.step_ends] == [True] * 3


class WholeBatch(Verifier):
    """Refuses anything but the whole step."""

    name = "whole"  # type: ignore[assignment]

    def score(self, cases: Sequence[Case]) -> list[float]:
        return [len(cases)] * len(cases)


def test_a_verifier_of_batches_gets_the_whole_batch(template: Template) -> None:
    environment = Asking(Broken, WholeBatch())
    groups, _ = played(environment, template, ["fail", "done", "done", "done"], group_size=2,
                       prompts=2)  # fmt: skip
    assert [[r.reward for r in group.rollouts] for group in groups] == [[None, 4.0], [4.0, 4.0]]


class Slow(Verifier):
    """Scores by the text; notes when."""

    name = "slow"  # type: ignore[assignment]

    def __init__(self) -> None:
        self.times: dict[str, float] = {}

    def score_case(self, case: Case) -> float:
        self.times[case.text] = time.monotonic()
        return float(len(case.text))


def test_finished_rollouts_are_scored_while_others_still_run(template: Template) -> None:
    class Waits(Asks):
        def next(self, completion: str) -> Sequence[Message] | None:
            if completion == "ask":
                time.sleep(0.3)
            return super().next(completion) if completion == "ask" else None

    verifier = Slow()
    (group,), _ = played(Asking(Waits, verifier), template, ["ask", "a", "last"], group_size=2)
    assert [rollout.reward for rollout in group.rollouts] == [4.0, 1.0]
    assert verifier.times["last"] - verifier.times["a"] > 0.2


def test_a_verifier_that_raises_beside_the_sampler_stops_the_run(template: Template) -> None:
    class Raises(Verifier):
        name = "raises"  # type: ignore[assignment]

        def score_case(self, case: Case) -> float:
            raise ValueError("no")

    with pytest.raises(VerifierError, match="'raises' raised on row"):
        played(Asking(Asks, Raises()), template, ["done"], group_size=3)


class Answers(Verifier):
    """What is behind any thinking."""

    name = "answers"  # type: ignore[assignment]

    def score_case(self, case: Case) -> Score:
        return Score(float(case.text == "7"), "correct" if case.text == "7" else "incorrect",
                     case.text)  # fmt: skip


def test_a_spent_thinking_budget_forces_the_answer(template: Template) -> None:
    environment = Environment("one", Answers(), {"train": [prompt()]})
    (group,), sampler = played(
        environment, template, ["<think>so many words", "7"], thinking_budget=10, max_tokens=20
    )
    rollout = group.rollouts[0]
    forced = template.encode("\n</think>\n\n")
    assert [request.max_tokens for request in sampler.requests] == [10, 10]
    assert rollout.turns[1].context_ids == forced
    assert sampler.requests[1].prompt_ids[-len(forced) :] == forced
    assert rollout.mask == (True,) * 10 + (False,) * len(forced) + (True,) * 2
    assert (rollout.score.reason, rollout.reward, rollout.finish_reason) == ("7", 1.0, "stop")
    assert rollout.extras.messages[0]["content"] == "<think>so \n</think>\n\n7"
    assert rollout.extras.continued == (1,)


def test_thinking_within_its_budget_is_left_alone(template: Template) -> None:
    environment = Environment("one", Answers(), {"train": [prompt()]})
    (group,), _ = played(environment, template, ["7"], thinking_budget=10)
    assert (len(group.rollouts[0].turns), group.rollouts[0].extras) == (1, Extras())
    replies = ["<think>a</think>", "7"]  # closed, then cut by the budget: goes on as it is
    (group,), _ = played(environment, template, [template.encode(replies[0]), "7"],
                         thinking_budget=16)  # fmt: skip
    assert [len(turn.context_ids) for turn in group.rollouts[0].turns[1:]] == [0]
    rollout = group.rollouts[0]
    assert rollout.mask == (True,) * 18
    assert (rollout.text, rollout.score.reason) == ("<think>a</think>7", "<think>a</think>7")
    (group,), _ = played(environment, template, ["73 and on", "!"], thinking_budget=4)
    assert group.rollouts[0].score.reason == "73 a!"


def test_reasoning_that_the_prompt_opens_must_be_closed(template: Template) -> None:
    """Fault 18, the other way round: an answer that is only inside the reasoning is none."""
    opening = Prompt("p", text="3+4? <think>\n", answer="7")
    assert template.opened(opening) == "<think>\n"
    assert template.opened(prompt()) == ""
    environment = Environment("one", load_verifier("number"), {"train": [opening]})
    replies = ["it may be 7", "so</think> 7", "7</think>"]
    (group,), _ = played(environment, template, replies, group_size=3)
    assert [r.score.outcome for r in group.rollouts] == ["no_answer", "correct", "no_answer"]
    environment = Environment("one", load_verifier("number"), {"train": [opening]})
    (group,), _ = played(environment, template, ["words, words", "7"], thinking_budget=5)
    assert group.rollouts[0].score.outcome == "correct"


def test_ends_of_steps_in_words_that_go_on(template: Template) -> None:
    environment = Environment("one", Sums(), {"train": [prompt()]})
    (group,), _ = played(
        environment, template, ["1+1=2\n3+", "4=7\n"], thinking_budget=8, max_tokens=20
    )
    rollout = group.rollouts[0]
    assert rollout.score.steps == (StepReward(1.0, 6), StepReward(1.0, 12))
    assert rollout.step_ends == (5, 12)


# What somebody else's code gives.


class Foreign(Asks):
    """Answers with what no encoder takes, and with far too much."""

    def next(self, completion: str) -> Sequence[Message] | None:
        if completion == "long":
            return [{"role": "user", "content": "x" * 100}]
        if completion == "raise":
            raise OSError("\ud83d")
        answer = super().next(completion)
        return answer and [{"role": "user", "content": "a\ud83db", "name": "\ud800"}]


def test_halves_of_characters_are_replaced_where_they_enter(template: Template) -> None:
    (group,), _ = played(Asking(Foreign), template, ["ask", "done"])
    rollout = group.rollouts[0]
    assert rollout.reward == 1.0
    told = {"role": "user", "content": "a\ufffdb", "name": "\ufffd"}
    assert rollout.extras.messages[1] == told
    assert rollout.turns[1].context_ids == template.continuation(
        rollout.turns[0].completion.token_ids, [told]
    )
    (group,), _ = played(Asking(Foreign), template, ["raise", "done"], group_size=2)
    table = rows_table(rollout_rows(0, [group]))
    assert table["reason"].to_pylist()[0].endswith("OSError: \ufffd")


def test_a_message_of_the_environment_has_a_longest_length(template: Template) -> None:
    (group,), _ = played(Asking(Foreign, characters=10), template, ["long", "done"])
    said = group.rollouts[0].extras.messages[1]["content"]
    assert said == "xxxxxxxxxx... (90 characters more)"


class Stuck(Asks):
    """Takes its time at the end, and before its verdict."""

    method = "result"

    def result(self) -> Score | None:
        if self.method == "result":
            time.sleep(1.0)
        return super().result()

    def close(self) -> None:
        if self.method == "close":
            time.sleep(1.0)


@pytest.mark.parametrize("method", ["result", "close"])
def test_a_verdict_or_an_end_that_never_comes(
    template: Template, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(Stuck, "method", method)
    started = time.monotonic()
    with pytest.raises(GroupwiseError, match=r"its (result|end) raised TimeoutError: .* 0\.1 s"):
        played(Asking(Stuck, wait_seconds=0.1), template, ["done"])
    assert time.monotonic() - started < 0.9


class Counting(Asks):
    """Counts what its class says."""

    counted: Any = ("score", 0.5)

    def next(self, completion: str) -> Sequence[Message] | None:
        super().next(completion)
        name, value = self.counted
        if completion == "count":
            self.counts[name] = value
        return None


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        (("score", "text"), "its counts['score'] = 'text'; give a finite number under a name"),
        (("score", float("nan")), "its counts['score'] = nan"),
        (("score", 10**400), "its counts['score'] = 1000"),
        ((7, 1), "its counts[7] = 1"),
        (("", 1), "its counts[''] = 1"),
        (("tools/calls", 0.5), "its counts['tools/calls'] = 0.5; give a whole number"),
    ],
)
def test_counts_that_are_none_fail_that_rollout_by_name(
    template: Template, monkeypatch: pytest.MonkeyPatch, counted: Any, words: str
) -> None:
    monkeypatch.setattr(Counting, "counted", counted)
    (group,), _ = played(Asking(Counting), template, ["count", "done"], group_size=2)
    failed, right = group.rollouts
    assert words in failed.score.reason
    assert (failed.reward, right.reward) == (None, 1.0)
    group_totals([group])


def test_counts_need_not_be_whole(template: Template) -> None:
    (group,), _ = played(Asking(Counting), template, ["count"], group_size=3)
    found = group_totals([group])
    assert (found["plays/score"], found["plays/heard"]) == (1.5, 3)


class Grabbing(Asks):
    """Changes the prompt that it was given."""

    def next(self, completion: str) -> Sequence[Message] | None:
        self.prompt.columns["seen"].append(completion)
        self.prompt.columns["more"] = 1  # type: ignore[index]
        return None


def test_a_play_cannot_change_the_prompt_of_others(template: Template) -> None:
    environment = Asking(Grabbing)
    shared = replace(prompt("r"), columns={"seen": []})
    environment._splits = {"train": (shared,)}
    (group,), _ = played(environment, template, ["done", "no"], group_size=2)
    assert [rollout.reward for rollout in group.rollouts] == [1.0, 0.0]
    assert shared.columns == {"seen": []}


class Odd(Asks):
    """Answers with what its class says, once."""

    answer: Any = None

    def next(self, completion: str) -> Any:
        return None if completion == "done" else self.answer


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("go on", "`next` returned 'go on', a str; give a list of messages"),
        ([], "an empty list"),
        ([{"role": "user"}], "message 1 that `next` returned has no content"),
        ([{"role": "user", "content": None}], "has the content None; give a text"),
        ([{"role": "bot", "content": "x"}], "has the role 'bot'; legal: system, user"),
        ([{"role": "user", "content": "x"}, 5], "message 2 that `next` returned is 5, a int"),
    ],
)
def test_answers_that_are_no_messages_fail_that_rollout_by_name(
    template: Template, monkeypatch: pytest.MonkeyPatch, answer: Any, words: str
) -> None:
    monkeypatch.setattr(Odd, "answer", answer)
    (group,), _ = played(Asking(Odd), template, ["ask", "done"], group_size=2)
    failed, right = group.rollouts
    assert words in failed.score.reason
    assert (failed.reward, failed.finish_reason, right.reward) == (None, "error", 1.0)


def test_a_start_that_never_comes(template: Template) -> None:
    class Slow(Asking):
        def start(self, prompt: Prompt) -> Episode:
            time.sleep(1.0)
            return super().start(prompt)

    began = time.monotonic()
    with pytest.raises(GroupwiseError, match=r"its start raised TimeoutError: no answer after 0\."):
        played(Slow(wait_seconds=0.1), template, ["done"])
    assert time.monotonic() - began < 0.9


def test_a_play_may_be_given_its_result(template: Template) -> None:
    class Given(Asks):
        def __init__(self, prompt: Prompt) -> None:
            super().__init__(prompt)
            self.result = lambda: Score(0.5, "partial")  # type: ignore[method-assign]

    (group,), _ = played(Asking(Given), template, ["done"])
    assert group.rollouts[0].extras.result == Score(0.5, "partial")


class Leaves(Asks):
    """Goes on counting when its time is over."""

    def next(self, completion: str) -> Sequence[Message] | None:
        if completion == "done":
            return None
        ended = time.monotonic() + 0.6
        while time.monotonic() < ended:
            self.counts[f"place {len(self.counts)}"] += 1
        return None


def test_a_method_that_was_left_behind_may_go_on_counting(template: Template) -> None:
    environment = Asking(Leaves, wait_seconds=0.1)
    (group,), _ = played(environment, template, ["ask", "done"], group_size=2)
    failed, right = group.rollouts
    assert "turn 1: TimeoutError: no answer after 0.1 s" in failed.score.reason
    assert (failed.reward, right.reward) == (None, 1.0)
    counts = failed.extras.counts
    assert len(counts) > 1
    assert set(counts.values()) == {1}


def test_columns_that_cannot_be_copied_are_shared(template: Template) -> None:
    environment = Asking()
    lock = threading.Lock()
    shared = replace(prompt("r"), columns={"lock": lock, "seen": [1]})
    play = environment.open(shared, template)
    assert play.prompt == shared
    assert play.prompt.columns["lock"] is lock
    assert play.prompt.columns["seen"] is not shared.columns["seen"]


class Client(Asks):
    """Keeps something open on the loop that its turns run on, and closes it there."""

    loops: list[Any] = []  # noqa: RUF012 (what all plays noted)

    async def next(self, completion: str) -> Sequence[Message] | None:  # type: ignore[override]
        self.loops.append(asyncio.get_running_loop())
        return None

    async def result(self) -> Score | None:  # type: ignore[override]
        self.loops.append(asyncio.get_running_loop())
        return Score(0.5, "partial")

    async def close(self) -> None:  # type: ignore[override]
        self.loops.append(asyncio.get_running_loop())


def test_a_verdict_and_an_end_may_be_async(template: Template) -> None:
    Client.loops.clear()
    (group,), _ = played(Asking(Client), template, ["done"])
    assert group.rollouts[0].extras.result == Score(0.5, "partial")
    assert len(Client.loops) == 3
    assert len(set(Client.loops)) == 1


class Clients(Asking):
    """As an environment that a recipe names."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(Client)


def test_an_async_end_is_awaited_where_the_start_is_tried() -> None:
    Client.loops.clear()
    load_environment("test_turns:Clients").close()
    assert len(Client.loops) == 2


class Ends(Asks):
    """Ends with the verdict and the rewards of its class."""

    verdict: Any = None
    given: Any = []  # noqa: RUF012 (set by the tests)

    def next(self, completion: str) -> Sequence[Message] | None:
        if completion != "done":
            self.rewards = self.given
        return None

    def result(self) -> Any:
        return self.verdict if self.rewards is self.given else Score(0.25, "partial")


@pytest.mark.parametrize(
    ("verdict", "given", "words"),
    [
        ("x", [], "its result = 'x'; give a Score, a finite number, or None"),
        (float("nan"), [], "its result = nan"),
        (Score(1.0, "correct"), ["x"], "its rewards[0] = 'x'; give a finite number"),
        (Score(1.0, "correct"), [0.5, float("inf")], "its rewards[1] = inf"),
        (Score(1.0, "correct"), "none", "its rewards = 'none'; give a list, one number"),
    ],
)
def test_a_verdict_or_rewards_that_are_none_fail_that_rollout_by_name(
    template: Template, monkeypatch: pytest.MonkeyPatch, verdict: Any, given: Any, words: str
) -> None:
    monkeypatch.setattr(Ends, "verdict", verdict)
    monkeypatch.setattr(Ends, "given", given)
    verifier = load_verifier("play")
    (group,), _ = played(Asking(Ends, verifier), template, ["ask", "done"], group_size=2)
    failed, right = group.rollouts
    assert words in failed.score.reason
    assert (failed.reward, right.reward) == (None, 0.25)


@pytest.mark.parametrize("given", [[], [1.0], [torch.tensor(1.0)], [np.float32(1.0)]])
@pytest.mark.parametrize("verdict", [0.5, torch.tensor(0.5), np.float64(0.5)])
def test_a_verdict_may_be_a_number(
    template: Template, monkeypatch: pytest.MonkeyPatch, given: list[Any], verdict: Any
) -> None:
    monkeypatch.setattr(Ends, "verdict", verdict)
    monkeypatch.setattr(Ends, "given", given)
    (group,), _ = played(Asking(Ends, load_verifier("play")), template, ["ask"])
    score = group.rollouts[0].score
    assert (score.value, score.outcome) == (0.5, "partial")
    assert score.steps == ((StepReward(1.0, 3),) if given else None)


class Judged(Asks):
    """Has a result of its own."""

    def result(self) -> Score:
        return Score(1.0, "correct")


def test_ends_that_fill_every_slot_do_not_wait_for_one(template: Template) -> None:
    """An episode ends in a thread of the queue, and its result is asked for there."""
    environment = Asking(Judged, load_verifier("play"))
    environment.waits = CallQueue(at_once=1)
    ended = BackgroundCall(lambda: played(environment, template, ["done", "done"]))
    groups, _ = ended.result(20.0)
    assert all(
        score.value == 1.0
        for group in groups
        for rollout in group.rollouts
        for score in [rollout.score]
    )
