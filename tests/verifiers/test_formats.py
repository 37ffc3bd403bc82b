"""Format alone, not farmable. Faults 18 and 51."""

import pytest

from groupwise.verifiers import verify


def value(text, kind, answer="7", **arguments):
    return verify("format", completion=text, answer=answer, kind=kind, **arguments).value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>a</think><answer>7</answer>", 1),
        ("<think>a</think>\n<answer>7</answer>\n", 1),
        ("a</think><answer>7</answer>", 1),
        ("<think>a</think><think>b</think><answer>7</answer>", 0),
        ("hello <think>a</think><answer>7</answer>", 0),
        ("<think>a</think>so<answer>7</answer>", 0),
        ("<think>a</think><answer>7</answer> bye", 0),
        ("<think>a<think>b</think></think><answer>7</answer>", 0),
        ("<think>a</think><answer><answer>7</answer></answer>", 0),
        ("<think>a <answer>7</answer></think><answer>7</answer>", 0),
        ("<think>a</think><answer></answer>", 0),
        ("<think>a</think><answer>no idea</answer>", 0),
        ("<think>a</think><answer>7", 0),
        ("<answer>7</answer>", 0),
        ("", 0),
    ],
)
def test_think_answer(text, expected):
    assert value(text, "think_answer") == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("a</think>b", 1), ("<think>a</think>b", 1), ("a b", 0)]
)
def test_an_opening_tag_in_the_prompt_counts(text, expected):
    assert value(text, "think") == expected


def test_think_without_an_answer_earns_nothing():
    assert value("<think>a</think>  ", "think") == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"so \boxed{8}.", 1),
        (r"\boxed{8} or \boxed{7}", 0),
        (r"\boxed{}", 0),
        (r"\boxed{8", 0),
        (r"\boxed{eight}", 0),
        ("8", 0),
        (r"<think>\boxed{7}</think>8", 0),
        (r"<think>\boxed{7}</think>\boxed{8}", 1),
        (r"<think>\boxed{7}", 0),
    ],
)
def test_boxed_needs_one_readable_box_right_or_wrong(text, expected):
    assert value(text, "boxed") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("so <answer>8</answer>", 1),
        ("<answer>8</answer>\n", 1),
        ("<answer>8</answer> and more", 0),
        ("<answer>8</answer><answer>7</answer>", 0),
        ("</answer>8<answer>", 0),
        ("<answer>x</answer>", 0),
    ],
)
def test_tagged_needs_one_readable_pair_at_the_end(text, expected):
    assert value(text, "tagged") == expected


def test_what_must_stand_inside():
    assert value(r"\boxed{dog}", "boxed", answer="cat") == 1
    assert value(r"\boxed{dog}", "boxed", answer="7", content="text") == 1
    assert value(r"\boxed{dog}", "boxed", answer="cat", content="number") == 0
    assert value(r"\boxed{dog}", "boxed", answer=None) == 1


def test_outcomes():
    assert verify("format", completion=r"\boxed{8}", answer="7").outcome == "correct"
    score = verify("format", completion="8", answer="7")
    assert (score.outcome, score.reason) == ("no_answer", "not the boxed form, once and alone")
