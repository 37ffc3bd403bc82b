"""regex and contains_all: one match, no hedging, no endless backtracking. Fault 50."""

import time

import pytest

from groupwise.errors import RecipeError
from groupwise.types import Prompt
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


def contains(text, answer="dog", options=None, **arguments):
    columns = {"options": options} if options else {}
    return verify("contains_all", completion=text, answer=answer, columns=columns, **arguments)


ANIMALS = ["cat", "dog", "bird", "guide dog"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("d", 0), ("cat dog bird", 0), ("dog", 1), ("It is a Dog.", 1), ("dogs", 0),
     ("hotdog", 0), ("cat", 0), ("dog or cat", 0), ("a guide dog", 0), (" ", 0),
     ("<think>dog</think>cat", 0), ("<think>cat</think>dog", 1), ("<think>dog", 0)],
)  # fmt: skip
def test_one_wanted_word(text, expected):
    assert contains(text, options=ANIMALS).value == expected


def test_several_items_and_limits():
    assert contains("Paris and Rome", ["rome", "paris"]).value == 1.0
    assert contains("Paris", ["rome", "paris"]).outcome == "incorrect"
    assert contains("a guide dog", "guide dog", ANIMALS).value == 1.0
    assert contains("x y", None, items=["x", "y"]).value == 1.0
    assert contains("dog " + "word " * 20, max_words=5).outcome == "limit"
    assert contains("3.5 kg", "3.5").value == 1.0
    assert contains("dog", None).outcome == "bad_answer"
    assert contains("dog", []).outcome == "bad_answer"
    prompt = Prompt("p", text="q", answer=["rome", "paris"])
    assert load_verifier("contains_all").check_answer(prompt) is None
