"""The audit: shipped labels, holes named with their text, figures worked out by hand. Fault 50."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import RecipeError
from groupwise.types import Prompt, Score
from groupwise.verifiers import Component, Composite, Verifier, compose, load_verifier
from groupwise.verifiers.audit import (
    SETS,
    AuditReport,
    LabelledRow,
    Rate,
    arguments_of_set,
    audit,
    read_rows,
    sets_of,
    shipped_rows,
)
from groupwise.verifiers.audit.probes import probes_of, task_of, usual_form
from groupwise.verifiers.audit.scoring import UNASKED, Scorer
from groupwise.verifiers.core.composition import main_part
from groupwise.verifiers.core.registry import BUILTIN

UNLABELLED = {"judge", "rubric", "play", "reasoning_gym"}
"""Built-in verifiers without a labelled set: they ask others, or need an environment's own rows."""
HOLED = "groupwise.verifiers.audit.holed:answer_anywhere"
SUMS = [
    LabelledRow(f"{a}+{b}", Prompt(f"{a}+{b}", text=f"{a}+{b}=", answer=str(a + b)), "", None)
    for a in range(1, 5)
    for b in range(1, 5)
]


def names(kind: str) -> set[str]:
    return {probe.name for probe in probes_of(kind)}


def of(name: str, rows: list[LabelledRow] = SUMS, **arguments: Any) -> AuditReport:
    return audit(load_verifier(name, **arguments), rows, sets=())


def test_the_shipped_sets_are_as_large_as_promised() -> None:
    sizes = {name: len(shipped_rows(name)) for name in SETS}
    assert sizes["numbers"] + sizes["math"] >= 300
    assert sizes["numbers"] >= 300
    assert sizes["choice"] >= 60
    assert sizes["format"] >= 60
    assert sizes["code"] >= 60
    assert {each for name in BUILTIN for each in sets_of(name)} == set(SETS)
    assert {name for name in BUILTIN if not sets_of(name)} == UNLABELLED
    for name in SETS:
        rows = shipped_rows(name)
        assert len({row.id for row in rows}) == len(rows)
        assert 0.15 < sum(bool(row.accept) for row in rows) / len(rows) < 0.85


def test_the_generators_write_what_ships(tmp_path: Path) -> None:
    """The labels' origin: the committed scripts, which know nothing of the verifiers."""
    import subprocess
    import sys

    root = Path(__file__).parents[2]
    scripts = ("audit_sets.py", "audit_code_set.py", "audit_rule_sets.py", "audit_final_sets.py")
    for script in scripts:
        source = (root / "experiments" / script).read_text()
        assert "import groupwise" not in source
        assert "from groupwise" not in source
        subprocess.run(
            [sys.executable, str(root / "experiments" / script), str(tmp_path)],
            check=True,
            capture_output=True,
        )
    for name in SETS:
        shipped = root / "src/groupwise/verifiers/audit/sets" / f"{name}.jsonl"
        assert (tmp_path / f"{name}.jsonl").read_text() == shipped.read_text()


def test_a_verifier_with_a_hole_is_named_by_its_probes() -> None:
    """The deliberate hole: an answer found anywhere. Each named with what it earns and its text."""
    report = of(HOLED)
    holes = {hole.name: hole for hole in report.holes}
    assert {"every_option", "many_boxes", "only_in_reasoning", "hedged", "mentioned"} <= set(holes)
    assert not {"empty", "whitespace", "boilerplate", "form_alone", "flattery"} & set(holes)
    listed = holes["every_option"]
    assert listed.earned == 1.0
    assert listed.honest == pytest.approx(0.1)
    assert listed.text == "0123456789"
    assert not report.passed
    assert any("0123456789" in warning for warning in report.warnings)


def test_the_strict_verifier_closes_the_hole() -> None:
    report = of("number")
    assert report.passed, report.warnings
    assert report.holes == ()
    assert report.right == 1.0
    assert report.wrong == 0.0
    assert {probe.name for probe in report.probes} >= names("gold") - {"lookalikes"}


