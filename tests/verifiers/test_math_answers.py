"""`math` on answers that were judged wrongly once, and on others of each kind."""

import time

import pytest

from groupwise.types import Prompt
from groupwise.verifiers import load_verifier, verify

WRONG = {
    "units and words between values": [
        (r"2 \text{ hours } 30 \text{ minutes}", r"2 \text{ hours } 45 \text{ minutes}"),
        (r"2 \text{ hours } 30 \text{ minutes}", r"3 \text{ hours } 30 \text{ minutes}"),
        (r"2 \text{ hours } 30 \text{ minutes}", r"2 \text{ hours } 30 \text{ seconds}"),
        (r"2 \text{ hours } 30 \text{ minutes}", r"2 \text{ hours } 30"),
        (r"2 \text{ hours } 30 \text{ minutes}", "2"), (r"5 \text{ or more}", "5"),
        (r"5 \text{ apples}", r"5 \text{ pears}"), (r"3 \text{ times}", r"3 \text{ miles}"),
        (r"30 \mathrm{mph}, 40 \mathrm{mph}", r"30 \mathrm{mph}, 45 \mathrm{mph}"),
        (r"30 \mathrm{mph}, 40 \mathrm{mph}", r"30 \mathrm{mph}, 40 \mathrm{kph}"),
        (r"5 \text{ ft } 3 \text{ in}", r"5 \text{ ft } 4 \text{ in}"),
        (r"3 \text{ cm by } 4 \text{ cm}", r"3 \text{ cm by } 5 \text{ cm}"),
        (r"10\text{ m/s}", r"10\text{ m/s}^2"),
    ],
    "a letter taken for a unit": [
        ("2n", "2"), ("5t", "5m"), ("5t", "5"), (r"\cos 2t", r"\cos 2"), ("3x", "3"), ("4k", "4"),
        ("7s", "7h"), (r"2\pi r", r"2\pi"), (r"10g", r"10"), ("6l", "6m"),
    ],
    "the case of a letter": [
        (r"\frac{M}{m}", "1"), (r"\frac{N}{n+1}", r"\frac{n}{n+1}"), ("A", "a"), ("R-r", "0"),
        ("x+X", "2x"), (r"\frac{V}{v}", r"\frac{v}{v}"), ("AB", "ab"),
    ],
    "relations by their sides": [
        ("x^2+50=0", "x^2+52=0"), (r"\log_2 8=3", r"\log_2 8=5"), ("2+2=4", "2+2=5"),
        ("2+2=5", "2+2=6"), ("x=x", "y=y"), ("x^2=-1", "x^2=-2"), ("1<2", "1<3"),
        (r"y=3", r"y>3"), (r"x\ge 3", "x>3"), ("0=1", "0=2"), (r"\sqrt{4}=2", r"\sqrt{9}=3"),
        (r"x\equiv 3\pmod 5", r"x\equiv 3\pmod 7"), (r"x\equiv 3\pmod{5}", r"x\equiv 4\pmod{5}"),
    ],
    "exactness": [
        (r"(\pi,1)", "(3.14159265,1)"), (r"\{\frac13\}", r"\{0.333333\}"), (r"\pi", "3.14159265"),
        (r"\frac13", "0.333333333333333333333333333333"), (r"[0,\sqrt2]", "[0,1.41421356]"),
        (r"2^{100}", "2^{100}+1"), (r"\sqrt2+10^{-60}", r"\sqrt2"), (r"e^{-200}", "e^{-201}"),
        (r"\begin{pmatrix}\frac13\\1\end{pmatrix}", r"\begin{pmatrix}0.333\\1\end{pmatrix}"),
    ],
    "containers": [
        ("2,2", "2"), ("(3,4)", r"\{3,4\}"), (r"\{1,2\}", "(2,1)"), (r"\{1,2\}", "[1,2]"),
        ("(1,2)", "[1,2)"), ("(1,2)", "(2,1)"), ("(1,1)", "1"), (r"\langle1,2\rangle", "(1,2)"),
        ("1,2,2", "1,1,2"), (r"\{1,2\}", r"\{1,2,3\}"), ("(1,2,3)", "(1,2)"),
        (r"(1,2),(3,4)", "(1,3),(2,4)"), ("x=1, y=2", "2, 1"), ("x=1, y=2", "1, 2"),
        (r"\{1,2\}", "x=1, y=2"), ("x=1, y=2", "x=2, y=1"), ("x=1, y=2", "(2,1)"),
        (r"(-\infty,1)\cup(2,3)", r"(-\infty,1)\cap(2,3)"),
    ],
    "text that hides a formula": [
        (r"\sin t=-\frac12 \text{ when } t=\pi", r"\sin t=\frac12 \text{ when } t=\pi"),
        (r"\sin t=-\frac12 \text{ when } t=\pi", r"\sin t=-\frac12 \text{ when } t=2\pi"),
        ("$f(x)=x$ and $g(x)=2x$", "$f(x)=x$ and $g(x)=3x$"),
        ("The values are $3$ for even $n$ and $5$ otherwise",
         "The values are $3$ for even $n$ and $6$ otherwise"),
        ("increasing on $(0,1)$ and decreasing on $(1,2)$",
         "increasing on $(0,1)$ and decreasing on $(1,3)$"),
        (r"1 \text{ if } n \text{ is even}", "1"), (r"\text{yes}, 3", r"\text{yes}, 4"),
        (r"\text{maximum } 5", r"\text{minimum } 5"),
    ],
    "no single value": [
        ("7", r"7 \text{ I guess}"), ("7", "7 or 8"), ("7", r"7\text{ or }8"), ("7", "7, 8"),
        ("7", r"\text{not }7"), ("7", r"7 \text{ maybe}"), ("7", "7?"), ("7", r"7\ldots"),
        ("7", r"\approx 7"), ("7", r"7\pm 1"), ("7", "7 8"), ("7", r"\cancel{7}"), ("7", "7 wrong"),
    ],
}  # fmt: skip
RIGHT = {
    "plain notation": [
        (r"\frac{\pi}{2}", "pi/2"), (r"2\pi", "2*pi"), (r"\ln 2", "ln(2)"), (r"\sin x", "sin(x)"),
        ("x^2+1", "x**2+1"), ("3-2i", "3-2*i"), (r"\infty", "infinity"), (r"\sqrt{2}", "sqrt(2)"),
        (r"\frac{\sqrt3}{2}", "sqrt(3)/2"), (r"e^{2x}", "exp(2x)"), (r"\cos 2t", "cos(2*t)"),
        (r"\frac{1}{x+1}", "1/(x+1)"), (r"x\le 2", "x <= 2"), (r"2\pi", "2π"), (r"\sqrt5", "√5"),
    ],
    "notation": [
        (r"2e^2", r"2\mathrm{e}^2"), (r"\infty", r"+\infty"), (r"28\%", "28 pct"), ("28", "28 pct"),
        (r"x\equiv 3\pmod 5", r"x \equiv 3 \pmod{5}"), (r"3 \pmod 5", r"3 \pmod{5}"),
        (r"x\equiv 3\pmod{5}", r"x\equiv 3 (\bmod 5)"), (r"-\frac13", "-1./3"),
        ("-1./3", r"-\frac13"),
        (r"\{x|x<2\}", r"\{x \mid x < 2\}"),
        (r"\langle1,2\rangle", r"\left\langle 1, 2 \right\rangle"),
        ("R=1, I=(-1,1)", "R = 1, I = (-1, 1)"), (r"\frac12", r"\dfrac{1}{2}"), ("90", r"90^\circ"),
        (r"\frac{1}{\sqrt{2+\sqrt{3}}+1}", r"\frac{1}{1+\sqrt{\sqrt{3}+2}}"),
        (r"\frac{1}{\sqrt{2}+\sqrt{3}+\sqrt{5}}", r"\frac{1}{\sqrt{5}+\sqrt{3}+\sqrt{2}}"),
        (r"\frac{\sqrt{3+\sqrt5}}{1+\sqrt{2+\sqrt7}}",
         r"\frac{\sqrt{\sqrt5+3}}{\sqrt{\sqrt7+2}+1}"),
        (r"\{x|x<2\}", r"(-\infty,2)"), (r"\log_2 3", r"\frac{\ln 3}{\ln 2}"),
        (r"1,000", "1000"), (r"\sin^2 x", r"1-\cos^2 x"), (r"2 \text{ hours } 30 \text{ minutes}",
         "2 hours 30 minutes"),
    ],
}  # fmt: skip
PROSE = [
    ("36", "Each costs $18, so she pays $36", 1.0),
    ("36", "Each costs $18, so she pays $36.", 1.0),
    ("18", "Each costs $18, so she pays $36.", 0.0),
    ("1250", "He earns $1,000 and then $250. In all that is $1,250.", 1.0),
    ("9.5", "It was $12 and is now $9.50", 1.0),
    ("5", "She had $20, spent $15 and has $5 left.", 1.0),
    ("34", "The largest $n$ is 34.", 1.0),
    ("n", "The largest $n$ is 34.", 0.0),
    ("12", "For $x > 3$ there are 12 of them.", 1.0),
    ("19, 46, 82", "The answers are 19, 46, and 82", 1.0),
    ("19, 46, 82", r"\boxed{19, 46, and 82}", 1.0),
    ("19, 46, 82", "They are 19, 46, and 83.", 0.0),
    ("7", "7 is wrong", 1.0),  # words around a formula are not read
    ("x+1", "So we have x+1.", 1.0),
    (r"\frac12", "So the probability is $\\frac{1}{2}$.", 1.0),
]


