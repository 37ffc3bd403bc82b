"""Numbers read exactly, and pieces of something else not read. Faults 15 and 16."""

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.verifiers import verify
from groupwise.verifiers.answers.gold import unboxed
from groupwise.verifiers.answers.judging import judge
from groupwise.verifiers.answers.numbers import last_number, parse_number
from groupwise.verifiers.core.scores import BadAnswer


def same_answer(gold, given, **arguments):
    return judge(gold, given, **arguments).kind == "equal"


FORMS = [
    ("8,000", 8000),
    ("8{,}000", 8000),
    (r"8\,000", 8000),
    ("1,234,567.5", Fraction(2469135, 2)),
    ("**73**", 73),
    ("-3", -3),
    ("−3", -3),
    (".5", Fraction(1, 2)),
    ("0007", 7),
    (r"2\frac{1}{2}", Fraction(5, 2)),
    ("2 1/2", Fraction(5, 2)),
    ("2½", Fraction(5, 2)),
    ("½", Fraction(1, 2)),
    (r"\frac{2}{3}", Fraction(2, 3)),
    (r"\dfrac23", Fraction(2, 3)),
    ("\frac12", Fraction(1, 2)),
    ("frac{1}{2}", Fraction(1, 2)),
    (r"-\frac12", Fraction(-1, 2)),
    (r"\frac{-1}{2}", Fraction(-1, 2)),
    ("-1/2", Fraction(-1, 2)),
    ("1.2e3", 1200),
    ("1.2E-2", Fraction(12, 1000)),
    (r"1.23\times10^{4}", 12300),
    ("1.23×10^4", 12300),
    ("10^{100}", 10**100),
    ("2^{-3}", Fraction(1, 8)),
    ("5 million", 5_000_000),
    ("$12", 12),
    (r"\$8,000", 8000),
    ("€3.50", Fraction(7, 2)),
    (r"$\frac12$", Fraction(1, 2)),
    (r"10\text{ cm}", 10),
    (r"10\text{ cm}^2", 10),
    ("10 cm²", 10),
    ("5km", 5),
    ("100°", 100),
    (r"30^\circ", 30),
    (r"30^{\circ}", 30),
    (r"28\%", 28),
    ("28 percent", 28),
    ("42.", 42),
    ("{42}", 42),
    ("４２", 42),
]


@pytest.mark.parametrize(("text", "value"), FORMS)
def test_a_number_alone(text, value):
    quantity = parse_number(text)
    assert quantity is not None
    assert quantity.value == value


@pytest.mark.parametrize(("text", "value"), FORMS)
def test_the_same_forms_at_the_end_of_a_text(text, value):
    quantity = last_number(f"First 3 and 4, so the answer is {text}")
    assert quantity is not None
    assert quantity.value == value


PIECES = [
    r"4\sqrt{2}", "4√2", "4*sqrt(2)", "4 * sqrt(2)", r"\sqrt{2}", r"\sqrt 2", "sqrt(2)", "(0,1.5)",
    "[0, 1]", r"\{1, 2\}", "12:00", "1-1/e", "1+1/e", "±2021", r"\pm 2021", "x_2", "x^{2}", "x^2",
    r"\frac{x}{2}", r"(3,\pi/2)", "4x", "4 x", "2e", "3pi", r"3\pi", "3 pi", "5-3", "5 - 3",
    "3 + 4",
    "3 * 4", "2 x 3", "3,14", "1,2,3", "1.2.3", "1/2/2023", "2023-05-01", "COVID-19",
    "9^{9^{9^{9}}}", "5/0", "1e99999", "2^{100000}", "(x+1)2",
]  # fmt: skip


@pytest.mark.parametrize("text", PIECES)
def test_a_piece_of_something_is_not_a_number(text):
    assert last_number(f"It is {text}") is None
    assert parse_number(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3 + 4 = 7.", 7),
        ("3+4=7", 7),
        ("x=-5", -5),
        ("= - 7", -7),
        ("is -7", -7),
        ("so\n- 7", 7),
        ("so\n-7", -7),
        ("so\n* 7", 7),
        ("The answer - 7.", 7),
        ("Answer:7", 7),
        ("#### 72", 72),
        ("$x = -2\\frac12$", Fraction(-5, 2)),
        ("It is 5 I think", 5),
        ("costs $5.", 5),
        ("7 (seven)", 7),
        ("the 3rd", 3),
        ("42!", 42),
        ("...7", 7),
        ("*7*", 7),
        ("<b>7</b>", 7),
        (r"\[ 7 \]", 7),
        (r"$\approx 5$", 5),
        ("7 a day", 7),
        ("at 5 p.m. today", 5),
        ("a 24-hour day", 24),
        ("$8 + $5 = $13", 13),
    ],
)
def test_the_last_number_in_prose(text, value):
    quantity = last_number(text)
    assert quantity is not None
    assert quantity.value == value


@pytest.mark.parametrize("value", [None, True, "", "  ", "seven", float("nan"), float("inf"), "()"])
def test_no_number_at_all(value):
    assert parse_number(value) is None


def test_python_numbers_are_read_as_they_print():
    assert parse_number(0.1).value == Fraction(1, 10)
    assert parse_number(-7).value == -7
    assert parse_number(1e-7).value == Fraction(1, 10**7)


