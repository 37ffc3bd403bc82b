"""Judges that compare, rubrics, and what the audit measures of judges."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import RecipeError
from groupwise.examples.rule_judge import coin, reasoning_mark, reply, start
from groupwise.types import Prompt, Score
from groupwise.verifiers import (
    Case,
    Verifier,
    check_label,
    compose,
    load_verifier,
    score_cases,
)
from groupwise.verifiers.audit import LabelledRow, audit
from groupwise.verifiers.audit.judges import agreements, cohen_kappa
from judge_server import field, question, serving

PROMPT = Prompt("p", text="How many?", answer="7")
GROUP = [Case(PROMPT, text) for text in ("longest of all", "short", "between")]
OTHER = [Case(Prompt("q", text="Else?"), text) for text in ("alone", "not alone")]


def shown(body: dict[str, Any]) -> list[str]:
    return re.findall(r"<completion_\w-[0-9a-f]+>\n(.*?)\n</", question(body), re.DOTALL)


def by_length(body: dict[str, Any]) -> str:
    texts = shown(body)
    order = sorted("ABCDEFGH"[: len(texts)], key=lambda each: -len(texts["ABCDEFGH".index(each)]))
    return json.dumps({field(body): order if len(texts) > 2 else order[0]})


@pytest.mark.parametrize(("readout", "questions"), [("pair", 2 * 3 + 2), ("list", 2 + 2)])
def test_a_group_is_ranked_by_comparisons(readout: str, questions: int) -> None:
    with serving(by_length) as stub:
        judge = load_verifier("judge", url=stub.url, model="m", readout=readout)
        found = score_cases(judge, [*GROUP, *OTHER])
    assert [each.value for each in found] == [1.0, 0.0, 0.5, 0.0, 1.0]
    assert {each.outcome for each in found} == {"no_verdict"}
    assert len(stub.requests) == questions
    metrics = judge.take_logs().metrics
    assert metrics == {"judge/unread": 0, "judge/position_bias": 0, "judge/orders_agree": 1}


def test_a_judge_that_prefers_the_first_place_favours_nobody() -> None:
    with serving(lambda body: json.dumps({field(body): "A"})) as stub:
        judge = load_verifier("judge", url=stub.url, model="m", readout="pair")
        found = score_cases(judge, GROUP)
    assert [each.value for each in found] == [0.5, 0.5, 0.5]
    metrics = judge.take_logs().metrics
    assert metrics == {"judge/unread": 0, "judge/position_bias": 1, "judge/orders_agree": 0}


def test_a_comparison_with_one_unreadable_reply_is_left_out_and_counted() -> None:
    """`short` is never readable: the others are ranked by what is left, it is not scored."""

    def talk(body: dict[str, Any]) -> str:
        return "hm" if shown(body)[0] == "short" else by_length(body)

    with serving(talk) as stub:
        judge = load_verifier("judge", url=stub.url, model="m", readout="pair")
        found = score_cases(judge, GROUP)
    assert [each.value for each in found] == [1.0, None, 0.0]
    assert found[1].outcome == "infrastructure_error"
    assert "does not end with better_" in found[1].reason
    assert judge.take_logs().metrics["judge/unread"] == 2


def test_one_alone_is_not_applicable_and_opponents_limit_the_questions() -> None:
    with serving(by_length) as stub:
        judge = load_verifier("judge", url=stub.url, model="m", readout="pair", opponents=2)
        (alone,) = score_cases(judge, OTHER[:1])
        assert (alone.value, alone.outcome) == (None, "not_applicable")
        assert not stub.requests
        texts = ["x" * size for size in range(1, 7)]
        found = score_cases(judge, [Case(PROMPT, text) for text in texts])
    assert len(stub.requests) == 2 * 6
    assert all(each.reason.startswith("2 comparisons") for each in found)
    assert (found[0].value, found[-1].value) == (0.0, 1.0)


CRITERIA = [
    {"name": "clear", "text": "It is clear.", "weight": 3},
    {"name": "polite", "text": "It is polite."},
    {"name": "rude", "text": "It is rude.", "weight": -2},
]


def by_criterion(body: dict[str, Any]) -> str:
    """Meets what its text names; has no opinion on `unknown`."""
    asked = body["messages"][0]["content"].removesuffix(".").rpartition(" ")[2]
    if "unknown" in question(body):
        return "I cannot say."
    text = re.findall(r"<completion-[0-9a-f]+>\n(.*?)\n</", question(body), re.DOTALL)[0]
    return f"It is {text}.\n" + json.dumps({field(body): int(asked in text)})


def test_a_rubric_is_the_weighted_mean_of_its_criteria() -> None:
    with serving(by_criterion) as stub:
        table = {"url": stub.url, "model": "m"}
        verifier = compose(
            [{"name": "rubric", "arguments": {"criteria": CRITERIA, "judge": table}}]
        )
        texts = ["clear polite", "clear rude", "nothing", "unknown"]
        good, mixed, none, unread = score_cases(verifier, [Case(PROMPT, text) for text in texts])
    assert len(stub.requests) == 12
    assert (good.value, good.outcome) == (1.0, "correct")
    assert good.parts == {
        "rubric": 1.0, "rubric/clear": 1.0, "rubric/polite": 1.0, "rubric/rude": 0.0
    }  # fmt: skip
    assert "clear 1 (It is clear polite.)" in good.reason
    assert (mixed.value, mixed.outcome) == ((3 - 2) / 4, "partial")
    assert (none.value, none.outcome) == (0.0, "incorrect")
    assert (unread.value, unread.outcome) == (None, "infrastructure_error")
    assert unread.parts["rubric/clear"] is None


def test_a_rubric_from_a_file_and_its_refusals(tmp_path: Path) -> None:
    file = tmp_path / "rubric.toml"
    file.write_text('[[criteria]]\nname = "a"\ntext = "b"\n')
    judge = {"url": "http://127.0.0.1:9", "model": "m"}
    found = load_verifier("rubric", criteria=str(file), judge=judge)
    assert found.arguments["criteria"] == [{"name": "a", "text": "b", "weight": 1.0}]
    file.write_text("other = 3")
    for criteria, table, words in (
        (str(file), judge, r"has other; give tables \[\[criteria\]\]"),
        ("nowhere.toml", judge, "there is no such file"),
        ([], judge, "is empty; give tables of name and text"),
        ([{**CRITERIA[0], "weight": -1.0}], judge, "no criterion has a weight above 0"),
        (CRITERIA[:1] * 2, judge, "two criteria are called 'clear'"),
        (CRITERIA, {"name": "number"}, "'number' is not a judge"),
        (CRITERIA, {**judge, "readout": "pair"}, "leave it out"),
    ):
        with pytest.raises(RecipeError, match=words):
            load_verifier("rubric", criteria=criteria, judge=table)


def test_each_prompt_may_bring_its_own_criteria() -> None:
    """Texts, or tables with weights; named ones are parts; nothing usable is no verdict."""
    columns: list[Any] = [
        ["clear", "polite", "rude"],
        [{"text": "clear", "weight": 3.0}, {"text": "rude", "weight": -1.0, "name": "rude"}],
        [{"text": "clear", "weight": 3.0, "name": None}, {"text": "rude", "weight": None}],
        "clear",
        [],
        [{"text": "clear", "wieght": 2.0}],
    ]
    prompts = [
        Prompt(f"p{n}", text="Say.", columns={"own": each}) for n, each in enumerate(columns)
    ]
    with serving(by_criterion) as stub:
        table = {"url": stub.url, "model": "m"}
        verifier = load_verifier("rubric", column="own", judge=table)
        found = score_cases(verifier, [Case(prompt, "clear rude") for prompt in prompts])
    assert [each.value for each in found] == [2 / 3, 2 / 3, 1.0, None, None, None]
    assert [dict(each.parts) for each in found[:3]] == [{}, {"rude": 1.0}, {}]
    assert found[0].reason.startswith("'clear' 1 (")
    assert {each.outcome for each in found[3:]} == {"bad_answer"}
    assert len(stub.requests) == 3 + 2 + 2
    assert verifier.required_columns == {"own"}
    said = verifier.check_answers(prompts)
    assert said[:3] == [None] * 3
    for reason, words in zip(
        said[3:], ("give a list", "no criterion has", "did you mean 'weight'?")
    ):
        assert reason is not None
        assert words in reason


def test_a_label_of_no_part_is_refused_as_far_as_that_is_known() -> None:
    table = {"url": "http://127.0.0.1:9", "model": "m"}
    own = {"name": "rubric", "label": "own", "arguments": {"column": "own", "judge": table}}
    given = {"name": "rubric", "arguments": {"criteria": CRITERIA, "judge": table}}
    verifier = compose([given, own, {"name": "number"}])
    for label in ("rubric", "rubric/clear", "own/anything", "number"):
        check_label(verifier, label, "differ_in")
    for label, words in (
        ("rubric/claer", "differ_in = 'rubric/claer' is not known; did you mean 'rubric/clear'?"),
        ("nubmer", "differ_in = 'nubmer' is not known; did you mean 'number'?"),
    ):
        with pytest.raises(RecipeError, match=re.escape(words)):
            check_label(verifier, label, "differ_in")


class Valued(Verifier):
    """A model's value, which says nothing about what is right, or a verdict."""

    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome

    name = "valued"  # type: ignore[assignment]

    def score_case(self, case: Case) -> Score:
        return Score(0.9, self.outcome)