def rows(table):
    return [(kind, *pair) for kind, pairs in table.items() for pair in pairs]


@pytest.mark.parametrize(("kind", "gold", "given"), rows(WRONG))
def test_wrong_answers_earn_nothing(kind, gold, given):
    score = verify("math", completion=rf"\boxed{{{given}}}", answer=gold)
    assert score.value == 0.0, score


@pytest.mark.parametrize(("kind", "gold", "given"), rows(RIGHT))
def test_right_answers_are_accepted_in_time(kind, gold, given):
    verify("math", completion=r"\boxed{\sqrt{x}}", answer="y+1")  # the workers are running
    start = time.monotonic()
    score = verify("math", completion=rf"\boxed{{{given}}}", answer=gold)
    assert score.value == 1.0, score
    assert time.monotonic() - start < 2


@pytest.mark.parametrize(("gold", "text", "value"), PROSE)
def test_answers_in_prose(gold, text, value):
    assert verify("math", completion=text, answer=gold).value == value


@pytest.mark.parametrize(("gold", "given"), WRONG["no single value"])
def test_what_is_not_one_value_is_no_answer(gold, given):
    score = verify("math", completion=rf"\boxed{{{given}}}", answer=gold)
    assert score.outcome == "no_answer", score


GOLDS = [
    (["4", "four"], "4", 1.0), (["4", "four"], "four", 1.0), (["4", "four"], "5", 0.0),
    (("1", "2"), "2", 1.0), (4, "4", 1.0), (4.0, "4", 1.0), (0.5, r"\frac12", 1.0),
]  # fmt: skip


