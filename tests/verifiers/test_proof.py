# ruff: noqa: E501 (tables: one case a line)
"""The proof verifier: a checker command on a file; Lean's recorded words instead of Lean."""

import sys
import time

import pytest

from groupwise.errors import RecipeError
from groupwise.types import Prompt
from groupwise.verifiers import load_verifier, verify
from groupwise.verifiers.code import proof as proof_module
from groupwise.verifiers.code.proof import refused_token

TWO = "theorem two : 1 + 1 = 2 :="
NO_AXIOMS = "'two' does not depend on any axioms"


@pytest.fixture
def command(tmp_path):
    """A checker command: a script that gets the file's path as its last argument."""

    def made(script):
        path = tmp_path / "checker.py"
        path.write_text(
            f"import pathlib, sys, time\nsource = pathlib.Path(sys.argv[-1]).read_text()\n{script}"
        )
        return f"{sys.executable} -I -S {path}"

    return made


def scored(checker, completion, statement=TWO, **arguments):
    return verify(
        "proof",
        completion=completion,
        columns={"statement": statement},
        checker=checker,
        **arguments,
    )


def recorded(command, seen, code, output):
    """Lean's own words, and the file that it was given."""
    return command(
        f"pathlib.Path({str(seen)!r}).write_text(source)\nprint({output!r})\nsys.exit({code})"
    )


LEAN = {
    "proved": ((0, NO_AXIOMS), "rfl", "correct"),
    "the usual axioms": ((0, "'two' depends on axioms: [propext, Quot.sound]"), "by simp", "correct"),
    "axioms on two lines": ((0, "'two' depends on axioms: [propext,\n Classical.choice,\n Quot.sound]"), "by simp", "correct"),
    "no axioms, wrapped": ((0, "'two' does not depend on\n any axioms"), "by simp", "correct"),
    "a warning before it": ((0, "x.lean:1:1: warning: unused variable\n" + NO_AXIOMS), "by simp", "correct"),
    "sorry": ((0, NO_AXIOMS), "by sorry", "incorrect"),
    "sorry underneath": ((0, "'two' depends on axioms: [sorryAx]"), "by exact foo", "incorrect"),
    "sorry on a second line": ((0, "'two' depends on axioms: [propext,\n sorryAx]"), "by exact foo", "incorrect"),
    "sorry far below": ((0, "'two' depends on axioms: [propext,\n Classical.choice,\n Quot.sound,\n sorryAx]"), "by exact foo", "incorrect"),
    "a list that does not end": ((0, "'two' depends on axioms: [propext,"), "by exact foo", "incorrect"),
    "a list that is missing": ((0, "'two' depends on axioms:"), "by exact foo", "incorrect"),
    "an axiom of the kernel's": ((0, "'two' depends on axioms: [propext,\n Lean.ofReduceBool]"), "by decide", "incorrect"),
    "a warning of sorry": ((0, "warning: declaration uses 'sorry'\n" + NO_AXIOMS), "by exact foo", "incorrect"),
    "its own axiom": ((0, NO_AXIOMS), "foo\naxiom foo : False", "incorrect"),
    "an error": ((1, "error: unsolved goals"), "by simp", "incorrect"),
    "a command": ((0, NO_AXIOMS), "rfl\n#eval 1", "incorrect"),
    "says nothing": ((0, ""), "rfl", "incorrect"),
    "says it twice": ((0, f"{NO_AXIOMS}\n{NO_AXIOMS}"), "rfl", "incorrect"),
    "says both": ((0, f"{NO_AXIOMS}\n'two' depends on axioms: [sorry2]"), "rfl", "incorrect"),
    "of another theorem": ((0, "'too' does not depend on any axioms"), "rfl", "incorrect"),
    }  # fmt: skip