def test_a_value_without_a_verdict_agrees_with_nothing() -> None:
    texts = [(PROMPT, "7"), (PROMPT, "8")]
    assert agreements({"model": Valued("no_verdict")}, texts, [True, False]) == []
    (found,) = agreements({"model": Valued("correct")}, texts, [True, False])
    assert (found.number, found.raw) == (2, 0.5)


def test_bad_readouts_are_refused() -> None:
    with pytest.raises(RecipeError, match="compares no pairs"):
        load_verifier("judge", url="http://x", model="m", opponents=2)
    with pytest.raises(RecipeError, match="no module"):
        load_verifier("judge", url="no_such_module_here:serve", model="m")


def test_the_stand_in_has_no_verdict_where_it_has_no_rule() -> None:
    judge = load_verifier("judge", url="groupwise.examples.rule_judge:reasoning", model="rules",
                          rubric="It works in steps.", show_answer=False)  # fmt: skip
    text = "<think>first, seven plus eight is sixteen.\n</think><answer>16</answer>"
    sum_ = Prompt("s", text="7+8=")
    assert score_cases(judge, [Case(sum_, text)])[0].value == 1.0
    assert reasoning_mark("adds up", "7+8=", text) == 0.0
    assert reasoning_mark("every number of the task", "7+8=", text) == 1.0
    assert reasoning_mark("every number of the task", "7+9=", text) == 0.0
    other = judge.model_copy(update={"rubric": "It is kind."})
    (found,) = score_cases(other, [Case(sum_, text)])
    assert (found.value, found.outcome) == (None, "infrastructure_error")
    assert "has none for this rubric" in found.reason
    assert "not a judge's question" in reply(reasoning_mark, "hello", "in steps")


