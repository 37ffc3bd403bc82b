"""Step rewards: occurrences of a target, and how a composition passes them."""

import doctest

import pytest

from groupwise.types import Prompt, Score, StepReward
from groupwise.verifiers import Case, compose, load_verifier, score_cases
from groupwise.verifiers.process import target


def judge(name, text, answer=None, **arguments):
    case = Case(Prompt("p", text="q", answer=answer), text)
    return score_cases(load_verifier(name, **arguments), [case])[0]


def laid_out(score):
    return [(step.value, step.end) for step in score.steps]


def test_examples():
    assert doctest.testmod(target).failed == 0


def test_target():
    assert laid_out(judge("target", "7a77", target="7")) == [(1.0, 1), (0.0, 2), (1.0, 3), (1.0, 4)]
    assert judge("target", "7a77", target="7").value == 0.75
    assert judge("target", "777", target="7").outcome == "correct"
    assert laid_out(judge("target", "abab", target="ab")) == [(1.0, 2), (1.0, 4)]
    assert judge("target", "aaa", target="aa").value == pytest.approx(2 / 3)
    capped = judge("target", "7777", target="7", kind="count", cap=2)
    assert (capped.value, laid_out(capped)) == (1.0, [(1.0, 1), (1.0, 2), (0.0, 3), (0.0, 4)])
    assert judge("target", "x7", target="7", kind="count", cap=4).value == 0.25
    assert judge("target", "", target="7") == Score(
        0.0, "no_answer", "nothing was written", steps=()
    )


def test_a_composition_weighs_adds_and_gates_steps():
    verifier = compose(
        [
            {"name": "target", "weight": 2.0, "arguments": {"target": "7"}},
            {"name": "target", "label": "eight", "arguments": {"target": "8"}},
            {"name": "target", "label": "silent", "weight": 0.0, "arguments": {"target": "9"}},
            {
                "name": "target",
                "label": "gated",
                "gate": "target:correct",
                "arguments": {"target": "8"},
            },
        ]
    )
    assert verifier.gives_steps
    score = verifier.score([Case(Prompt("p", text="q"), "78")])[0]
    assert score.steps == (StepReward(2.0, 1), StepReward(1.0, 2))
    plain = compose([{"name": "number"}])
    assert not plain.gives_steps
    assert plain.score([Case(Prompt("p", text="q", answer="7"), "7")])[0].steps is None


def test_steps_that_do_not_follow_each_other_are_refused():
    with pytest.raises(ValueError, match=r"one after the other, got ends \[2, 2\]"):
        Score(1.0, "correct", steps=(StepReward(1.0, 2), StepReward(0.0, 2)))
    with pytest.raises(ValueError, match="end = 0"):
        StepReward(1.0, 0)
    with pytest.raises(ValueError, match="finite"):
        StepReward(float("nan"), 1)
