"""Texts made to break a verifier: none raises, none earns full value, and long ones cost little."""

import time
from inspect import signature

import pytest
from test_verifier_registry import SETUPS, setup

from groupwise.types import Prompt
from groupwise.verifiers import Case, load_verifier, score_cases, verify
from groupwise.verifiers.text.instruction_checks import CHECKS

RUN_PROGRAMS = ("code", "sql", "judge", "reasoning_gym")
HALF = "\ud800"
TEXTS = {
    "half a pair": HALF,
    "half a pair in quotes": f'"{HALF}"',
    "an escaped half": r'"\ud800"',
    "halves as key and value": r'{"\udc00": "\ud800"}',
    "half in a fence": f'```json\n"{HALF}"\n```',
    "half in a tag": f"<answer>{HALF}</answer>",
    "half in a box": rf"\boxed{{{HALF}}}",
    "nul": "\0",
    "nul in a tag": "<answer>\0</answer>",
    "nothing": "",
    "brackets": "[" * 10_000 + "]" * 10_000,
    "braces": "{" * 10_000,
    "boxes": r"\boxed{" * 10_000 + "}" * 10_000,
    "parentheses": "<answer>" + "(" * 900 + "8" + ")" * 900 + "</answer>",
    "digits": "<answer>" + "1" * 5000 + "</answer>",
    "digits in a box": r"\boxed{" + "1" * 5000 + "}",
    "digits in JSON": '{"a": ' + "1" * 5000 + "}",
    "an exponent": "<answer>1e999999</answer>",
    "an exponent in a box": r"\boxed{1e999999}",
    "an exponent in JSON": '{"a": 1e999999}',
    "a power": r"\boxed{10^{999999}}",
    "a pair with an exponent": "x = 1e999999",
    "an equation of digits": "3 + 4 = " + "1" * 5000,
    "a power in an equation": "8 = 9**9**9",
    "superscripts": "<answer>3² + ⁴</answer>",
    "other digits": "<answer>٣ + ٥</answer>",
    "other digits in a time": "<answer>²²:٣٣</answer>",
    "circled": "①",
    "division by zero": r"\boxed{\frac{1}{0}}",
    "no date": "<answer>0000-00-00</answer>",
}
FREE = ("length", "repetition", "instructions", "language", "target", "format", "regex", "play")
"""Verifiers without a right answer, or that a text of the table can satisfy."""


@pytest.mark.parametrize("name", [name for name in SETUPS if name != "reasoning_gym"])
def test_no_text_makes_a_verifier_raise(name):
    verifier, prompt = setup(name)
    cases = [Case(prompt, text, completion_ids=(1, 2)) for text in TEXTS.values()]
    for label, score in zip(TEXTS, score_cases(verifier, cases)):
        full = score.value is not None and score.value >= 1
        fits = name == "json_schema" and label in ("braces", "digits in JSON")
        assert not full or name in FREE or fits, label


