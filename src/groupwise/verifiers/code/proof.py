"""The `proof` verifier: a completion that a named checker accepts.

`z3` checks models and terms of SMT-LIB in the code sandbox, where `z3-solver` is installed. Any
other checker is a class of yours (`module:Class`, a `Checker`); `LeanChecker` is the frame of one
for Lean 4, which needs a toolchain that no package registry has.
"""

from __future__ import annotations

import importlib.util
import re
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from groupwise.errors import RecipeError
from groupwise.imports import import_object
from groupwise.sandbox import Limits, TierChoice, TrustedCallFailed, shared_sandbox
from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.extraction import after_reasoning
from groupwise.verifiers.code import proof_z3
from groupwise.verifiers.code.extraction import blocks_of
from groupwise.verifiers.core.contract import Case, SettingsVerifier
from groupwise.verifiers.core.scores import TAG, bad_answer, no_answer

Goal = Literal["satisfies", "equivalent"]
_FENCES = {"smt", "smt2", "smtlib", "lean", "lean4"}


class Checker(ABC):
    """Judges what a completion claims about a statement."""

    @abstractmethod
    def check(self, statement: str, answer: Any, given: str, settings: Proof) -> Score:
        """`statement` and `answer` are the row's, `given` is what the completion wrote.

        A claim that is wrong, overruns or crashes the checker is a 0; `bad_answer` is the row's
        fault and `infrastructure_error` the machine's.
        """


class Proof(SettingsVerifier):
    """A model or a term that z3 accepts, or a proof that a checker of yours accepts.

    The column `statement` holds the problem. For z3: SMT-LIB declarations and assertions.
    `goal = "satisfies"`: the completion assigns every constant a value, one `name = value` a line.
    `goal = "equivalent"`: the completion is a term that equals the gold answer's everywhere.
    """

    verifier_name: ClassVar[str] = "proof"

    checker: str = Field(
        default="z3", description="`z3`, or `module:Class` of a class derived from `Checker`."
    )
    goal: Goal = Field(default="satisfies", description="What z3 is to decide.")
    statement_column: str = Field(
        default="statement", description="The column with the problem's statement."
    )
    time_limit: float = Field(
        default=10.0, gt=0, description="Seconds for one check; overrunning is `timeout`, value 0."
    )
    memory_megabytes: int = Field(default=2048, ge=64, description="Memory for one check.")
    tier: TierChoice = Field(default="auto", description="The sandbox's tier, as for `code`.")
    reasoning_tag: str = Field(default="think", description=TAG)

    @field_validator("checker")
    @classmethod
    def _known(cls, checker: str) -> str:
        if checker == "lean":
            raise ValueError(
                "Lean 4 is an interface here: derive a class from "
                "groupwise.verifiers.code.proof.LeanChecker and name it as module:Class"
            )
        if checker != "z3" and ":" not in checker:
            raise ValueError("give z3 or module:Class")
        _checker(checker)
        return checker

    @property
    def required_columns(self) -> frozenset[str]:
        return frozenset({self.statement_column})

    @property
    def needs_answer(self) -> bool:
        return self.checker == "z3" and self.goal == "equivalent"

    def gold_completion(self, prompt: Prompt) -> str | None:
        return prompt.answer if isinstance(prompt.answer, str) else None

    def score_case(self, case: Case) -> Score:
        statement = case.prompt.columns.get(self.statement_column)
        if not isinstance(statement, str) or not statement.strip():
            return bad_answer(f"no column {self.statement_column!r} with a statement")
        if self.needs_answer and not isinstance(case.prompt.answer, str):
            return bad_answer("the prompt has no gold term")
        text = after_reasoning(case.whole, self.reasoning_tag) or ""
        blocks = blocks_of(text, _FENCES)
        given = blocks[-1] if blocks else text
        if not given.strip():
            return no_answer("nothing after the reasoning")
        return _checker(self.checker).check(statement, case.prompt.answer, given, self)


class Z3Checker(Checker):
    """z3 in the code sandbox, with the installed `z3-solver` readable there."""

    def __init__(self) -> None:
        if importlib.util.find_spec("z3") is None:
            raise RecipeError(
                "verifier 'proof': z3 is not installed; pip install z3-solver (or groupwise[proof])"
            )

    def check(self, statement: str, answer: Any, given: str, settings: Proof) -> Score:
        limits = Limits(
            time=settings.time_limit,
            total_time=settings.time_limit,
            memory=settings.memory_megabytes << 20,
            threads=True,
        )
        arguments = (settings.goal, statement, answer if settings.needs_answer else "", given)
        sandbox = shared_sandbox(settings.tier, ("z3",))
        try:
            kind, why = sandbox.evaluate(proof_z3.SOURCE, "check", arguments, limits=limits)
        except TrustedCallFailed as error:
            return _failed(error)
        return z3_score(kind, str(why)[:300])


def z3_score(kind: str, why: str) -> Score:
    """What the checker's verdict is worth."""
    if kind == "bad":
        return bad_answer(why)
    if kind == "no_answer":
        return no_answer(why)
    right = kind == "right"
    return Score(float(right), "correct" if right else "incorrect", why)


def _failed(error: TrustedCallFailed) -> Score:
    """A check that ended without a verdict: the claim's doing, unless the sandbox failed."""
    reason = str(error)[:300]
    if error.outcome == "infrastructure_error":
        return Score(None, "infrastructure_error", reason)
    if error.outcome == "out_of_memory" or "out of memory" in reason.lower():
        return Score(0.0, "out_of_memory", reason)
    outcome = error.outcome if error.outcome in ("timeout", "limit") else "crash"
    return Score(0.0, outcome, reason)


