# ruff: noqa: E501 (tables: one case a line)
"""The proof verifier: z3 for real, in the sandbox; Lean by interface, on its recorded words."""

import pytest

from groupwise.errors import RecipeError
from groupwise.types import Prompt, Score
from groupwise.verifiers import load_verifier, verify
from groupwise.verifiers.code.proof import Checker, LeanChecker, Proof

pytest.importorskip("z3", reason="z3-solver is not installed (extra `proof`)")

LINEAR = """
(declare-const x Int) (declare-const y Int)
(assert (= (+ x y) 10)) (assert (> x (* 2 y)))
"""
TERMS = "(declare-const a Int) (declare-const b Int) (declare-const p Bool)"


def scored(completion, statement=LINEAR, answer=None, **arguments):
    return verify(
        "proof", completion=completion, answer=answer, columns={"statement": statement}, **arguments
    )


MODELS = {
    "lines": ("x = 7\ny = 3", "correct"),
    "smt": ("```smt\n(x 8)\n(y 2)\n```", "correct"),
    "negative": ("x = 12\ny = (- 2)", "correct"),
    "wrong": ("x = 6\ny = 4", "incorrect"),
    "one missing": ("x = 7", "no_answer"),
    "no number": ("x = 7\ny = seven", "no_answer"),
    "a term": ("x = (- 10 y)\ny = 3", "no_answer"),
    "nothing": (" ", "no_answer"),
    "a printed model": (
        "```smt2\n(\n  (define-fun y () Int\n    (- 2))\n  (define-fun x () Int 12)\n)\n```",
        "correct",
    ),
    "a wrong printed model": ("(define-fun x () Int 6)\n(define-fun y () Int 4)", "incorrect"),
    "one line": ("x = 7, y = 3", "correct"),
    "a sentence": ("x = 7 and y = 3.", "correct"),
    "marked": ("- **x = 7**\n2. $y = 3$", "correct"),
    "a negative number with a mark": ("- x = 12\n- y = - 2", "correct"),
    "two numbers": ("x = 7 0\ny = -60", "no_answer"),
    "a thousand": ("x = 7,000\ny = 3", "no_answer"),
    "two at once": ("x = 7 or x = 8\ny = 3", "no_answer"),
    "the last one counts": ("x = 7\ny = 3\nx = 6", "incorrect"),
    "an output behind it": ("```smt2\nx = 7\ny = 3\n```\nIt gives:\n```\n10\n```", "correct"),
    "an assertion of its own": ("x = 1\ny = 1\n(assert false)", "incorrect"),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name):
    completion, outcome = MODELS[name]
    assert scored(completion).outcome == outcome


def test_models_of_other_sorts():
    statement = """
    (declare-const r Real) (declare-const b Bool) (declare-const v (_ BitVec 8))
    (assert (= (* 2 r) 1)) (assert (not b)) (assert (= (bvadd v #x01) #x00))
    """
    assert scored("r = 1/2\nb = false\nv = #xff", statement).value == 1.0
    assert scored("r = 0.5\nb = false\nv = 255", statement).value == 1.0
    assert scored("r = 1 / 2\nb = false\nv = - 1", statement).value == 1.0
    assert scored("r = 0.5\nb = false\nv = 254", statement).value == 0.0