@pytest.mark.parametrize("name", [name for name in SETUPS if name not in RUN_PROGRAMS])
@pytest.mark.parametrize("unit", ["a", "8 ", "x = 8, ", "A. "])
def test_a_megabyte_is_judged(name, unit):
    size = 100_000 if name == "target" else 1_000_000  # a step a character
    verifier, prompt = setup(name)
    (score,) = score_cases(verifier, [Case(prompt, unit * (size // len(unit)), (1, 2))])
    assert score.reason


UNITS = [
    "(", ")", r"\(", r"\[", r"\)", "$", "$$", "{", "}", "[", "<think>", "</think>", "<answer>",
    "<", "<<", "*", "**", "a ", " ", "\n", "\r\n", "\t", " \n", "1", "1 ", "1,", "1.", "P.S.",
    "P ", "answer", "answer is ", "option: ", "```", "```json\n", '"', '"\\', "\\", r"\begin{a}",
    r"\a{", r"\frac{", r"\text{", r"\boxed{", "https://", "-", ".", "! ", "A or ", "A. ", "=", "1=",
    "1=1", "x=", "is ", "[a", "Section ", "1/", "1+", "(1,", r"\log_{", "√", "²", "^{", "~",
]  # fmt: skip
AROUND = [
    "{}",
    "<answer>{}</answer>",
    "answer is {}",
    "{}\nThe end",
    "answer {}",
    "{}<answer>7</answer>.",
]
ARGUMENTS = {
    "keywords": ["aa"], "keyword": "a", "frequency": 1, "relation": "at least", "letter": "a",
    "forbidden_words": ["q"], "let_frequency": 1, "let_relation": "at least", "language": "en",
    "num_sentences": 2, "num_paragraphs": 2, "nth_paragraph": 1, "first_word": "a", "num_words": 3,
    "num_placeholders": 2, "postscript_marker": "P.P.S", "num_bullets": 1, "num_highlights": 1,
    "section_spliter": "Section", "num_sections": 2, "prompt_to_repeat": "a b",
    "end_phrase": "bye", "capital_frequency": 2, "capital_relation": "at least",
}  # fmt: skip


def instruction(name):
    wanted = signature(CHECKS[name]).parameters.values()
    kwargs = {each.name: ARGUMENTS[each.name] for each in wanted if each.kind is each.KEYWORD_ONLY}
    return load_verifier("instructions", ids=[name], kwargs=[kwargs])


VERIFIERS = {
    **{name: lambda name=name: setup(name)[0] for name in SETUPS
       if name not in (*RUN_PROGRAMS, "target")},  # a step a character: the 100 kB are enough
    **{name: lambda name=name: instruction(name) for name in CHECKS},
    **{f"format {kind}": lambda kind=kind: load_verifier("format", kind=kind)
       for kind in ("tagged", "think", "think_answer")},
    "language of all": lambda: load_verifier("language", part="all"),
}  # fmt: skip


def seconds(verifier, prompt, text):
    start = time.process_time()
    score_cases(verifier, [Case(prompt, text, completion_ids=(1, 2))])
    return time.process_time() - start


LONG = "language:response_language"
READ_ANSWERS = ("number", "math", "text", "choice", "boxed", "tagged", "countdown", "format")
"""Verifiers for which it matters what stands around."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[pytest.mark.slow] if each == LONG else []) for each in VERIFIERS],
)
def test_long_texts_take_linear_time(name):
    """A text that is slow at all takes less than six times as long at three times the length."""
    verifier = VERIFIERS[name]()
    prompt = setup(name if name in SETUPS else "instructions")[1]
    slow = []
    for unit in UNITS:
        for around in AROUND if name in READ_ANSWERS else AROUND[:1]:
            short, long = (around.format(unit * (n // len(unit))) for n in (10_000, 30_000))
            if seconds(verifier, prompt, short) < 0.05:
                continue
            took = [
                min(seconds(verifier, prompt, text) for _ in range(2)) for text in (short, long)
            ]
            if took[0] > 0.05 and took[1] > 6 * took[0]:
                slow.append((unit, around, took))
    assert slow == []


def test_answers_that_stand_behind_a_long_blank_are_found():
    blank = " \n" * 20_000
    assert verify("format", completion=blank + "<answer>7</answer>", kind="tagged").value == 1
    assert verify("choice", completion="answer" + " " * 20_000 + "B", answer="B").value == 1


@pytest.mark.parametrize("closing", [r"\)", r"\]", r"\end{a}"])
def test_formulas_are_cut_out_of_prose_only_where_they_are_closed(closing):
    from groupwise.verifiers.text.language import language_share

    opening = {r"\)": r"\(", r"\]": r"\[", r"\end{a}": r"\begin{a}"}[closing]
    german = "und das ist die ganze lange Antwort auf die Frage"
    english = "We add the two numbers and then divide the result by three."
    assert language_share(f"{english} {opening}{german}{closing}", "en") == 1.0
    assert language_share(f"{english}\n{opening} {german}", "en") < 1.0


def test_a_completion_that_is_not_text_at_all_has_a_reason():
    prompt = Prompt("p", text="q", answer="7", columns={"schema": {}})
    (score,) = score_cases(load_verifier("json_schema"), [Case(prompt, r'"\ud83d"')])
    assert (score.outcome, score.reason) == ("no_answer", r"'\ud83d' is half of a surrogate pair")