def contains(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """The published fault: gold in text, or text in gold."""
    return [float(a in c or c in a) for c, a in zip(completions, answer)]


def raises_on_blank(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(c.split()[-1] == a) for c, a in zip(completions, answer)]


def half_marks(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [0.5 * (c.strip() == a) for c, a in zip(completions, answer)]


def audit_function(function: Any, rows: list[LabelledRow] = SUMS) -> AuditReport:
    from groupwise.verifiers import RewardFunction

    return audit(RewardFunction(function), rows, sets=())


def test_an_empty_completion_that_earns_is_a_hole() -> None:
    """Fault 50."""
    holes = {hole.name for hole in audit_function(contains).holes}
    assert "empty" in holes
    assert "every_option" in holes


def test_a_function_that_raises_is_a_finding_with_its_text() -> None:
    report = audit_function(raises_on_blank)
    assert not report.passed
    assert report.raised.count >= 2
    assert any("IndexError" in row.reason for row in report.raised.rows)
    assert any("texts raised an error" in warning for warning in report.warnings)


def test_a_scale_other_than_one_is_found_by_trying() -> None:
    report = audit_function(half_marks)
    assert report.right == 0.5
    assert report.passed, report.warnings


def test_the_form_is_found_by_trying() -> None:
    def hashes(completions: list[str], answer: list[str], **_: Any) -> list[float]:
        return [float(c.rpartition("#### ")[2] == a) for c, a in zip(completions, answer)]

    assert audit_function(hashes).form == "bare"  # no marker: the whole text

    def strict(completions: list[str], answer: list[str], **_: Any) -> list[float]:
        return [float(c.endswith(f"\n#### {a}")) for c, a in zip(completions, answer)]

    report = audit_function(strict)
    assert report.form == "hashes"
    assert report.right == 1.0


def test_gold_answers_that_are_rejected_are_named() -> None:
    bad = LabelledRow("row 17", Prompt("row 17", text="?", answer="no number"), "", None)
    report = of("number", [*SUMS, bad])
    assert report.golds.count == 1
    assert report.golds.rows[0].id == "row 17"
    assert not report.passed


@pytest.mark.parametrize("name", ["number", "boxed", "tagged", "choice", "format"])
def test_built_in_verifiers_make_no_error_on_the_shipped_sets(name: str) -> None:
    sets = {"choice": "choice", "format": "format"}.get(name, "numbers")
    report = audit(load_verifier(name), sets=(sets,), num_probed=2)
    (rates,) = report.sets
    assert rates.false_accepted.count == 0, rates.false_accepted.rows[:3]
    assert rates.false_rejected.count == 0, rates.false_rejected.rows[:3]
    assert rates.unscored.count == 0
    low, high = rates.false_accepted.interval or (1.0, 1.0)
    assert low == pytest.approx(0.0, abs=1e-9)
    assert high == pytest.approx(3.8415 / (rates.false_accepted.total + 3.8415), rel=1e-3)


RULED = sorted(set(BUILTIN) - UNLABELLED - {"number", "boxed", "tagged", "math", "choice", "format",
                                            "code"})  # fmt: skip


@pytest.mark.parametrize("name", RULED)
def test_verifiers_of_rules_make_no_error_on_their_own_sets(name: str) -> None:
    verifier = load_verifier(name, **arguments_of_set(name))
    report = audit(verifier, num_probed=2)
    check_no_error(report)
    known = {"instructions": {"form_alone", "own_verdict"}}
    assert {hole.name for hole in report.holes} <= known.get(name, set())


def check_no_error(report: AuditReport) -> None:
    (rates,) = report.sets
    assert rates.false_accepted.count == 0, rates.false_accepted.rows[:3]
    assert rates.false_rejected.count == 0, rates.false_rejected.rows[:3]
    assert rates.unscored.count == 0, rates.unscored.rows[:3]
    assert report.golds.count == report.raised.count == 0


@pytest.mark.slow
def test_mathematics_makes_no_error_on_the_shipped_sets() -> None:
    report = audit(load_verifier("math"), num_probed=4)
    assert [rates.name for rates in report.sets] == ["numbers", "math"]
    for rates in report.sets:
        assert rates.false_accepted.count == rates.false_rejected.count == 0
    assert report.holes == ()


@pytest.mark.slow
def test_code_makes_no_error_on_the_shipped_submissions() -> None:
    """Fault 52, 55: hostile submissions earn nothing, honest ones are accepted."""
    report = audit(load_verifier("code", time_limit=2.0), num_probed=3)
    (rates,) = report.sets
    assert rates.false_accepted.count == 0, rates.false_accepted.rows
    assert rates.false_rejected.count == 0, rates.false_rejected.rows
    assert report.holes == ()
    assert {probe.name for probe in report.probes} == names("code")


def test_a_composition_is_audited_as_a_whole() -> None:
    """A format bonus behind no gate lets a wrong answer earn; the audit says so."""
    loose = Composite(
        [
            Component(load_verifier("number")),
            Component(load_verifier("format", kind="boxed"), weight=1.0, label="format"),
        ]
    )
    report = audit(loose, SUMS, sets=())
    assert main_part(loose).name == "number"
    assert report.form == "format's own"
    assert report.right == 2.0
    assert report.wrong == 1.0
    assert any("as much as" in warning for warning in report.warnings)


def test_shares_and_intervals_by_hand() -> None:
    rate = Rate(1, 10)
    assert rate.share == 0.1
    assert rate.interval == pytest.approx((0.01787, 0.40415), abs=1e-4)
    assert Rate(0, 0).interval is None
    assert str(rate) == "1 of 10 (1.8% to 40.4%)"


def test_the_table_of_probes_is_whole() -> None:
    kinds = ("gold", "free", "code", "sql")
    probes = {kind: probes_of(kind) for kind in kinds}
    for kind in kinds:
        assert len(names(kind)) == len(probes[kind]), f"two probes of {kind} share a name"
        assert {"empty"} < names(kind)
    columns = {"entry": "f", "setup": "create table t (a)", "tests": [[[1], 2]]}
    prompt = Prompt("p", text="create table t (a): f(1)?", answer="select 7", columns=columns)
    task = task_of(prompt, usual_form("boxed"))
    assert task is not None
    for each in (each for kind in kinds for each in probes[kind]):
        texts = [text for family in each.families(task) for text in family]
        assert texts, each.name
        assert not any("⟦" in text or "$" in text for text in texts), each.name
    (emptied,) = [each for each in probes["sql"] if each.name == "emptied"]
    assert emptied.families(task)[2] == ["```sql\ndrop table t\n```"]
    (equal,) = [each for each in probes["code"] if each.name == "always_equal"]
    assert ["class Anything(str)" in text for (text,) in equal.families(task)].count(True) == 1


def nearly(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """All but one character right is right."""
    return [float(sum(x != y for x, y in zip(c, a)) + abs(len(c) - len(a)) <= 1)
            for c, a in zip(completions, answer)]  # fmt: skip


def test_changed_answers_that_are_accepted_are_a_hole() -> None:
    holes = {hole.name: hole for hole in audit_function(nearly, CAPITALS).holes}
    assert list(holes) == ["lookalikes", "changed"]  # the small ones differ in one character
    assert holes["changed"].earned == 1.0
    assert holes["changed"].honest == 0.5


def test_hedges_are_worth_what_a_guess_is() -> None:
    """A verifier that reads the last number earns half on two offered answers: no hole."""
    (hedged,) = [probe for probe in of("number").probes if probe.name == "hedged"]
    assert hedged.honest == 0.5
    assert hedged.earned == 0.5
    assert not hedged.hole


def test_options_do_not_depend_on_which_is_right() -> None:
    bare = usual_form("bare")
    tasks = [task_of(Prompt("p", text="?", answer=str(n)), bare) for n in range(10)]
    assert {task.options for task in tasks if task} == {tuple("0123456789")}
    chosen = task_of(Prompt("p", text="?", answer=1, columns={"choices": ["a", "b"]}), bare)
    assert chosen is not None
    assert (chosen.gold, chosen.wrong) == ("b", "a")


def test_rows_of_a_user(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [
        {"prompt": "3+4=", "answer": "7", "level": 1},
        {"prompt": [{"role": "user", "content": "3+4="}], "answer": "7", "completion": "8",
         "accept": False},
        {"prompt": "3+4=", "answer": "7", "completion": "seven", "accept": True},
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)))
    read = read_rows(path)
    assert read[0].prompt.columns == {"level": 1}
    assert [row.accept for row in read] == [None, False, True]
    report = audit(load_verifier("number"), read, sets=())
    (rates,) = report.sets
    assert rates.name == "data"
    assert (rates.false_accepted.count, rates.false_accepted.total) == (0, 1)
    assert (rates.false_rejected.count, rates.false_rejected.total) == (1, 1)
    assert rates.false_rejected.rows[0].text == "seven"
    path.write_text('{"prompt": "x"}\n{"answer": "7"}')
    with pytest.raises(RecipeError, match=r"rows\.jsonl:2"):
        read_rows(path)
    path.write_text('{"prompt": "x", "accept": "yes", "completion": "7"}')
    with pytest.raises(RecipeError, match="true or false"):
        read_rows(path)


class Slow(Verifier):
    """Takes 20 ms a verdict."""

    @property
    def name(self) -> str:
        return "slow"

    def score(self, cases: Any) -> list[float]:
        import time

        time.sleep(0.02)
        return [float(case.text == case.prompt.answer) for case in cases]


def test_a_budget_holds() -> None:
    report = audit(Slow(), SUMS, sets=(), budget=0.5)
    assert any("stopped after 0.5 s, without" in note for note in report.notes)


def test_no_rows_and_no_set_is_refused_with_a_way_out() -> None:
    with pytest.raises(RecipeError, match="--data"):
        audit(load_verifier("judge", url="http://127.0.0.1:9", model="m"))
    with pytest.raises(RecipeError, match="numbers"):
        audit(load_verifier("number"), sets=("numbrs",))


def test_an_audit_that_could_try_nothing_says_so() -> None:
    row = LabelledRow("p", Prompt("p", text="Write a poem."), "", accept=None)
    report = audit(load_verifier("number"), [row], sets=())
    assert all(probe.earned is None for probe in report.probes)
    assert any("no text got a value" in warning for warning in report.warnings)
    gold = LabelledRow("p", Prompt("p", text="3+4=", answer="7"), "", accept=None)
    report = audit(load_verifier("number"), [row, gold], sets=())
    assert report.notes == ()


def likes_praise(completions: list[str], **_: Any) -> list[float]:
    return [0.6 if "wonderful" in text else 0.5 * bool(text) for text in completions]


def test_without_gold_answers_texts_that_say_nothing_are_tried() -> None:
    """Against an honest "I do not know": praise must not earn more, and neither must nothing."""
    row = LabelledRow("p", Prompt("p", text="Write a poem."), "", accept=None)
    report = audit_function(likes_praise, [row])
    assert report.wrong == 0.5
    assert [hole.name for hole in report.holes] == ["flattery"]
    assert "wonderful" in report.holes[0].text
    assert {probe.name for probe in report.probes} == names("free")
    assert "note: no prompt has a gold answer" in report.text()
    assert audit(load_verifier("repetition"), [row], sets=()).holes == ()


CAPITALS = [
    LabelledRow(city, Prompt(city, text=f"Capital of {land}?", answer=city), "", None)
    for land, city in (("France", "Paris"), ("Italy", "Rome"), ("Peru", "Lima"))
]


def last_word(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float((c.split() or [""])[-1] == a) for c, a in zip(completions, answer)]


@pytest.mark.parametrize("rows", [CAPITALS, CAPITALS[:1]])
def test_a_verifier_that_reads_the_last_word_is_fooled(rows: list[LabelledRow]) -> None:
    report = audit_function(last_word, rows)
    assert (report.right, report.wrong) == (1.0, 0.0)
    assert {"mentioned", "only_in_reasoning"} <= {hole.name for hole in report.holes}
    assert "not Paris" in {hole.text for hole in report.holes}
    assert not report.passed


GOLDS = ["Paris", "paris, France", "-1", ".5", "1/2", "x+1", "(1,2]", "東京", "Ā", "7 miles", "yes",
         "B", "not Rome", ["Rome", "Roma"], "a", "SELECT 1"]  # fmt: skip


@pytest.mark.parametrize("alone", [True, False])
def test_a_wrong_answer_never_contains_the_right_one(alone: bool) -> None:
    bare = usual_form("bare")
    others = [] if alone else ["not Paris", "Paris", "Roma", "Lima", ""]
    for gold in GOLDS:
        task = task_of(Prompt("p", text="?", answer=gold), bare, others)
        assert task is not None
        assert task.gold.casefold() not in task.wrong.casefold()
        assert task.wrong.strip()
        assert task.wrong not in gold
    task = task_of(
        Prompt("p", text="?", answer="Paris"), bare, others=["not Paris", "Lima", "Rome"]
    )
    assert task is not None
    assert (task.wrong, task.options) == ("Lima", ("Lima", "Paris", "Rome"))
    choices = {"choices": ["cats", "cat", "dog"]}
    chosen = task_of(Prompt("p", text="?", answer="cat", columns=choices), bare)
    assert chosen is not None
    assert chosen.wrong == "dog"


def always(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [1.0 for _each in answer]


def always_by_keyword(completions: list[str], **keywords: Any) -> list[float]:
    return [1.0 for _each in keywords["answer"]]


def inverted(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(c != a) for c, a in zip(completions, answer)]


def own_form(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [0.5 * c.endswith(f"ANSWER={a}") for c, a in zip(completions, answer)]


class Nothing(Verifier):
    """Declares that it compares with gold answers, and does not."""

    name = "nothing"
    needs_answer = True

    def score(self, cases: Any) -> list[float]:
        return [0.25] * len(cases)


@pytest.mark.parametrize("function", [always, always_by_keyword, inverted, own_form])
@pytest.mark.parametrize("rows", [CAPITALS, SUMS])
def test_right_answers_that_earn_no_more_than_wrong_ones_fail(
    function: Any, rows: list[LabelledRow]
) -> None:
    report = audit_function(function, rows)
    assert report.cannot_tell
    assert not report.passed
    assert "does not tell them apart" in report.text()
    assert not report.golds.count


def test_a_declared_verifier_or_a_named_column_that_tells_nothing_fails_too() -> None:
    def by_column(completions: list[str], solution: list[str], **_: Any) -> list[float]:
        return [1.0 for _each in solution]

    rows = [
        LabelledRow(a, Prompt(a, text=f"{a}?", answer=a, columns={"solution": a}), "", None)
        for a in ("Paris", "Rome")
    ]
    assert audit_function(by_column, rows).cannot_tell
    assert audit(Nothing(), CAPITALS, sets=()).cannot_tell
    assert audit(Composite([Component(Nothing())]), CAPITALS, sets=()).cannot_tell
    assert audit(compose([{"name": "format"}]), CAPITALS, sets=()).passed


def labelled(*texts: tuple[str, bool]) -> list[LabelledRow]:
    return [LabelledRow(t, CAPITALS[0].prompt, t, accept) for t, accept in texts]


def test_labelled_rows_show_that_a_verifier_tells_right_from_wrong() -> None:
    rows = labelled(("So ANSWER=Paris", True), ("So ANSWER=Rome", False), ("ANSWER=Paris", True))
    report = audit_function(own_form, rows)
    assert report.golds.total == 1  # one prompt, three rows
    assert report.passed, report.warnings
    assert audit_function(always, rows).cannot_tell
    assert audit_function(own_form, rows[:1]).cannot_tell  # only right ones
    assert audit_function(own_form, rows[1:2]).cannot_tell  # only wrong ones


def fewer_words(completions: list[str], **_: Any) -> list[float]:
    return [0.5 * (len(text.split()) < 50) for text in completions]


def test_a_reward_for_length_passes_with_gold_answers() -> None:
    report = audit_function(fewer_words, CAPITALS)
    assert report.passed, report.warnings
    assert any("verifier of format or length" in note for note in report.notes)


def longer_is_better(completions: list[str], **_: Any) -> list[float]:
    return [min(1.0, len(text) / 1000) for text in completions]


def test_length_alone_is_named_without_gold_answers_too() -> None:
    row = LabelledRow("p", Prompt("p", text="Write a poem."), "", accept=None)
    names = {hole.name for hole in audit_function(longer_is_better, [row]).holes}
    assert "very_long" in names
    assert "empty" not in names


SETUP = "create table t (a integer); insert into t values (1), (2), (3);"


def test_queries_have_probes_of_their_own() -> None:
    columns = {"setup": SETUP}
    prompt = Prompt("q", text=f"{SETUP}\nThe sum?", answer="select sum(a) from t", columns=columns)
    rows = [LabelledRow("q", prompt, "", accept=None)]
    report = audit(load_verifier("sql"), rows, sets=())
    assert {probe.name for probe in report.probes} == names("sql")
    assert report.holes == ()


@pytest.mark.parametrize("budget", [None, 60.0])
def test_a_function_that_hangs_ends_the_audit(budget: float | None) -> None:
    import time

    verifier = compose([{"name": "reward_functions:hangs", "time_limit": 0.3}])
    began = time.monotonic()
    report = audit(verifier, SUMS, sets=(), budget=budget)
    spent = time.monotonic() - began
    verifier.close()
    assert spent < 15  # three limits, and new workers in between
    assert report.outcomes == {"verifier_timeout": 3}
    (warning,) = report.warnings
    assert "3 texts in a row got no verdict in time" in warning
    assert "no verdict after 0.3 s" in warning
    assert warning.endswith("stopped, without gold answers, probes")


def test_timeouts_between_verdicts_do_not_end_the_audit() -> None:
    class Often(Verifier):
        name = "often"
        count = 0

        def score(self, cases: Any) -> list[Score]:
            self.count += 1
            late = self.count % 3 != 0
            return [Score(None, "verifier_timeout", "late") if late else Score(1.0, "correct")]

    scorer = Scorer(Often())
    prompts = [row.prompt for row in SUMS]
    scores = scorer.score(prompts, ["x"] * len(prompts))
    assert not scorer.ended
    assert scorer.outcomes == {"verifier_timeout": 11, "correct": 5}
    assert UNASKED not in scores


def test_the_budget_is_looked_at_before_every_verdict() -> None:
    scorer = Scorer(Slow(), budget=0.1)
    prompts = [SUMS[0].prompt] * 100
    scores = scorer.score(prompts, ["2"] * 100)
    asked = sum(score is not UNASKED for score in scores)
    assert 1 <= asked <= 6
    assert scorer.outcomes == {"correct": asked}
    assert scorer.score(prompts[:1], ["2"]) == [UNASKED]


def test_a_list_of_the_wrong_length_is_the_only_finding() -> None:
    report = of("reward_functions:one_short")
    assert report.raised.count == 1
    raised, stopped = report.warnings
    assert "expected 2 scores, one a completion; got 1" in raised
    assert "breaks its contract: stopped, without" in stopped
    assert "earns no more" not in report.text()


def test_equal_reasons_are_told_once() -> None:
    rows = [
        LabelledRow(f"row {n}", Prompt(f"row {n}", text=n, answer="no"), "", None) for n in "123"
    ]
    bad = LabelledRow("row 4", Prompt("row 4", text="?", answer="never"), "", None)
    (first, *_) = of("number", [*SUMS, *rows, bad]).warnings
    assert first.startswith("4 of 20 gold answers rejected: row 1 and 2 more: ")
    assert first.count("row ") == 2


def test_weights_are_warned_of_on_request() -> None:
    loose = compose([{"name": "number"}, {"name": "format", "arguments": {"kind": "boxed"}}])
    told = [audit(loose, SUMS, sets=(), weights=each).warnings for each in (True, False)]
    assert [any("as much as" in warning for warning in each) for each in told] == [True, False]
