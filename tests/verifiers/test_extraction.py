"""Where the answer stands. Faults 14 and 18."""

import time

import pytest

from groupwise.verifiers.answers.extraction import (
    after_reasoning,
    boxes,
    last_box,
    last_tagged,
    repaired,
    tagged_blocks,
)


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{5} no, \boxed{7}", "7"),
        (r"\boxed{\text{E}}", r"\text{E}"),
        (r"\boxed{\sqrt{\frac{a}{b}}}", r"\sqrt{\frac{a}{b}}"),
        (r"\boxed{1", None),
        (r"\boxed{}", None),
        (r"\boxed{ }", None),
        (r"\boxed{5} then \boxed{}", None),
        (r"\boxed{5} then \boxed{1", "5"),
        (r"\boxed{1 and \boxed{2}", "2"),
        (r"\boxed{\boxed{\{1,2\}}}", r"\{1,2\}"),
        (r"\boxed{x = \boxed{3}}", r"x = \boxed{3}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{a \} b}", r"a \} b"),
        (r"{ \boxed{5}", "5"),
        (r"} } \boxed{5} }", "5"),
        (r"\fbox{3}", "3"),
        (r"\boxed {3}", "3"),
        (r"a\\\boxed{3}", "3"),
        ("no box", None),
        ("boxed{5}", None),
        ("", None),
    ],
)
def test_last_box(text, content):
    assert last_box(text) == content


def test_boxes_lists_outermost_ones_in_order():
    assert boxes(r"\boxed{1} \boxed{\boxed{2}} \boxed{3") == ["1", r"\boxed{2}"]


def test_extraction_is_linear():
    start = time.monotonic()
    assert last_box("\\boxed{" * 30_000) is None
    assert len(boxes("\\boxed{1}" * 20_000)) == 20_000
    assert last_box("\\boxed{" * 20_000 + "}" * 20_000) is not None
    assert tagged_blocks("<a>" * 30_000, "a") == []
    assert time.monotonic() - start < 3


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("<think>a</think>b", "b"),
        ("a</think>b", "b"),
        ("a b", "a b"),
        ("<think>a b", None),
        ("<think>a</think>b<think>c", None),
        ("<think>a</think>b<think>c</think>d", "d"),
        ("<think>a</think>", ""),
        ("<thinking>a", "<thinking>a"),
    ],
)
def test_after_reasoning(text, rest):
    assert after_reasoning(text) == rest


def test_after_reasoning_with_another_tag():
    assert after_reasoning("<reason>5</reason> 7", "reason") == " 7"


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("<answer>7</answer>", "7"),
        ("<answer> 7 \n</answer> ", "7"),
        ("<answer>5</answer><answer>7</answer>", "7"),
        ("<answer>5<answer>7</answer>", "7"),
        ("<answer></answer>", None),
        ("<answer>7", None),
        ("7</answer>", None),
        ("", None),
    ],
)
def test_last_tagged(text, content):
    assert last_tagged(text, "answer") == content


def test_escapes_that_a_string_literal_ate_are_restored():
    assert repaired("\boxed{\frac12}") == r"\boxed{\frac12}"
    assert repaired("1\times 2 \text{a}") == r"1\times 2 \text{a}"
    assert repaired("a\tb") == "a\tb"
