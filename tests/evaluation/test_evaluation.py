"""Evaluating scripted policies: means over prompts, splits, guards, the record. Faults 48, 49."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from groupwise.environments import Environment
from groupwise.errors import RecipeError, VerifierError
from groupwise.evaluation import (
    EvaluationSettings,
    answer_entropy,
    distinct_n,
    diversity,
    evaluate,
    evaluation_sets,
    summarise,
)
from groupwise.evaluation.measure import choose
from groupwise.evaluation.result import answer_vote
from groupwise.records import RunWriter, find_metric, open_run
from groupwise.samplers import SamplingSettings, ScriptedSampler
from groupwise.types import Prompt, Request, Score
from groupwise.verifiers import Case, Verifier
from helpers import make_template
from record_helpers import group, rollout

SAMPLING = SamplingSettings(group_size=8, max_tokens=6, temperature=0.7)


class Answer(Verifier):
    """Right where the text is the answer; `?` cannot be scored; `form` is 1 for one character."""

    name = "answer"

    def score_case(self, case: Case) -> Score:
        if case.text == "?":
            return Score(None, "infrastructure_error", "down")
        right = case.text == str(case.prompt.answer)
        parts = {"answer": float(right), "form": float(len(case.text) == 1)}
        return Score(float(right), "correct" if right else "incorrect", "", parts)


def prompts(prefix: str, count: int) -> list[Prompt]:
    return [Prompt(f"{prefix}{i}", text=f"{i}", answer=str(i % 10)) for i in range(count)]


def environment(**splits: int) -> Environment:
    return Environment("digits", Answer(), {name: prompts(name, n) for name, n in splits.items()})


def answers(template: Any, wrong: set[str]) -> Any:
    """A script that copies the prompt's digit, except for the wrong ones."""

    def say(request: Request, _place: int) -> str:
        asked = template.decode_completion(request.prompt_ids)
        return "A" if asked in wrong else asked

    return say


def run(env: Environment, script: Any = None, *, version: int = 0, **settings: Any):
    template = make_template()
    sampler = ScriptedSampler(template, script or answers(template, set()), version=version)
    result = evaluate(
        env,
        sampler,
        template,
        settings=EvaluationSettings(**settings),
        sampling=SAMPLING,
        seed=0,
        version=version,
    )
    return result, sampler.requests


@pytest.mark.parametrize("samples", [1, 4])
def test_each_prompt_is_evaluated_once_whatever_the_training_group_size(samples: int):
    """Fault 48: 5 prompts, n = 1 and n = 4 give 5 and 20 completions, and 5 greedy ones."""
    result, requests = run(environment(train=1, heldout=5), splits=["heldout"], samples=samples)
    assert sum(not r.greedy for r in requests) == 5 * samples
    assert sum(r.greedy for r in requests) == 5
    assert all(r.temperature == 0.7 for r in requests if not r.greedy)
    assert result.metrics["eval/prompts"] == 5
    assert len(result.rows) == 5 * (samples + 1)
    assert len({r.key for r in requests}) == 5 * (samples + 1)


def test_the_mean_is_over_prompts_of_the_prompts_means():
    found = summarise([group("p", [1.0, 1.0, 1.0, 0.0]), group("q", [0.0])])
    assert found.accuracy == pytest.approx(0.375)
    found = summarise([group("p", [1.0, None, None]), group("q", [0.0, 0.0, 1.0])])
    assert found.accuracy == pytest.approx((1 / 3 + 1 / 3) / 2)
    assert found.unscored == 2


def test_splits_heldout_and_gap():
    env = environment(train=4, heldout=2)
    result, _ = run(env, answers(make_template(), {"1", "3"}), samples=2)
    # train 0..3 with 1 and 3 wrong, heldout 0..1 with 1 wrong
    metrics = result.metrics
    assert metrics["eval/accuracy"] == pytest.approx(3 / 6)
    assert metrics["eval/greedy"] == pytest.approx(3 / 6)
    assert metrics["eval/heldout"] == 0.5
    assert metrics["eval/heldout_greedy"] == 0.5
    assert metrics["eval/split/train"] == 0.5
    assert metrics["eval/gap"] == 0.0
    assert metrics["eval/heldout_low"] < 0.5 < metrics["eval/heldout_high"]
    assert metrics["eval/verifier/form"] == 1.0
    assert metrics["eval/heldout_greedy_verifier/answer"] == 0.5
    assert metrics["eval/tokens"] == 6 * 3 * 2
    assert metrics["eval/truncated"] == 0.0