BITS = {
    "#x0f": 1.0, "#b00001111": 1.0, "15": 1.0, "-241": 0.0, "271": 0.0, "#x10f": 0.0, "#xf": 0.0,
    "#b1111": 0.0, "#b100001111": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("value", BITS)
def test_a_bit_vector_is_written_to_its_width_or_fits_into_it(value):
    statement = "(declare-const v (_ BitVec 8)) (assert (= v #x0f))"
    assert scored(f"v = {value}", statement).value == BITS[value]


def test_a_negative_bit_vector():
    statement = "(declare-const v (_ BitVec 8)) (assert (= (bvadd v #x01) #x00))"
    assert scored("v = -1", statement).value == 1.0
    assert scored("v = -257", statement).value == 0.0


@pytest.mark.parametrize(
    "value", ["(- (/ 1.0 2.0))", "(/ (- 1) 2)", "-1/2", "-0.5", "(- 0.5)", "(- (/ 1 2))"]
)
def test_fractions_as_z3_prints_them(value):
    score = scored(
        f"(define-fun r () Real {value})", "(declare-const r Real) (assert (= (* 2 r) (- 1)))"
    )
    assert score.outcome == ("no_answer" if value == "(/ (- 1) 2)" else "correct")


def test_terms_under_assumptions_that_contradict_themselves_are_the_datas_fault():
    positive = f"{TERMS} (assert (> a 0))"
    assert scored("true", positive, "(> a 0)", goal="equivalent").value == 1.0
    nothing = f"{positive} (assert (< a 0))"
    assert scored("b", nothing, "a", goal="equivalent").outcome == "bad_answer"


TERM_CASES = {
    "the same": ("(+ a b)", "(+ a b)", "correct"),
    "commuted": ("(+ a b)", "(+ b a)", "correct"),
    "de morgan": ("(not (and p (> a 0)))", "(or (not p) (<= a 0))", "correct"),
    "different": ("(+ a b)", "(- a b)", "incorrect"),
    "unbalanced": ("(+ a b)", "(+ a b", "no_answer"),
    "two terms": ("(+ a b)", "(+ a b) (+ a b)", "no_answer"),
    "a command smuggled in": ("(+ a b)", "a))) (assert false) (assert (not (= a a", "no_answer"),
    "a comment": ("(+ a b)", "(+ a ; b\n b)", "no_answer"),
    "unknown name": ("(+ a b)", "(+ a c)", "no_answer"),
    "another sort": ("(+ a b)", "p", "incorrect"),
}


@pytest.mark.parametrize("name", TERM_CASES)
def test_terms(name):
    gold, given, outcome = TERM_CASES[name]
    score = scored(given, TERMS, gold, goal="equivalent")
    assert score.outcome == outcome, score.reason


def test_a_hard_claim_is_a_timeout_of_value_zero():
    statement = "(declare-const a Int) (declare-const b Int) (declare-const c Int)"
    hard = "(and (> a 2) (> b 2) (> c 2) (= (+ (* a a a a a) (* b b b b b)) (* c c c c c)))"
    score = scored(hard, statement, "(> a 900000)", goal="equivalent", time_limit=1.0)
    assert score.value == 0.0
    assert score.outcome in ("timeout", "incorrect")
    tower = "(and (> a 2) (> b 2) (= (+ (* a a a) (* b b b)) (* c c c)) (> c 2) (> a b))"
    assert scored(tower, statement, "(and p false)", goal="equivalent").outcome == "bad_answer"


def test_faults_of_the_data():
    assert scored("x = 7", "(assert (= x").outcome == "bad_answer"
    assert scored("x = 7", "(declare-const x Int)").outcome == "bad_answer"
    assert scored("(+ a b)", TERMS, None, goal="equivalent").outcome == "bad_answer"
    verifier = load_verifier("proof")
    rows = [Prompt(str(n), text="q", answer=f"x = {n}\ny = 3", columns={"statement": LINEAR})
            for n in (7, 6)]  # fmt: skip
    good, bad = verifier.check_answers(rows)
    assert good is None
    assert "does not hold" in bad


class Stub(LeanChecker):
    """Lean's own words, recorded, instead of Lean."""

    def __init__(self, code=0, output="'two' does not depend on any axioms"):
        self.code, self.output, self.source = code, output, ""

    def run(self, source, time_limit):
        self.source = source
        if self.output == "stuck":
            raise TimeoutError
        return self.code, self.output


LEAN = {
    "proved": (Stub(), "rfl", "correct"),
    "the usual axioms": (Stub(0, "'two' depends on axioms: [propext, Quot.sound]"), "by simp", "correct"),
    "sorry": (Stub(), "by sorry", "incorrect"),
    "sorry underneath": (Stub(0, "'two' depends on axioms: [sorryAx]"), "by exact foo", "incorrect"),
    "its own axiom": (Stub(), "foo\naxiom foo : False", "incorrect"),
    "an error": (Stub(1, "error: unsolved goals"), "by simp", "incorrect"),
    "a command": (Stub(), "rfl\n#eval 1", "incorrect"),
    "says nothing": (Stub(0, ""), "rfl", "incorrect"),
    "says it twice": (Stub(0, "'two' does not depend on any axioms\n" * 2), "rfl", "incorrect"),
    "stuck": (Stub(0, "stuck"), "rfl", "timeout"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEAN)
def test_lean_by_interface(name):
    stub, proof, outcome = LEAN[name]
    score = stub.check("theorem two : 1 + 1 = 2 :=", None, proof, Proof())
    assert score.outcome == outcome, score.reason
    if outcome == "correct":
        assert stub.source == f"theorem two : 1 + 1 = 2 :=\n{proof}\n\n#print axioms two\n"


class Even(Checker):
    def check(self, statement, answer, given, settings):
        right = len(given) % 2 == 0
        return Score(float(right), "correct" if right else "incorrect", statement)


def test_checkers_by_name():
    arguments = {"completion": "ab", "columns": {"statement": "s"}}
    assert verify("proof", checker="test_proof:Even", **arguments).value == 1.0
    with pytest.raises(RecipeError, match="interface"):
        load_verifier("proof", checker="lean")
    with pytest.raises(RecipeError, match="z3 or module:Class"):
        load_verifier("proof", checker="coq")
    with pytest.raises(RecipeError, match="is no groupwise"):
        load_verifier("proof", checker="test_proof:TERMS")
    with pytest.raises(RecipeError, match="no module"):
        load_verifier("proof", checker="no_such_module:Class")
