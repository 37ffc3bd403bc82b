# ruff: noqa: E501 (tables: one case a line)
"""The proof verifier: z3 for real, in the sandbox; Lean by interface, on its recorded words."""

import time

import pytest

from groupwise.errors import RecipeError
from groupwise.sandbox import TrustedCallFailed
from groupwise.types import Prompt, Score
from groupwise.verifiers import load_verifier, verify
from groupwise.verifiers.code import proof as proof_module
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


NO_AXIOMS = "'two' does not depend on any axioms"
LEAN = {
    "proved": (Stub(), "rfl", "correct"),
    "the usual axioms": (Stub(0, "'two' depends on axioms: [propext, Quot.sound]"), "by simp", "correct"),
    "axioms on two lines": (Stub(0, "'two' depends on axioms: [propext,\n Classical.choice,\n Quot.sound]"), "by simp", "correct"),
    "no axioms, wrapped": (Stub(0, "'two' does not depend on\n any axioms"), "by simp", "correct"),
    "a warning before it": (Stub(0, "x.lean:1:1: warning: unused variable\n" + NO_AXIOMS), "by simp", "correct"),
    "sorry": (Stub(), "by sorry", "incorrect"),
    "sorry underneath": (Stub(0, "'two' depends on axioms: [sorryAx]"), "by exact foo", "incorrect"),
    "sorry on a second line": (Stub(0, "'two' depends on axioms: [propext,\n sorryAx]"), "by exact foo", "incorrect"),
    "sorry far below": (Stub(0, "'two' depends on axioms: [propext,\n Classical.choice,\n Quot.sound,\n sorryAx]"), "by exact foo", "incorrect"),
    "a list that does not end": (Stub(0, "'two' depends on axioms: [propext,"), "by exact foo", "incorrect"),
    "a list that is missing": (Stub(0, "'two' depends on axioms:"), "by exact foo", "incorrect"),
    "an axiom of the kernel's": (Stub(0, "'two' depends on axioms: [propext,\n Lean.ofReduceBool]"), "by decide", "incorrect"),
    "a warning of sorry": (Stub(0, "warning: declaration uses 'sorry'\n" + NO_AXIOMS), "by exact foo", "incorrect"),
    "its own axiom": (Stub(), "foo\naxiom foo : False", "incorrect"),
    "an error": (Stub(1, "error: unsolved goals"), "by simp", "incorrect"),
    "a command": (Stub(), "rfl\n#eval 1", "incorrect"),
    "says nothing": (Stub(0, ""), "rfl", "incorrect"),
    "says it twice": (Stub(0, f"{NO_AXIOMS}\n{NO_AXIOMS}"), "rfl", "incorrect"),
    "says both": (Stub(0, f"{NO_AXIOMS}\n'two' depends on axioms: [sorry2]"), "rfl", "incorrect"),
    "of another theorem": (Stub(0, "'too' does not depend on any axioms"), "rfl", "incorrect"),
    "stuck": (Stub(0, "stuck"), "rfl", "timeout"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEAN)
def test_lean_by_interface(name):
    stub, proof, outcome = LEAN[name]
    score = stub.check("theorem two : 1 + 1 = 2 :=", None, proof, Proof())
    assert score.outcome == outcome, score.reason
    if outcome == "correct":
        assert stub.source == f"theorem two : 1 + 1 = 2 := (\n{proof}\n)\n\n#print axioms two\n"


ESCAPES = [
    "sorry", "by admit", "sorryAx _ true", "by\n  exact (sorryAx\n _)", "by native_decide",
    "by run_tac do pure ()", "by_elab do return default", "by\n  set_option debug.skipKernelTC true in simp",
    "rfl\nmacro_rules | `(tactic| simp) => `(tactic| sorry)", "rfl\nelab \"x\" : term => return default",
    "rfl\nsyntax \"y\" : term", "rfl\nnotation \"z\" => 1", "rfl\nlocal infixl:65 \" ++ \" => f",
    "rfl\nattribute [simp] foo", "rfl\n@[implemented_by g] def f := 1", "rfl\nopen Lean Elab",
    "rfl\nnamespace A", "rfl\nend A", "rfl\ninstance : Inhabited False := ⟨foo⟩", "rfl theorem a : False := b",
    "rfl\nprivate theorem a : 1 = 1 := rfl", "rfl\nrun_cmd foo", "rfl\ninitialize foo : IO Unit",
    "rfl\nimport Foo", "rfl)\n#print axioms one\nexample := (rfl", "rfl)", "(rfl", "rfl /- open", "rfl\n/- a /- b -/",
    "rfl --)\n)", "1'(')", "<-- )\nrfl", "x //- )\nrfl", "Lean.Elab.Command.elabCommand x",
    "by exact «sorry»", 's!"{(by run_tac x)}"', "fun x => eval% foo", "include_str \"/etc/passwd\"",
    "rfl\nunsafe def f := 1", "rfl\ndeclare_syntax_cat foo", "rfl\nsimproc foo := x", "rfl\nopaque a : Nat",
    "rfl\nuniverse u", "rfl\nsection", "rfl\nextern_lib x := extern y", "[rfl)", "⟨rfl", "rfl⟩",
]  # fmt: skip
PROOFS = [
    "rfl", "by simp", "by\n  intro x\n  simp [foo, bar]\n  omega", "fun h => ⟨h.1, h.2⟩", "by decide -- an example",
    "by\n  /- the end of the section /- nested -/ -/\n  rfl", "by\n  induction n with\n  | zero => rfl\n  | succ k ih => simp [ih]",
    "by\n  have h' : a = b := by ring\n  exact h'", "by norm_num [Polynomial.eval]", "by rw [← h]; exact h.symm",
    "calc a = b := h₁\n  _ = c := h₂", "by\n  rcases h with ⟨x, hx⟩\n  exact ⟨x, by linarith⟩", "by exact?",
    "Nat.le_antisymm (by simp) (by simp)", "by simp only [Finset.sum_range_succ]; norm_num; ring",
]  # fmt: skip


@pytest.mark.parametrize("proof", ESCAPES)
def test_a_proof_holds_no_command_and_no_code(proof):
    score = Stub().check("theorem two : 1 + 1 = 2 :=", None, proof, Proof())
    assert (score.value, score.outcome) == (0.0, "incorrect")


@pytest.mark.parametrize("proof", PROOFS)
def test_ordinary_proofs_are_passed_to_lean(proof):
    assert Stub().check("theorem two : 1 + 1 = 2 :=", None, proof, Proof()).value == 1.0


def test_a_long_proof_is_read_in_linear_time():
    began = time.monotonic()
    for piece in ("(", "-", "/-", " --", "a.", "'", "«", "h' ", "/- -/ "):
        Stub().refused(piece * 20_000)
    assert time.monotonic() - began < 2.0


TERMS_TOO_LARGE = {
    "a large number": ("(declare-const a Int)", "(> a 0)", f"(> a {'9' * 19000})"),
    "a wide bit vector": ("(declare-const b (_ BitVec 4))", "b", "((_ extract 3 0) (bvmul ((_ zero_extend 100000000) b) ((_ zero_extend 100000000) b)))"),
    "a repeated bit vector": ("(declare-const b (_ BitVec 4))", "b", "((_ extract 3 0) ((_ repeat 500000000) b))"),
    "nested products": ("(declare-const a Int)", "a", "(* a " * 400 + "a" + ")" * 400),
    "powers": ("(declare-const a Int)", "a", "(^ 7 (^ 7 (^ 7 (^ 7 7))))"),
    "surrogates": ("(declare-const a Int)", "a", "(+ a \ud800)"),
    "an array": ("(declare-const b (_ BitVec 64))", "b", "(bvshl b (bvmul b (bvudiv b (bvurem b b))))"),
}  # fmt: skip


@pytest.mark.parametrize("name", TERMS_TOO_LARGE)
def test_no_term_chooses_to_be_left_out(name):
    statement, gold, term = TERMS_TOO_LARGE[name]
    limits = {"memory_megabytes": 64, "time_limit": 1.0}
    score = scored(term, statement, gold, goal="equivalent", **limits)
    assert score.value == 0.0, score
    assert score.outcome != "infrastructure_error"


MODELS_TOO_LARGE = [
    "x = 9" * 2000,
    "x = " + "9" * 900 + "\ny = 1",
    "x = \ud800\ny = 3",
    "(" * 5000,
    "x = " * 5000,
]


@pytest.mark.parametrize("given", MODELS_TOO_LARGE)
def test_no_model_chooses_to_be_left_out(given):
    assert scored(given, time_limit=2.0).value == 0.0


FAILURES = {"timeout": "timeout", "out_of_memory": "out_of_memory", "crash": "crash", "limit": "limit",
            "failed": "crash", "infrastructure_error": "infrastructure_error"}  # fmt: skip


@pytest.mark.parametrize("outcome", FAILURES)
def test_a_check_without_a_verdict_is_the_claims_doing_unless_the_sandbox_failed(outcome):
    score = proof_module._failed(TrustedCallFailed("check: no value", outcome))
    assert score.outcome == FAILURES[outcome]
    assert score.value == (None if outcome == "infrastructure_error" else 0.0)
    memory = TrustedCallFailed("check: Z3Exception: b'out of memory'", "failed")
    assert proof_module._failed(memory).outcome == "out_of_memory"


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
    with pytest.raises(RecipeError, match="is not a groupwise"):
        load_verifier("proof", checker="test_proof:TERMS")
    with pytest.raises(RecipeError, match="no module"):
        load_verifier("proof", checker="no_such_module:Class")
