"""`groupwise init KIND NAME`: one file and its test, to be filled in."""

from __future__ import annotations

import keyword
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from groupwise.cli import environment_scaffold, loss_scaffold
from groupwise.errors import RecipeError
from groupwise.records.files import check_place, write_for_user

_MODULE = '''"""The {name} verifier: 1 if the last line is the gold answer, else 0.

Use it in a recipe:

    [[environment.verifiers]]
    name = "{name}:{class_name}"

Audit it before training: groupwise audit {name}:{class_name} --data rows.jsonl
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from groupwise.types import Score
from groupwise.verifiers import AnswerVerifier, Case


class {class_name}(AnswerVerifier):
    """What it rewards, in one sentence. Its fields are its arguments in a recipe."""

    verifier_name: ClassVar[str] = "{name}"

    ignore_case: bool = Field(default=True, description="Compare without case.")

    def compare(self, case: Case, gold: str) -> Score:
        """What the completion is worth if `gold` is the answer; raise BadAnswer to refuse one."""
        lines = case.text.strip().splitlines()
        if not lines:
            return Score(0.0, "no_answer", "nothing was written")
        given, gold = self._normal(lines[-1]), self._normal(gold)
        if given == gold:
            return Score(1.0, "correct", f"{{given!r}} is the answer")
        return Score(0.0, "incorrect", f"{{given!r}} is not {{gold!r}}")

    def write(self, gold: str) -> str:
        """A completion that must be accepted; checked for every prompt before training."""
        return gold

    def _normal(self, text: str) -> str:
        text = " ".join(text.split())
        return text.casefold() if self.ignore_case else text
'''

_TEST = '''"""What {name} accepts and what it must not, and that its audit finds no hole."""

from __future__ import annotations

import pytest
from {name} import {class_name}

from groupwise.types import Prompt
from groupwise.verifiers import Case, score_cases
from groupwise.verifiers.audit import LabelledRow, audit

PROMPTS = [Prompt(str(n), text=f"What is {{n}} + {{n}}?", answer=str(2 * n)) for n in range(1, 9)]


@pytest.mark.parametrize(
    ("text", "value"),
    [("6", 1.0), ("It is three and three:\\n6", 1.0), ("7", 0.0), ("", 0.0), ("6 or 7", 0.0)],
)
def test_verdicts(text: str, value: float) -> None:
    (score,) = score_cases({class_name}(), [Case(PROMPTS[2], text)])
    assert score.value == value


def test_the_audit_finds_no_hole() -> None:
    report = audit({class_name}(), [LabelledRow(p.id, p, "", accept=None) for p in PROMPTS])
    assert report.passed, report.warnings
'''


_KINDS = {
    "verifier": (_MODULE, _TEST, "my_verifier"),
    "loss": (loss_scaffold.LOSS_MODULE, loss_scaffold.TEST, "my_loss"),
    "environment": (environment_scaffold.ENVIRONMENT_MODULE, environment_scaffold.TEST, "my_task"),
}


def write_files(kind: str, name: str, folder: Path) -> list[Path]:
    """Write `NAME.py` and `test_NAME.py` into a folder; never over a file that is there."""
    module, test, example = _KINDS[kind]
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
        raise RecipeError(f"{name!r} is no name for a Python module; for example {example}")
    own = {folder.resolve(), Path.cwd()}
    elsewhere = [each for each in sys.path if Path(each or ".").resolve() not in own]
    if name in sys.builtin_module_names or PathFinder.find_spec(name, elsewhere) is not None:
        raise RecipeError(
            f"{name!r} is an installed module, which {name}.py would hide from every program run "
            f"in its folder; choose another name, for example {example}"
        )
    class_name = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    files = {folder / f"{name}.py": module, folder / f"test_{name}.py": test}
    for path in files:
        check_place(path, "--folder")
        if path.exists():
            raise RecipeError(f"{path} is there already; choose another name or --folder")
    for path, template in files.items():
        write_for_user(path, template.format(name=name, class_name=class_name), "--folder")
    return list(files)