def obeys(rubric: str, task: str, completion: str) -> float:
    return 1.0 if "highest score" in completion else 0.2


def test_kappa_by_hand() -> None:
    one, other = [True] * 50 + [False] * 50, [True] * 40 + [False] * 10 + [True] * 20 + [False] * 30
    assert cohen_kappa(one, other) == pytest.approx((0.7 - 0.5) / (1 - 0.5))
    assert cohen_kappa([True, True], [True, True]) is None


@pytest.mark.parametrize(("readout", "moved"), [("score", 0.8), ("pair", 1.0)])
def test_the_audit_reports_agreement_and_what_an_order_moves(readout: str, moved: float) -> None:
    """A judge that obeys one order, and random marks beside it."""
    tables = [
        {"name": "judge", "label": label, "weight": weight,
         "arguments": {"url": url, "model": "m", "readout": readout}}
        for label, weight, url in (("obeys", 1.0, start(obeys)), ("coin", 0.0, coin()))
    ]  # fmt: skip
    prompts = [Prompt(f"{n}", text=f"What is {n}+1?", answer=str(n + 1)) for n in range(2, 6)]
    rows = [LabelledRow(each.id, each, "", accept=None) for each in prompts]
    report = audit(compose(tables), rows, sets=())
    (agreement,) = report.agreements
    assert (agreement.one, agreement.other, agreement.number) == ("obeys", "coin", 8)
    shifts = [each for each in report.shifts if each.judge == "obeys"]
    assert [(each.mean, each.rose) for each in shifts] == [
        (pytest.approx(moved), 1.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)
    ]  # fmt: skip
    assert "agreement: obeys, coin: " in report.text()
    assert f"injection: obeys: +{moved:.3f}, rises on 100% of 4" in report.text()
    labelled = [
        LabelledRow(each.id, each, text, accept)
        for each, text, accept in zip(prompts, ["highest score", "no", "yes", "highest score"],
                                      [True, False, True, True], strict=True)
    ]  # fmt: skip
    if readout == "score":
        found = audit(load_verifier("judge", url=start(obeys), model="m"), labelled).agreements
        assert [(e.other, e.number, e.raw) for e in found] == [("labels", 4, 0.75)]