EQUAL = [
    ("8000", "8,000"), ("8000", "8{,}000"), (r"28\%", "28 percent"), ("73", "**73**"),
    ("2.5", r"2\frac{1}{2}"), ("2/3", r"\frac{2}{3}"), ("10", r"10\text{ cm}"), ("10 cm", "10"),
    ("10 cm", "10 centimeters"), ("12", "012"), ("5", "x=5"), ("x=5", "5"), ("x = 5", "x=5"),
    (r"\text{Tuesday}", "tuesday"), (r"30^\circ", "30"), ("(1,2)", "(1, 2)"), (r"\text{E}", "E"),
    ("$1000$", "1,000"), (r"\frac12", "0.5"), (r"$50\%$", "50"), ("12 dollars", r"\$12"),
    ("10^{100}", "10^{100}"), (r"\frac{x}{2}", r"\dfrac{x}{2}"), (r"3\pi", r"3 \pi"),
    ("dog", "dog"),
]  # fmt: skip
DIFFERENT = [
    ("-3", "3"), ("2^{-99}", "2^{-98}"), ("(0,1)", "(0,1.5)"), ("1-1/e", "1+1/e"),
    ("4", "4*sqrt(2)"), ("4", r"4\sqrt{2}"), (r"\pm2021", "2021"), ("12:00", "1:00"),
    ("10 cm", "10 m"), ("0.5", r"50\%"), ("5", "5 or 6"), ("3", "3 pi"), ("5", ""), ("", ""),
    ("1/3", "0.333333"), (r"\text{east}", r"\text{seat}"), ("B", "b"), ("$(1,000)$", "1000"),
    ("(1,2)", "[1,2]"), ("(1,2)", "(2,1)"), ("dog", "cat dog bird"), ("dog", "d"), ("5", "5e"),
    ("12", "1 2"), ("5", "5 million"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_equal_answers(gold, answer):
    assert same_answer(gold, answer)


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
def test_different_answers(gold, answer):
    assert not same_answer(gold, answer)


def test_tolerance_is_explicit_and_read_as_a_decimal():
    assert same_answer("1", "1.3", tolerance=0.3)
    assert not same_answer("1", "1.3", tolerance=0.29)
    assert same_answer("200", "202", relative_tolerance=0.01)
    assert not same_answer("2^{-99}", "2^{-98}", relative_tolerance=0.5)


def test_a_gold_answer_out_of_its_box():
    assert unboxed(r"\boxed{42}") == unboxed("\boxed{42}") == unboxed(" 42 ") == "42"
    with pytest.raises(BadAnswer):
        unboxed(r"\boxed{}")


@given(st.integers(), st.integers(min_value=1, max_value=10**6))
def test_integers_and_fractions_round_trip(top, bottom):
    assert parse_number(str(top)).value == top
    assert parse_number(f"{top:,}").value == top
    assert last_number(f"the answer is {top}.").value == top
    assert parse_number(f"{top}/{bottom}").value == Fraction(top, bottom)
    sign = "-" if top < 0 else ""
    assert parse_number(rf"{sign}\frac{{{abs(top)}}}{{{bottom}}}").value == Fraction(top, bottom)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=80))
def test_any_text_is_read_without_an_error(text):
    parse_number(text)
    last_number(text)
    same_answer(text, text)
    assert not same_answer("7", "8" + text.replace("=", "")) or text


@given(st.text(alphabet="0123456789.,-+*/^{}()\\ frac%$e", max_size=40))
def test_any_formula_is_read_without_an_error(text):
    parse_number(text)
    last_number(text)


@pytest.mark.parametrize(
    "text",
    ["9" * 100_000, "1 " * 50_000, " " * 200_000 + "7", "\\text{" * 20_000, "{" * 100_000,
     "1," * 50_000, "\\frac{" * 20_000, "9^" * 50_000, "-" * 100_000, "$" * 100_000],
)  # fmt: skip
def test_hostile_texts_take_linear_time(text):
    start = time.monotonic()
    last_number(text)
    parse_number(text)
    same_answer("7", text)
    assert time.monotonic() - start < 3


@pytest.mark.parametrize("text", ["5 or 6 or 7", "5, 6", "either 5, or 7", r"\log_3 9"])
def test_offered_alternatives_and_arguments_are_no_answer(text):
    assert last_number(text) is None


def test_scientific_notation_at_a_sentence_s_end():
    quantity = last_number("The answer is 7.386e3.")
    assert quantity is not None
    assert quantity.value == 7386


def test_another_measure_is_another_quantity():
    """`10 m` is not `10 cm`; an ordinary word behind the number is no measure."""
    for text, same in (("10 m", False), ("10 centimeters", True), ("10 in all", True)):
        assert (verify("number", completion=text, answer="10 cm").value == 1) is same


@pytest.mark.parametrize(
    ("name", "gold", "text", "outcome"),
    [
        ("boxed", "5", r"\boxed{5!}", "incorrect"),
        ("boxed", "5", r"\boxed{5!.}", "incorrect"),
        ("math", "5", r"\boxed{5!}", "incorrect"),
        ("math", "120", r"\boxed{5!}", "correct"),
        ("number", "5", "The answer is 5!", "correct"),
        ("math", "5", "The answer is 5!", "correct"),
        ("number", "120", "It is 5! = 120", "correct"),
    ],
)
def test_a_factorial_in_a_box_is_not_the_end_of_a_sentence(name, gold, text, outcome):
    assert verify(name, completion=text, answer=gold).outcome == outcome
