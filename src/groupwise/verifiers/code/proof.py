"""The `proof` verifier: a checker command, Lean 4 by default, judges a file with the proof.

The command runs as your user, outside the code sandbox. What isolates it belongs to the command, as
`bwrap ... lean`. Lean comes with no package: install its toolchain.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator

from groupwise.types import Prompt, Score
from groupwise.verifiers.answers.extraction import after_reasoning
from groupwise.verifiers.code.extraction import blocks_of
from groupwise.verifiers.core.contract import Case, SettingsVerifier
from groupwise.verifiers.core.scores import TAG, bad_answer, no_answer

MAX_OUTPUT = 1 << 20
_AXIOMS = {"propext", "Classical.choice", "Quot.sound"}
_FORBIDDEN = """
    sorry admit sorryAx native_decide ofReduceBool unsafe set_option run_tac by_elab elab macro
    syntax eval% include_str initialize Lean Elab Meta Macro IO dbg_trace implemented_by extern
    axiom import instance attribute open export namespace section end theorem lemma def abbrev
    example opaque structure inductive class mutual universe variable notation infix infixl infixr
    prefix postfix macro_rules elab_rules declare_syntax_cat simproc run_cmd run_elab run_meta
    add_decl_doc deriving private protected partial noncomputable local scoped builtin_initialize
    -- /- -/ @[ # " ' « »
"""
"""What elaborates code of its own, turns a check off, begins a command, or hides one of these."""
_TOKEN = re.compile(r"--|/-|-/|@\[|[^\W\d][\w.?!%']*+|\d\w*+|\S")
_COMMENT = re.compile(r"(?<!\S)--[^\n]*+|(?<!\S)/-(?:(?!/-|-/)[\s\S])*+-/")
_CLOSING = {"(": ")", "[": "]", "{": "}", "⟨": "⟩"}


class Proof(SettingsVerifier):
    """A proof that a checker command accepts: exit code 0 within the time limit.

    The column `statement` holds what is to be proved; the file is the statement, a line end and the
    completion. In Lean the statement is a theorem up to `:=` and the completion one term or `by`
    block without commands; Lean may report no error and no axiom but its own three.
    """

    verifier_name: ClassVar[str] = "proof"

    checker: str = Field(
        default="lean",
        description='The command, as "lake env lean"; the file\'s path is its last argument.',
    )
    suffix: str = Field(
        default=".lean",
        description="How the file's name ends. With another one than .lean the exit code decides.",
    )
    statement_column: str = Field(default="statement", description="The column with the statement.")
    time_limit: float = Field(
        default=60.0, gt=0, description="Seconds for one check; overrunning is `timeout`, value 0."
    )
    reasoning_tag: str = Field(default="think", description=TAG)

    @field_validator("checker")
    @classmethod
    def _installed(cls, checker: str) -> str:
        if checker == "z3":
            raise ValueError("z3 was removed; give a command of yours, or a verifier module:Class")
        if not (words := shlex.split(checker)) or shutil.which(words[0]) is None:
            raise ValueError('no such command is installed; give one, as "lake env lean"')
        return checker

    @property
    def required_columns(self) -> frozenset[str]:
        return frozenset({self.statement_column})

    def gold_completion(self, prompt: Prompt) -> str | None:
        return (isinstance(prompt.answer, str) and prompt.answer.strip()) or None

    def score_case(self, case: Case) -> Score:
        statement = case.prompt.columns.get(self.statement_column)
        if not isinstance(statement, str) or not statement.strip():
            return bad_answer(f"no column {self.statement_column!r} with a statement")
        text = after_reasoning(case.whole, self.reasoning_tag) or ""
        blocks = blocks_of(text, {"lean", "lean4", self.suffix.lstrip(".")})
        proof = (blocks[-1] if blocks else text).strip()
        if not proof:
            return no_answer("nothing after the reasoning")
        if self.suffix != ".lean":
            return self._judged(f"{statement.rstrip()}\n{proof}\n")
        theorem = re.search(r"\b(?:theorem|lemma)\s+([^\s:({\[]+)", statement)
        if theorem is None:
            return bad_answer("the statement names no theorem")
        for _ in range(8):  # comments nest
            proof = _COMMENT.sub(" ", proof).strip()
        if refused := refused_token(proof):
            return Score(0.0, "incorrect", f"a proof may not use {refused}")
        source = f"{statement.rstrip()} (\n{proof}\n)\n\n#print axioms {theorem[1]}\n"
        return self._judged(source, theorem[1])

    def _judged(self, source: str, theorem: str = "") -> Score:
        try:
            code, output = self._run(source)
        except subprocess.TimeoutExpired:
            return Score(0.0, "timeout", f"no verdict after {self.time_limit:g} s")
        except OSError as error:
            return Score(None, "infrastructure_error", f"{self.checker}: {error}"[:300])
        if code or len(output) > MAX_OUTPUT or (theorem and re.search("error:|sorry", output)):
            return Score(0.0, "incorrect", output.strip()[:300] or f"exit code {code}")
        wrong = wrong_axioms(output, theorem) if theorem else ""
        return Score(float(not wrong), "incorrect" if wrong else "correct", wrong or "proved")

    def _run(self, source: str) -> tuple[int, str]:
        """Exit code and output of the checker on a file; `TimeoutExpired` after killing it."""
        with tempfile.TemporaryDirectory(prefix="groupwise-proof-") as folder:
            path, log = Path(folder, f"proof{self.suffix}"), Path(folder, "output")
            path.write_text(source, encoding="utf-8", errors="replace")
            with log.open("w+b") as output:
                process = subprocess.Popen(
                    [*shlex.split(self.checker), str(path)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                try:
                    code = process.wait(self.time_limit)
                finally:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                output.seek(0)
                return code, output.read(MAX_OUTPUT + 1).decode("utf-8", "replace")


def refused_token(proof: str) -> str:
    """What keeps a Lean proof from being one term without commands; empty if nothing does."""
    words, opened = set(_FORBIDDEN.split()), list[str]()
    text: str
    for text in _TOKEN.findall(proof):
        if text in _CLOSING:
            opened.append(_CLOSING[text])
        elif text in _CLOSING.values() and (not opened or opened.pop() != text):
            return f"an unopened {text}"
        elif not words.isdisjoint({text, *text.split(".")}):
            return text
    return "an unclosed bracket" if opened else ""


def wrong_axioms(output: str, theorem: str) -> str:
    """What is wrong with Lean's report of a theorem's axioms, whose list may be wrapped."""
    report = (
        rf"'{re.escape(theorem)}'\s+(?:does\s+not\s+depend\s+on\s+any\s+axioms()|"
        r"depends\s+on\s+axioms:\s*\[([^\]]*)\])"
    )
    reported = re.findall(report, output)
    if len(reported) != 1 or len(re.findall(rf"'{re.escape(theorem)}'\s+d", output)) != 1:
        return "Lean reported no axioms, or more than once"
    axioms = {each.strip() for each in reported[0][1].split(",")} - {"", *_AXIOMS}
    return f"rests on {', '.join(sorted(axioms))}" if axioms else ""