def test_every_metric_is_in_the_table_and_the_record_takes_it(tmp_path: Path):
    result, _ = run(
        environment(train=3, heldout=3, easy=2),
        samples=4,
        guards=["easy"],
        pass_at_k=[1, 4],
        maj_at_k=[4],
        version=7,
    )
    for name in result.metrics:
        find_metric(name)
    assert result.metrics["eval/pass@4"] == 1.0
    assert result.metrics["eval/maj@4"] == 1.0
    assert result.metrics["eval/guard/easy"] == 1.0
    with RunWriter.create(tmp_path / "run", "seed = 0\n", {}) as writer:
        writer.evaluation(7, result.metrics, result.rows)
    opened = open_run(tmp_path / "run")
    assert opened.evaluations().column("eval/accuracy").to_pylist() == [1.0]
    table = opened.evaluation_rollouts(7)
    assert table.num_rows == 8 * 5
    assert set(table.column("kind").to_pylist()) == {"evaluation", "greedy"}
    assert set(table.column("version").to_pylist()) == {7}


def test_guards_count_in_no_other_metric():
    env = environment(train=2, heldout=2, easy=3)
    sets = evaluation_sets(env, EvaluationSettings(guards=["easy"]), seed=0)
    assert set(sets.splits) == {"train", "heldout"}
    assert set(sets.guards) == {"easy"}
    assert sets.num_prompts == 7
    result, _ = run(env, answers(make_template(), {"2"}), samples=1, guards=["easy"])
    assert result.overall.num_prompts == 4
    assert result.metrics["eval/accuracy"] == 1.0
    assert result.metrics["eval/guard/easy"] == pytest.approx(2 / 3)


def test_evaluating_on_training_prompts_alone_is_never_silent():
    """Fault 49."""
    sets = evaluation_sets(environment(train=3), EvaluationSettings(), seed=0)
    assert sets.notes
    assert "also trained on" in sets.notes[0]
    assert not evaluation_sets(environment(train=3, heldout=1), EvaluationSettings(), seed=0).notes
    result, _ = run(environment(train=3), samples=1)
    assert result.heldout is None
    assert result.gap is None
    assert "eval/heldout" not in result.metrics


def test_an_unknown_split_is_refused_with_those_that_exist():
    env = environment(train=3, heldout=2)
    with pytest.raises(RecipeError, match=r"evaluation.splits holds 'test'.*it has train, heldout"):
        evaluation_sets(env, EvaluationSettings(splits=["test"]), seed=0)
    with pytest.raises(RecipeError, match=r"evaluation.guards holds 'easy'"):
        evaluation_sets(env, EvaluationSettings(guards=["easy"]), seed=0)


def test_the_choice_of_prompts_is_keyed_and_in_order():
    every = prompts("p", 30)
    chosen = choose(every, 10, seed=0)
    assert [p.id for p in chosen] == [p.id for p in choose(list(reversed(every)), 10, seed=0)][::-1]
    assert chosen == [p for p in every if p in chosen]
    assert choose(every, 10, seed=1) != chosen
    assert {p.id for p in choose(every[1:], 10, seed=0)} >= {p.id for p in chosen} - {"p0"}
    assert choose(every, None, seed=0) == every
    assert choose(every, 40, seed=0) == every


def test_noise_is_that_of_the_version():
    env = environment(train=2, heldout=2)
    keys = [{r.key for r in run(env, samples=2, version=v)[1]} for v in (0, 0, 1)]
    assert keys[0] == keys[1]
    assert not keys[0] & keys[2]


def test_completions_without_a_score_did_not_pass_and_are_counted():
    env = environment(train=1, heldout=3)
    replies = ["0", "?", "?", "1", "A", "1", "?", "?", "?"]  # two samples and one greedy a prompt
    result, _ = run(env, replies, samples=2, splits=["heldout"])
    assert result.metrics["eval/accuracy"] == pytest.approx((0.5 + 0.5 + 0.0) / 3)
    assert result.metrics["eval/greedy"] == pytest.approx(1 / 3)
    assert result.metrics["eval/unscored"] == 5


@pytest.mark.parametrize(
    ("first", "second", "k", "passed", "accuracy"),
    [
        ([1.0, 0.0, 0.0, 0.0], [0.0, 0.0, None, None], 4, 0.5, 0.125),
        ([1.0, 0.0, 0.0, 0.0], [0.0, 0.0, None, None], 2, 0.25, 0.125),
        ([1.0, None, None, None], [1.0, 1.0, 1.0, 1.0], 1, 0.625, 0.625),
        ([None, None, None, None], [1.0, 1.0, 0.0, 0.0], 4, 0.5, 0.25),
        ([1.0, None], [0.0, None], 2, 0.5, 0.25),
        ([None, 1.0, None], [None, None, 0.0], 3, 0.5, 1 / 6),
    ],
)
def test_pass_at_k_and_accuracy_have_unscored_completions_in_n(first, second, k, passed, accuracy):
    groups = [group("p", first), group("q", second)]
    found = summarise(groups, pass_ks=[1, k], maj_ks=[len(first)])
    assert found.pass_at_k[k] == pytest.approx(passed)
    assert found.accuracy == found.pass_at_k[1] == pytest.approx(accuracy)
    assert found.unscored == (first + second).count(None)
    assert found.accuracy_interval is not None
    low, high = found.accuracy_interval
    assert low <= accuracy <= high
    assert found.maj_at_k[len(first)] is not None