@pytest.mark.parametrize("name", ["math", "number", "text", "exact", "boxed", "tagged"])
@pytest.mark.parametrize(("answer", "given", "value"), GOLDS)
def test_gold_answers_of_other_types(name, answer, given, value):
    if (name == "number" and given == "four") or (name in ("text", "exact") and "frac" in given):
        pytest.skip("not of this verifier's kind")
    form = {"boxed": r"\boxed{%s}", "math": r"\boxed{%s}", "tagged": "<answer>%s</answer>"}
    score = verify(name, completion=form.get(name, "%s") % given, answer=answer)
    assert score.value == value, score


@pytest.mark.parametrize("name", ["math", "number", "text", "exact", "boxed", "tagged"])
@pytest.mark.parametrize(
    "answer", [None, float("nan"), float("inf"), True, {"a": 1}, [], [None], "", " ", [["1"]]]
)
def test_what_cannot_be_an_answer_is_refused_and_never_raises(name, answer):
    completion = r"\boxed{7} <answer>7</answer>"
    score = verify(name, completion=completion, answer=answer)
    assert (score.value, score.outcome) == (None, "bad_answer")
    prompt = Prompt("p", text="q", answer=answer)
    assert load_verifier(name).check_answer(prompt)


@pytest.mark.parametrize("gold", [r"\frac{1", "x^{2", r"(1,2"])
def test_gold_answers_whose_brackets_do_not_match_are_named(gold):
    reason = load_verifier("math").check_answer(Prompt("p", text="q", answer=gold))
    assert "cannot be read" in reason
    score = verify("math", completion=rf"\boxed{{{gold}}}", answer=gold)
    assert (score.value, score.outcome) == (None, "bad_answer")


def test_a_gold_answer_that_is_not_equal_to_itself_is_named():
    assert load_verifier("math").check_answer(Prompt("p", text="q", answer="1/0"))


def test_words_of_the_prompt_may_stand_behind_a_number():
    def judged(prompt):
        return verify("math", completion=r"\boxed{12 \text{ apples}}", answer="12", prompt=prompt)

    assert judged("How many apples are there?").outcome == "correct"
    assert judged("How many are there?").outcome == "no_answer"