@lru_cache(maxsize=16)
def _checker(name: str) -> Checker:
    if name == "z3":
        return Z3Checker()
    found = import_object(name, "checker")
    made = found() if isinstance(found, type) else found
    if not isinstance(made, Checker):
        raise RecipeError(f"checker {name!r} is not a groupwise.verifiers.code.proof.Checker")
    return made


class LeanChecker(Checker):
    """Lean 4: the statement is a theorem up to `:=`, the completion one term or `by` block.

    `run` is yours: it passes the file to Lean in isolation and returns exit code and output. What
    is judged here: the proof is one term, in parentheses that it cannot close, so that it holds no
    command; no word of it elaborates code of its own or turns a check off; Lean reports no error,
    and no axiom but Lean's own three.
    """

    FORBIDDEN: ClassVar[frozenset[str]] = frozenset({
        "sorry", "admit", "sorryAx", "native_decide", "ofReduceBool", "unsafe", "set_option",
        "run_tac", "by_elab", "elab", "macro", "syntax", "eval%", "include_str", "initialize",
        "Lean", "Elab", "Meta", "Macro", "IO", "dbg_trace", "implemented_by", "extern", "axiom",
        "import", "instance", "attribute", "open", "export", "namespace", "section", "end",
        "theorem", "lemma", "def", "abbrev", "example", "opaque", "structure", "inductive", "class",
        "mutual", "universe", "variable", "notation", "infix", "infixl", "infixr", "prefix",
        "postfix", "macro_rules", "elab_rules", "declare_syntax_cat", "simproc", "run_cmd",
        "run_elab", "run_meta", "add_decl_doc", "deriving", "private", "protected", "partial",
        "noncomputable", "local", "scoped", "builtin_initialize",
    })  # fmt: skip
    AXIOMS: ClassVar[frozenset[str]] = frozenset({"propext", "Classical.choice", "Quot.sound"})

    @abstractmethod
    def run(self, source: str, time_limit: float) -> tuple[int, str]:
        """Exit code and whole output of Lean on `source`; `TimeoutError` when it overran."""

    def check(self, statement: str, answer: Any, given: str, settings: Proof) -> Score:
        found = re.search(r"\b(?:theorem|lemma)\s+([^\s:({\[]+)", statement)
        if found is None:
            return bad_answer("the statement names no theorem")
        refused = self.refused(given)
        if refused:
            return Score(0.0, "incorrect", f"a proof may not use {refused}")
        source = f"{statement.rstrip()} (\n{given.strip()}\n)\n\n#print axioms {found[1]}\n"
        try:
            code, output = self.run(source, settings.time_limit)
        except TimeoutError:
            return Score(0.0, "timeout", f"no verdict after {settings.time_limit:g} s")
        return self.judged(code, output, found[1])

    def refused(self, proof: str) -> str:
        """The first thing that a proof may not hold; empty where there is none."""
        closing = {"(": ")", "[": "]", "{": "}", "⟨": "⟩"}
        opened: list[str] = []
        place = 0
        while place < len(proof):
            token = _LEAN_TOKEN.match(proof, place)
            text = token.group() if token else proof[place]
            comment = text.startswith(("--", "/-"))
            if comment and place and not proof[place - 1].isspace():
                return f"{text[:2]} behind {proof[place - 1]}"  # Lean may read both as one symbol
            place += len(text)
            if text == "/-":
                place = _comment_end(proof, place)
                if place < 0:
                    return "a comment that does not end"
            elif text in closing:
                opened.append(closing[text])
            elif text in closing.values() and (not opened or opened.pop() != text):
                return f"an unopened {text}"
            elif not comment and (text in _LEAN_MARKS or self.FORBIDDEN & set(text.split("."))):
                return text
        return "an unclosed bracket" if opened else ""

    def judged(self, code: int, output: str, theorem: str) -> Score:
        """The verdict on Lean's own output about `theorem`, whose list of axioms may be wrapped."""
        if code != 0 or "error:" in output or "sorry" in output:
            return Score(0.0, "incorrect", output.strip()[:300] or f"exit code {code}")
        name = re.escape(theorem)
        reported = re.findall(
            rf"'{name}'\s+(?:does\s+not\s+depend\s+on\s+any\s+axioms()|"
            r"depends\s+on\s+axioms:\s*\[([^\]]*)\])",
            output,
        )
        if len(reported) != 1 or len(re.findall(rf"'{name}'\s+d", output)) != 1:
            return Score(0.0, "incorrect", "Lean reported no axioms, or more than once")
        axioms = {each.strip() for each in reported[0][1].split(",") if each.strip()}
        if axioms - self.AXIOMS:
            return Score(0.0, "incorrect", f"rests on {', '.join(sorted(axioms - self.AXIOMS))}")
        return Score(1.0, "correct", f"proved: {theorem}")


_LEAN_MARKS = {'"', "'", "«", "»", "#", "@["}
_LEAN_TOKEN = re.compile(r"--[^\n]*+|/-|@\[|[^\W\d][\w.?!%']*+|\d\w*+")
"""A line comment, the start of a block comment or of attributes, a name with its dots, a number."""


def _comment_end(text: str, place: int) -> int:
    """Behind a block comment whose content begins at `place`; comments nest. -1 without an end."""
    depth = 1
    for mark in re.compile(r"/-|-/").finditer(text, place):
        depth += 1 if mark.group() == "/-" else -1
        if depth == 0:
            return mark.end()
    return -1