@pytest.mark.parametrize("name", LEAN)
def test_lean_s_words_become_a_verdict(name, command, tmp_path):
    (code, output), proof, outcome = LEAN[name]
    seen = tmp_path / "seen"
    score = scored(recorded(command, seen, code, output), proof)
    assert score.outcome == outcome, score.reason
    if outcome == "correct":
        assert score.value == 1.0
        assert seen.read_text() == f"{TWO} (\n{proof}\n)\n\n#print axioms two\n"


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
def test_a_proof_holds_no_command_and_no_code(proof, command):
    score = scored(command(f"print({NO_AXIOMS!r})"), proof)
    assert (score.value, score.outcome) == (0.0, "incorrect")


def test_ordinary_proofs_are_passed_to_lean(command, tmp_path):
    checker = recorded(command, tmp_path / "seen", 0, NO_AXIOMS)
    for proof in PROOFS:
        assert scored(checker, proof).value == 1.0, proof
    commented = "by\n  /- one /- two -/ ) -/\n  rfl -- three )"
    assert scored(checker, commented).value == 1.0
    assert (tmp_path / "seen").read_text().split() == f"{TWO} ( by rfl ) #print axioms two".split()


def test_a_long_proof_is_read_in_linear_time():
    began = time.monotonic()
    for piece in ("(", "-", "/-", " --", "a.", "'", "«", "h' ", "/- -/ ", " /- "):
        proof_module._COMMENT.sub(" ", piece * 20_000)
        refused_token(piece * 20_000)
    assert time.monotonic() - began < 2.0


def test_the_exit_code_of_another_checker_decides(command):
    checker = command("print('read', source.split()[-1])\nsys.exit(source != 'S\\nQED\\n')")
    assert scored(checker, "QED", "S", suffix=".v").outcome == "correct"
    score = scored(checker, "```v\nsorry\n```", "S", suffix=".v")
    assert (score.value, score.outcome, score.reason) == (0.0, "incorrect", "read sorry")
    assert scored(checker, "<think>QED</think>", "S", suffix=".v").outcome == "no_answer"


def test_a_checker_that_hangs_is_ended_with_what_it_started(command, tmp_path):
    late = tmp_path / "late"
    child = f"import time, pathlib; time.sleep(1.5); pathlib.Path({str(late)!r}).write_text('x')"
    checker = command(
        f"import subprocess\nsubprocess.Popen([sys.executable, '-c', {child!r}])\ntime.sleep(60)"
    )
    began = time.monotonic()
    score = scored(checker, "rfl", time_limit=0.7)
    assert (score.value, score.outcome) == (0.0, "timeout")
    assert time.monotonic() - began < 10
    time.sleep(1.5)
    assert not late.exists()


def test_output_without_an_end_earns_nothing(command, monkeypatch):
    monkeypatch.setattr(proof_module, "MAX_OUTPUT", 100)
    assert scored(command(f"print({NO_AXIOMS!r})"), "rfl").value == 1.0
    assert scored(command(f"print('x' * 200)\nprint({NO_AXIOMS!r})"), "rfl").value == 0.0


def test_faults_of_the_data(command):
    checker = command("sys.exit('simp' in source and 'unsolved')")
    assert scored(checker, "rfl", "1 + 1 = 2").outcome == "bad_answer"
    assert scored(checker, "rfl", " ").outcome == "bad_answer"
    verifier = load_verifier("proof", checker=checker, suffix=".v")
    rows = [
        Prompt(each, text="q", answer=each, columns={"statement": "s"}) for each in ("rfl", "simp")
    ]
    good, bad = verifier.check_answers(rows)
    assert good is None
    assert "unsolved" in bad


def test_checkers_by_name():
    with pytest.raises(RecipeError, match="z3 was removed; give a command of yours"):
        load_verifier("proof", checker="z3")
    with pytest.raises(RecipeError, match="no such command is installed"):
        load_verifier("proof", checker="no-such-checker --quiet")
    with pytest.raises(RecipeError, match="no such command is installed"):
        load_verifier("proof", checker="")
