"""Weights, gates, thresholds, unscored parts. Faults 12, 51 and 54."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.errors import RecipeError, VerifierError
from groupwise.types import Prompt, Score
from groupwise.verifiers import (
    Case,
    Component,
    Composite,
    Verifier,
    check_verdicts,
    compose,
    score_cases,
)

BOX = {"kind": "boxed"}
NUMBER_AND_FORMAT = [
    {"name": "number"},
    {"name": "format", "weight": 0.2, "gate": "number", "arguments": BOX},
    {"name": "boxed", "label": "strict", "weight": 0.0},
]


class Fixed(Verifier):
    def __init__(self, name, *results):
        self._name, self.results = name, results

    @property
    def name(self):
        return self._name

    def score(self, cases):
        return list(self.results)


def run(components, n=1, combine="sum"):
    cases = [Case(Prompt(f"p{row}", text="q", answer="7"), "7") for row in range(n)]
    return score_cases(Composite(components, combine), cases)


def judged(text, tables=NUMBER_AND_FORMAT):
    (score,) = score_cases(compose(tables), [Case(Prompt("p", text="q", answer="7"), text)])
    return score


def test_weighted_sum_with_a_gated_bonus_and_a_reported_part():
    assert judged(r"\boxed{7}").value == pytest.approx(1.2)
    assert judged(r"\boxed{7}").parts == {"number": 1.0, "format": 1.0, "strict": 1.0}
    assert judged("7").value == 1.0
    assert judged("7").parts == {"number": 1.0, "format": 0.0, "strict": 0.0}
    wrong = judged(r"\boxed{8}")
    assert (wrong.value, wrong.outcome) == (0.0, "incorrect")
    assert wrong.parts == {"number": 0.0, "format": 0.0, "strict": 0.0}
    assert judged("").outcome == "no_answer"


def test_a_gate_on_parsing_counts_a_wrong_answer_that_can_be_read():
    bonus = {"name": "format", "weight": 0.2, "gate": "number:parsed", "arguments": BOX}
    tables = [{"name": "number"}, bonus]
    assert judged(r"\boxed{8}", tables).value == pytest.approx(0.2)
    assert judged(r"\boxed{x}", tables).value == 0.0


def test_the_outcome_is_that_of_the_heaviest_part():
    assert judged("7").outcome == "correct"
    scores = run([Component(Fixed("a", 0.0), weight=0.1), Component(Fixed("b", 1.0), weight=-2.0)])
    assert scores[0].outcome == "correct"


def test_two_functions_that_apply_to_different_rows():
    scores = run([Component(Fixed("f1", 1, None)), Component(Fixed("f2", None, 0))], n=2)
    assert [score.value for score in scores] == [1.0, 0.0]
    assert scores[0].parts == {"f1": 1.0, "f2": None}


def test_nothing_applies():
    (score,) = run([Component(Fixed("f1", None)), Component(Fixed("f2", None))])
    assert (score.value, score.outcome) == (None, "not_applicable")


@pytest.mark.parametrize("cause", ["bad_answer", "verifier_timeout", "infrastructure_error"])
def test_a_part_that_could_not_judge_leaves_the_row_unscored(cause):
    broken = Fixed("main", Score(None, cause, "why"))
    (score,) = run([Component(broken), Component(Fixed("format", 1.0), weight=0.1)])
    assert (score.value, score.outcome) == (None, cause)
    assert score.parts == {"main": None, "format": 1.0}
    (score,) = run([Component(broken, weight=0.0), Component(Fixed("format", 1.0), weight=0.1)])
    assert score.value == 0.1


def test_a_gate_without_a_verdict_makes_the_gated_part_not_applicable():
    parts = [Component(Fixed("main", None)), Component(Fixed("bonus", 1.0), gate="main")]
    (score,) = run(parts)
    assert (score.value, score.parts["bonus"]) == (None, None)


def test_threshold_and_product():
    high, low = Fixed("high", 0.7), Fixed("low", 0.4)
    (score,) = run([Component(high, threshold=0.5), Component(low, threshold=0.5)])
    assert score.parts == {"high": 1.0, "low": 0.0}
    (score,) = run([Component(high, weight=2.0), Component(low)], combine="product")
    assert score.value == pytest.approx(2 * 0.7 * 0.4)
    (score,) = run([Component(high), Component(low, weight=0.0)], combine="product")
    assert score.value == pytest.approx(0.7)


values = st.one_of(st.none(), st.floats(-2, 2))


@given(st.lists(st.tuples(values, st.floats(-3, 3)), min_size=1, max_size=5))
def test_the_value_is_the_weighted_sum_of_the_parts(rows):
    if all(weight == 0 for _, weight in rows):
        return
    components = [
        Component(Fixed(f"v{row}", value), weight=weight)
        for row, (value, weight) in enumerate(rows)
    ]
    (score,) = run(components)
    terms = [c.weight * score.parts[c.key] for c in components
             if c.weight and score.parts[c.key] is not None]  # fmt: skip
    assert score.value == (pytest.approx(sum(terms)) if terms else None)


@pytest.mark.parametrize("raised", ["number", "format", "strict"])
def test_the_total_rises_with_each_positive_term(raised):
    def total(**parts):
        components = [
            Component(Fixed(name, value), weight=weight)
            for name, weight, value in [
                ("number", 1.0, parts["number"]), ("format", 0.2, parts["format"]),
                ("strict", 0.5, parts["strict"]),
            ]
        ]  # fmt: skip
        return run(components)[0].value

    base = {"number": 0.5, "format": 0.5, "strict": 0.5}
    totals = [total(**{**base, raised: value}) for value in (0.0, 0.25, 0.5, 1.0)]
    assert totals == sorted(totals)
    assert totals[0] < totals[-1]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ([{"name": "number"}, {"name": "number"}], "two verifiers are called 'number'"),
        ([{"name": "number", "gate": "formt"}], "unknown gate of verifier 'number'"),
        ([{"name": "number", "gate": "number"}], "gated on itself"),
        ([{"name": "number", "weight": 0.0}], "every verifier has weight 0"),
        ([], "at least one verifier"),
        ([{"name": "number", "weigth": 1.0}], "did you mean 'weight'"),
        ([{"name": "number", "weight": float("nan")}], "weight = nan"),
        ([{"name": "number", "weight": "much"}], "weight = 'much'"),
        ([{"weight": 1.0}], "name"),
    ],
)
def test_bad_compositions_are_refused(tables, message):
    with pytest.raises(RecipeError) as error:
        compose(tables)
    assert message in str(error.value)


def test_a_label_tells_two_of_a_kind_apart():
    verifier = compose([{"name": "number"}, {"name": "number", "label": "close", "weight": 0.5,
                                             "arguments": {"tolerance": 1.0}}])  # fmt: skip
    assert verifier.labels == ("number", "close")
    (score,) = score_cases(verifier, [Case(Prompt("p", text="q", answer="7"), "8")])
    assert score.parts == {"number": 0.0, "close": 1.0}
    assert score.value == 0.5


def test_errors_name_the_component():
    class Broken(Fixed):
        def score(self, cases):
            raise KeyError("x")

    with pytest.raises(VerifierError, match="'broken' raised on row 0 of 1"):
        run([Component(Fixed("fine", 1.0)), Component(Broken("broken"))])


def test_skip_is_per_component():
    class Picky(Fixed):
        def score(self, cases):
            if any(case.prompt.id == "p1" for case in cases):
                raise KeyError("x")
            return [1.0] * len(cases)

    scores = run([Component(Picky("picky"), on_error="skip")], n=3)
    assert [score.outcome for score in scores] == ["correct", "infrastructure_error", "correct"]


def test_warning_where_correctness_does_not_dominate():
    heavy = [{"name": "number"}, {"name": "format", "weight": 1.0, "arguments": BOX}]
    assert "format (1) together weigh 1" in compose(heavy).warnings()[0]
    gated = [{"name": "number"}, {"name": "format", "weight": 1.0, "gate": "number",
                                  "arguments": BOX}]  # fmt: skip
    assert compose(gated).warnings() == []
    assert compose(NUMBER_AND_FORMAT).warnings() == []
    assert compose(heavy, "product").warnings() == []


def test_check_answer_names_the_component():
    verifier = compose(NUMBER_AND_FORMAT)
    assert verifier.check_answer(Prompt("p", text="q", answer="7")) is None
    reason = verifier.check_answer(Prompt("p", text="q", answer="seven"))
    assert reason.startswith("number: the answer 'seven' is not a number")
    assert verifier.gold_completion(Prompt("p", text="q", answer="7")) == "7"
    assert verifier.needs_answer


def test_the_signature_holds_everything_that_changes_a_value():
    base = compose(NUMBER_AND_FORMAT).signature()
    assert base == compose(NUMBER_AND_FORMAT).signature()
    changes = [{"weight": 0.3}, {"gate": None}, {"arguments": {"kind": "tagged"}},
               {"threshold": 0.5}, {"correct_from": 0.5}, {"on_error": "skip"}]  # fmt: skip
    for change in changes:
        tables = [NUMBER_AND_FORMAT[0], {**NUMBER_AND_FORMAT[1], **change}, NUMBER_AND_FORMAT[2]]
        assert compose(tables).signature() != base
    assert compose(NUMBER_AND_FORMAT, "product").signature() != base


ONE_CASE = [Case(Prompt("p", text="q"), "text")]


def total(*components, combine="sum"):
    return score_cases(Composite(components, combine), ONE_CASE)[0]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(0.5, (1.0, "correct")), (0.4, (1.0, "correct")), (0.3, (0.0, "incorrect"))],
)
def test_a_threshold_decides_the_outcome_too(value, wanted):
    score = total(Component(Fixed("a", value), threshold=0.4))
    assert (score.value, score.outcome) == wanted
    behind = Component(Fixed("b", 1.0), weight=0.5, gate="a:correct")
    gated = total(Component(Fixed("a", value), threshold=0.4), behind)
    assert gated.value == (1.5 if wanted[0] else 0.0)


@pytest.mark.parametrize(
    ("value", "bound", "outcome", "accuracy"),
    [
        (9.0, None, "no_verdict", None),
        (1.5, None, "no_verdict", None),
        (1.0 + 2e-16, None, "correct", 1.0),  # a sum of shares
        (True, None, "correct", 1.0),
        (0.5, None, "partial", 0.5),
        (-3.0, None, "incorrect", 0.0),
        (10.0, 10, "correct", 1.0),
        (9.0, 10, "incorrect", 0.0),
        (1.0, 10, "incorrect", 0.0),
        (2.0, 2.0, "correct", 1.0),
        (0.5, 0.5, "correct", 1.0),
        (-1.0, 0.0, "incorrect", 0.0),
        (0.0, 0.0, "correct", 1.0),
    ],
)
def test_correct_from_decides_the_outcome_and_leaves_the_value(value, bound, outcome, accuracy):
    score = total(Component(Fixed("a", value), weight=2.0, correct_from=bound))
    assert (score.value, score.outcome, score.parts["a"]) == (2 * value, outcome, value)
    assert (score.accuracy is None) == (accuracy is None)
    if accuracy in (0.0, 1.0):
        assert score.accuracy == accuracy


def test_a_value_without_a_verdict_opens_no_gate_on_correctness():
    gated = Component(Fixed("b", 1.0), gate="a:correct", weight=0.5)
    assert total(Component(Fixed("a", 7.0)), gated).parts == {"a": 7.0, "b": 0.0}
    assert total(Component(Fixed("a", 7.0), correct_from=7), gated).parts == {"a": 7.0, "b": 1.0}


def test_a_threshold_keeps_why_there_was_no_answer():
    nothing = Score(0.0, "no_answer", "nothing")
    assert total(Component(Fixed("a", nothing), threshold=0.5)).outcome == "no_answer"
    unscored = Score(None, "verifier_timeout", "late")
    assert total(Component(Fixed("a", unscored), threshold=0.5)).outcome == "verifier_timeout"


def test_what_a_closed_gate_took_away_is_not_called_correct():
    score = total(Component(Fixed("a", 1.0), weight=2, gate="b"), Component(Fixed("b", 0.0)))
    assert (score.value, score.outcome) == (0.0, "incorrect")


def test_a_product_has_no_negative_factor():
    """Fault 54: two penalties must not earn, and one must not turn the others' sign."""
    with pytest.raises(VerifierError, match="negative factor"):
        total(Component(Fixed("a", -1.0)), Component(Fixed("b", -1.0)), combine="product")
    with pytest.raises(RecipeError, match="negative weight"):
        Composite([Component(Fixed("a", 1.0), weight=-1.0), Component(Fixed("b", 1.0))], "product")


class Valued(Fixed):
    """Values on a scale that says nothing about what is right."""

    gives_verdicts = False


def test_what_asks_for_a_verdict_is_refused_where_there_is_none() -> None:
    valued, judged = Component(Valued("a", 0.3)), Component(Fixed("b", 1.0), weight=0.5)
    for gate in ("a", "a:correct"):
        with pytest.raises(RecipeError, match=r"'a' gives values without a verdict; set its corre"):
            Composite([valued, replace(judged, gate=gate)])
    Composite([replace(valued, correct_from=0.2), replace(judged, gate="a")])
    Composite([valued, replace(judged, gate="a:parsed")])
    assert not Composite([valued, judged]).gives_verdicts
    assert Composite([replace(valued, weight=0.1), judged]).gives_verdicts
    assert Composite([replace(valued, threshold=0.2), judged]).gives_verdicts
    with pytest.raises(RecipeError, match=r"keep = \"correct\" asks which completions are right"):
        check_verdicts(Composite([valued, judged]), 'keep = "correct"')
