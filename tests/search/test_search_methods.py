"""Choices among completions: golden values, and the exact expectation by enumeration."""

import itertools
import math

import pytest

from groupwise.errors import RecipeError
from groupwise.search import (
    SearchSettings,
    above_mean,
    best_of_n,
    best_of_n_kl,
    combine_steps,
    read_verbalized,
    vote,
)
from groupwise.search.result import Candidate, accuracy_at, choose
from groupwise.search.scoring import read_answer
from groupwise.verifiers import load_verifier
from groupwise.verifiers.core.names import validated

STEPS = {"a": [0.9, 0.8, 0.4], "b": [0.7, 0.7, 0.7], "c": [0.95, 0.2, 0.9]}


def test_golden_values_of_step_scores():
    scores = {
        how: {name: combine_steps(steps, how) for name, steps in STEPS.items()}
        for how in ("min", "product", "last", "mean")
    }
    best = {how: max(found, key=found.__getitem__) for how, found in scores.items()}
    assert (best["min"], best["product"], best["last"]) == ("b", "b", "c")
    assert scores["mean"]["c"] == pytest.approx(2.05 / 3)
    assert scores["min"]["b"] == 0.7
    assert scores["product"]["b"] == pytest.approx(0.343)
    assert combine_steps([], "product") == 0.0


def test_golden_values_of_best_of_n_and_the_weighted_vote():
    answers, scores = ["7", "9", "7", "5"], [0.3, 0.85, 0.6, 0.1]
    assert [answers[place] for place in best_of_n(scores)] == ["9"]
    assert vote(answers, scores) == ["7"]
    assert vote(answers) == ["7"]
    assert best_of_n_kl(4) == pytest.approx(0.636294, abs=1e-6)
    assert best_of_n_kl(1) == 0.0


def test_nothing_is_chosen_from_nothing():
    assert best_of_n([None, None]) == []
    assert vote([None, "7"], [0.5, None]) == []
    assert above_mean([None]) == []
    group = [Candidate("x", None, False)]
    for method in ("best_of_n", "majority", "weighted"):
        settings = SearchSettings(method=method, samples=1)
        assert accuracy_at(group, settings, 1) == 0.0
        assert choose(group, settings) is None


def test_negative_weights_still_choose():
    assert vote(["a", "b", "b"], [-1.0, -2.0, -3.0]) == ["a"]


# A policy with five completions: answer, right, score, probability.
OUTCOMES = [
    (Candidate("p", "7", True, 0.4), 0.3),
    (Candidate("q", "7", True, 0.9), 0.1),
    (Candidate("r", "8", False, 0.6), 0.35),
    (Candidate("s", "9", False, 0.9), 0.15),
    (Candidate("t", None, False, None), 0.1),
]


def expectation(value, count):
    """The mean of `value` over every sequence of `count` completions, weighted."""
    return math.fsum(
        math.prod(p for _, p in each) * value([c for c, _ in each])
        for each in itertools.product(OUTCOMES, repeat=count)
    )


def chosen_by_hand(group, method, keep=False):
    """The share of right answers among the best ones, written another way."""
    if keep:
        mean = sum(c.score for c in group if c.score is not None) / max(
            1, sum(c.score is not None for c in group)
        )
        above = [c for c in group if c.score is not None and c.score > mean]
        group = above or [c for c in group if c.score is not None]
    if method in ("best_of_n", "process"):
        ranked = sorted((c for c in group if c.score is not None), key=lambda c: -c.score)
        best = [c for c in ranked if c.score == ranked[0].score]
        return sum(c.correct for c in best) / len(best) if best else 0.0
    sums = {}
    for c in group:
        weight = c.score if method == "weighted" else 1
        if c.answer is not None and weight is not None:
            sums[c.answer] = round(sums.get(c.answer, 0) + weight, 9)
    best = [a for a, total in sums.items() if total == max(sums.values())]
    return sum(a == "7" for a in best) / len(best) if best else 0.0


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize(
    ("method", "keep"),
    [
        ("best_of_n", False),
        ("process", False),
        ("majority", False),
        ("weighted", False),
        ("majority", True),
        ("weighted", True),
    ],
)
def test_accuracy_of_k_from_four_is_the_expectation_of_k(method, keep, k):
    """From 4 completions, the estimate for k has exactly the expectation of k fresh ones."""
    settings = SearchSettings(method=method, samples=4, above_mean=keep)
    estimate = expectation(lambda group: accuracy_at(group, settings, k), 4)
    exact = expectation(lambda group: chosen_by_hand(group, method, keep), k)
    assert estimate == pytest.approx(exact, abs=1e-12)
    assert exact != pytest.approx(0.4, abs=1e-3) or k == 1


def test_the_chosen_text_is_of_the_chosen_answer():
    group = [c for c, _ in OUTCOMES]
    texts = {
        method: choose(group, SearchSettings(method=method, samples=5))
        for method in ("best_of_n", "majority", "weighted")
    }
    assert texts == {"best_of_n": "q", "majority": "p", "weighted": "p"}


def test_answers_are_read_as_the_verifier_reads_them_without_the_gold_answer():
    tagged, number = load_verifier("tagged"), load_verifier("number")
    assert read_answer(tagged, "<think>3</think><answer>20</answer>") == "20"
    assert read_answer(tagged, "it is 20") is None
    assert read_answer(number, "it is 20.0") == read_answer(number, "\\boxed{20}") == "20"
    assert read_answer(number, "<think>20") is None
    assert read_answer(load_verifier("exact"), "so\n<answer>Paris</answer>") == "paris"


def response(text, probability):
    return f"<response><text>{text}</text><probability>{probability}</probability></response>"


def test_stated_probabilities_are_renormalised():
    stated = zip("abcde", (0.5, 0.3, 0.15, 0.1, 0.05))
    found = read_verbalized("".join(response(*each) for each in stated))
    assert found.probabilities == pytest.approx([p / 1.1 for p in (0.5, 0.3, 0.15, 0.1, 0.05)])
    assert (found.uniform, found.dropped) == (False, 0)


def test_unusable_probabilities_are_dropped_and_all_unusable_ones_are_uniform():
    text = response("a", "0.2") + response("b", "nan") + response("c", "-0.5") + response("d", "5%")
    found = read_verbalized(text + "<response><text>e</text></response>")
    assert found.texts == ("a", "d")
    assert found.probabilities == pytest.approx([0.8, 0.2])
    assert found.dropped == 3
    found = read_verbalized(response("a", "nan") + response("b", "inf"))
    assert (found.texts, found.probabilities, found.uniform) == (("a", "b"), (0.5, 0.5), True)
    assert read_verbalized(response("a", 0) + response("b", 0)).uniform
    assert read_verbalized("no tags: 0.3") is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"method": "majorty"}, "did you mean 'majority'"),
        ({"method": "majority", "samples": 0}, "samples = 0: must be at least 1"),
        ({"method": "beam", "samples": 2, "width": 3}, "width = 3 is above samples = 2"),
        ({"method": "budget", "thinking_budget": 128}, "thinking_budget = 128 leaves nothing"),
        ({"method": "best_of_n", "above_mean": True}, "above_mean is for majority and weighted"),
        ({"method": "process", "combine": "max"}, "combine = 'max': expected 'min'"),
    ],
)
def test_bad_settings_have_one_clear_message(fields, words):
    with pytest.raises(RecipeError, match=words):
        validated(SearchSettings, fields, "search")