def test_unscored_completions_have_no_vote_and_stay_in_n():
    groups = [group("p", [1.0, None, None, 0.0], texts=["7", "8", "8", "9"])]
    found = summarise(groups, maj_ks=[1, 2, 4])
    assert found.maj_at_k[4] == 0.5  # 7 against 9; what was not scored does not vote
    assert found.maj_at_k[1] == 0.25
    # Of 6 pairs: {7, one unscored} twice wins, {7, 9} is a tie, the others lose.
    assert found.maj_at_k[2] == pytest.approx((2 + 0.5) / 6)


def test_a_set_of_which_nothing_was_scored_has_no_accuracy():
    found = summarise([group("p", [None, None])], pass_ks=[1], maj_ks=[1])
    assert found.accuracy is None
    assert found.pass_at_k == {1: None}
    assert found.maj_at_k == {1: None}
    assert found.unscored == 2


@pytest.mark.parametrize("values", [[9.0, 1.0, 0.0], [10.0, 10.0, 10.0], [2.0, None, 0.0]])
def test_rewards_on_an_undeclared_scale_have_no_accuracy(values: list[float | None]):
    """A share of "at least 1" says nothing about rewards of 0 to 10."""
    groups = [group("p", values), group("q", [1.0, 0.0])]
    found = summarise(groups, pass_ks=[1], maj_ks=[1])
    assert (found.accuracy, found.accuracy_interval) == (None, None)
    assert (found.pass_at_k, found.maj_at_k) == ({1: None}, {1: None})
    assert found.unscored == values.count(None)


def test_an_evaluation_without_any_score_stops():
    with pytest.raises(VerifierError, match="version 0: none of its 6 completions could be scored"):
        run(environment(train=1, heldout=3), ["?"], samples=1, splits=["heldout"])


def test_votes():
    assert answer_vote(rollout("p", 1.0, text=r"so \boxed{7}")) == "correct"
    assert answer_vote(rollout("p", 1.0, text="7")) == "correct"
    same = {
        answer_vote(rollout("p", 0.0, text=text))
        for text in (r"\boxed{8}", "<answer>8</answer>", "hm\n8", "<think>9</think>8", "**8**")
    }
    assert same == {"other: 8"}
    assert answer_vote(rollout("p", 0.0, text="", outcome="no_answer")) is None
    assert answer_vote(rollout("p", 0.0, text="<think>8")) is None
    assert answer_vote(rollout("p", 0.0, text="  ")) is None


def test_majority_over_prompts():
    groups = [
        group("p", [1.0, 1.0, 0.0], texts=["7", "7.", "8"]),
        group("q", [1.0, 0.0, 0.0], texts=["7", "8", "8"]),
    ]
    found = summarise(groups, maj_ks=[1, 3], pass_ks=[1, 3, 5])
    assert found.maj_at_k[3] == 0.5
    assert found.maj_at_k[1] == pytest.approx(0.5)
    assert found.pass_at_k == {1: pytest.approx(0.5), 3: 1.0, 5: None}


def test_estimates_load_without_torch():
    code = (
        "import sys; from groupwise.evaluation import pass_at_k\n"
        "print(pass_at_k(num_samples=2, num_correct=1, k=1), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "PATH": "/usr/bin:/bin"},
    )
    assert done.stdout.split() == ["0.5", "False"]


def test_diversity_by_hand() -> None:
    assert distinct_n([["a", "b", "c"], ["a", "b", "d"]], 2) == 0.75
    assert distinct_n([["a"]], 2) is None
    assert answer_entropy(["x", "y"], [0.75, 0.25]) == pytest.approx(0.562335, abs=1e-6)
    assert answer_entropy([None]) is None
    alike = group("p", [1.0, 1.0], tokens=[2, 2])
    apart = group("q", [0.0, 0.0, 0.0, 1.0], tokens=[1, 2, 3, 2], texts=["8", "9", "9", "7"])
    found = diversity([alike, apart])
    assert found["solved"] == 1.0
    assert found["distinct_1"] == pytest.approx((2 / 4 + 3 / 8) / 2)  # ids 10, 11, ... in each
    assert found["distinct_2"] == pytest.approx((1 / 2 + 2 / 4) / 2)
    spread = -(0.25 * math.log(0.25) * 2 + 0.5 * math.log(0.5))
    assert found["answer_entropy"] == pytest.approx((0.0 + spread) / 2)
    assert diversity([apart, group("r", [0.0, 0.0])])["solved"] == 0.5
    assert diversity([group("s", [2.0, 0.0])])["solved"] is None, "no verdict"
    assert diversity([]) == {}
    metrics = {f"groups/{name}" for name in found}
    assert all(find_metric(name) for name in metrics)
