"""The share of the wanted language, code and formulas left out."""

import pytest

from groupwise.types import Prompt
from groupwise.verifiers import Case, load_verifier, score_cases
from groupwise.verifiers.text.language import language_share

ENGLISH = "We add the two numbers and then divide the result by three."
GERMAN = "Wir addieren die beiden Zahlen und teilen das Ergebnis durch drei."
CHINESE = "我们把这两个数字相加，然后把结果除以三。"


@pytest.mark.parametrize(
    ("text", "language", "share"),
    [
        (ENGLISH, "en", 1.0),
        (GERMAN, "de", 1.0),
        (CHINESE, "zh", 1.0),
        (GERMAN, "en", 0.0),
        (f"{ENGLISH}\n{ENGLISH}", "en-GB", 1.0),
        (ENGLISH + " $\\frac{1}{2} \\text{und das ist die Antwort}$", "en", 1.0),
        (ENGLISH + "\n```python\nfuer = 'und das ist ein deutscher Text'\n```", "en", 1.0),
    ],
)
def test_shares(text, language, share):
    assert language_share(text, language) == share


def test_a_mixture_is_counted_by_letters():
    share = language_share(f"{ENGLISH} {GERMAN}", "en")
    letters = [sum(c.isalpha() for c in text) for text in (ENGLISH, GERMAN)]
    assert share == pytest.approx(letters[0] / sum(letters))


@pytest.mark.parametrize(
    "text",
    ["", "42", "$x^2$", "```\ncode\n```", "ok", "https://example.org/a/long/path/of/words",
     r"\(a + b\) \[c\] \begin{align}the whole text\end{align}", "`the whole text is code here`",
     "<p><b>", "```\r\nprint('the whole text')\r\n```", r"\text{the whole text is here}"],
)  # fmt: skip
def test_too_little_prose_is_not_applicable(text):
    assert language_share(text, "en") is None


def judged(text, **arguments):
    columns = {"language": "en"}
    case = Case(Prompt("p", text="q", columns=columns), text)
    return score_cases(load_verifier("language", **arguments), [case])[0]


def test_parts_and_columns():
    text = f"<think>{GERMAN}</think>{ENGLISH}"
    assert judged(text, part="answer").value == 1.0
    assert judged(text, part="reasoning").value == 0.0
    assert judged(text, part="reasoning", language="de").value == 1.0
    assert judged(text).value == 0.0
    assert judged(text, language="de").value == 1.0
    assert judged(ENGLISH).value == 1.0
    assert judged(f"<think>{GERMAN} never closed").value == 0.0
    assert 0 < judged(text, part="all").value < 1
    assert judged("42").outcome == "not_applicable"
    assert load_verifier("language").required_columns == {"language"}
    assert load_verifier("language", language="en").required_columns == frozenset()


def test_what_is_stripped_to_nothing_has_no_value_and_no_bonus():
    score = judged("```\nthe whole answer is code\n``` $x$ https://example.org")
    assert (score.value, score.outcome) == (None, "not_applicable")
    assert judged(f"<THINK>{GERMAN}</THINK>{ENGLISH}").value == 0.0
