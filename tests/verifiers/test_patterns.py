"""regex: one match, no endless backtracking. Fault 50."""

import time

import pytest

from groupwise.errors import RecipeError
from groupwise.verifiers import load_verifier, verify


def regex(text, pattern, answer=None, **arguments):
    return verify("regex", completion=text, answer=answer, pattern=pattern, **arguments)


def test_a_match_is_all_without_a_group():
    assert regex("abc 12", r"\d+").value == 1.0
    assert regex("abc", r"\d+").outcome == "no_answer"
    assert regex("abc 12", r"\d+", full_match=True).value == 0.0
    assert regex(" 12\n", r"\d+", full_match=True).value == 1.0
    assert regex("ABC", "abc").value == 0.0
    assert regex("ABC", "abc", ignore_case=True).value == 1.0
    assert regex("a\nb", "^b", multiline=True).value == 1.0
    assert regex("<think>12</think>x", r"\d").value == 0.0


def test_the_group_answer_is_compared():
    pattern = r"Result: (?P<answer>\w+)"
    assert regex("Result: dog", pattern, "dog").outcome == "correct"
    assert regex("Result: cat", pattern, "dog").outcome == "incorrect"
    assert regex("dog", pattern, "dog").outcome == "no_answer"
    assert regex("Result: Dog", pattern, "dog", ignore_case=True).value == 1.0
    assert regex("Result: dog", pattern, None).outcome == "bad_answer"
    assert load_verifier("regex", pattern=pattern).needs_answer
    assert not load_verifier("regex", pattern="x").needs_answer


def test_backtracking_ends_at_the_limit():
    start = time.monotonic()
    score = regex("a" * 40 + "!", r"(a|a)+$", time_limit=0.2)
    assert (score.value, score.outcome) == (0.0, "timeout")
    assert time.monotonic() - start < 2


def test_a_bad_pattern_is_refused():
    with pytest.raises(RecipeError, match="not a regular expression"):
        load_verifier("regex", pattern="(")
