"""The `code_package` environment: write the files that a small package lacks.

A package is a few modules with one function each and a `main` that puts them together; some files
are given, the others are to be written. Functions are drawn as in `code`. Tests are hidden asserts
on `run` and on every function that is not given; further ones are held out for the strict verifier.
Packages whose `run` does the same are one family.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from groupwise.environments.base import Environment
from groupwise.environments.checks import check_answers
from groupwise.environments.code_tasks import draw_cases
from groupwise.environments.functions import ARGUMENTS, KINDS, Chain, Kind, draw_chain
from groupwise.environments.generated import (
    DrawnSettings,
    Level,
    Task,
    bound,
    check_range,
    generated,
    listed,
)
from groupwise.environments.vocabulary import made_up_word
from groupwise.verifiers import VerifierSettings, compose
from groupwise.verifiers.core.names import validated

LEVELS: dict[str, dict[str, Any]] = {
    "easy": {"num_files": (3, 3), "num_given": 1},
    "medium": {"num_files": (3, 4), "num_given": 1},
    "hard": {"num_files": (5, 6), "num_given": 1},
}
PACKAGE = "tools"


class CodePackageSettings(DrawnSettings):
    """The arguments of `code_package`; what is not set comes from the level."""

    num_train: int = Field(default=200, ge=1, description="Training prompts.")
    num_heldout: int = Field(default=50, ge=0, description="Held-out prompts.")
    kinds: tuple[Kind, ...] = Field(
        default=KINDS,
        min_length=1,
        description="What the package's first function takes: lists, strings, numbers.",
    )
    num_files: tuple[int, int] | None = Field(
        default=None, description="Fewest and most files, the main one included, as [3, 4]."
    )
    num_given: int | None = Field(
        default=None, ge=0, le=5, description="How many of them are given, fewer than there are."
    )
    num_tests: int = Field(default=3, ge=1, le=20, description="Tests of each function.")
    num_hidden: int = Field(
        default=3, ge=0, le=20, description="More of them for the strict verifier; 0 = none."
    )
    credit: Literal["all", "fraction"] = Field(
        default="all", description="1 only where all tests pass, or the share that passes."
    )

    @model_validator(mode="after")
    def _fits(self) -> CodePackageSettings:
        check_range("num_files", self.num_files, 2, 8)
        fewest = (self.num_files or (3, 3))[0]
        if self.num_given is not None and self.num_given >= fewest:
            raise ValueError(f"num_given = {self.num_given}: give fewer than num_files ({fewest})")
        return self

    @property
    def asks(self) -> str:
        return (
            "Answer with each file that you write in a block of Python code of its own, whose "
            f"first line is `# file: ` and its name, as `# file: {PACKAGE}/main.py`."
        )


def make_code_package(
    arguments: Mapping[str, Any],
    seed: int,
    verifiers: Sequence[Mapping[str, Any] | VerifierSettings] = (),
) -> Environment:
    """The `code_package` environment; its gold files run in the sandbox when it is loaded."""
    settings = validated(CodePackageSettings, arguments, "environment 'code_package'")

    def draw(random: random.Random, level: Level) -> Task | None:
        return _task(random, level, settings)

    own = VerifierSettings(name="code_package", arguments={"credit": settings.credit})
    made = generated("code_package", settings, draw, seed, verifiers or [own])
    if settings.num_hidden:
        hidden = {"tests_column": "hidden_tests"}
        made.strict = compose([VerifierSettings(name="code_package", arguments=hidden)])
        where = "environment 'code_package', hidden tests"
        check_answers(made.strict, made.prompts(split="all"), where)
    return made


def _task(random: random.Random, level: Level, settings: CodePackageSettings) -> Task | None:
    fewest, most = bound(settings, LEVELS, "num_files", level)
    num_parts = random.randint(fewest, most) - 1
    num_given = bound(settings, LEVELS, "num_given", level)
    whole = draw_chain(random, random.choice(settings.kinds), num_parts)
    if whole is None:
        return None
    kinds = [whole.takes, *(operation.gives for operation in whole.operations)]
    parts = [Chain(kind, (each,)) for kind, each in zip(kinds, whole.operations)]
    names = [made_up_word(random, 5) for _ in parts]
    if len(set(names)) < len(names):
        return None
    files = {_file(name): part.program(name) for name, part in zip(names, parts)}
    files[_file("main")] = _main(names)
    shown = random.sample([_file(name) for name in names], min(num_given, num_parts))
    asked = [(name, part) for name, part in zip(names, parts) if _file(name) not in shown]
    tests = _tests(random, [*asked, ("run", whole)], settings)
    if tests is None:
        return None
    columns: dict[str, Any] = {
        "files": {name: files[name] for name in sorted(shown)},
        "exports": {**{name: f"{PACKAGE}.{name}" for name in names}, "run": f"{PACKAGE}.main"},
        "tests": tests[0],
        "num_to_write": len(files) - len(shown),
    }
    if settings.num_hidden:
        columns["hidden_tests"] = tests[1]
    question = _question(columns["files"], list(zip(names, parts)), whole)
    answer = "\n\n".join(_block(name, files[name]) for name in files if name not in shown)
    return Task(question, answer, whole.behaviour(), columns)


def _file(name: str) -> str:
    return f"{PACKAGE}/{name}.py"


def _block(name: str, source: str) -> str:
    return f"```python\n# file: {name}\n{source}```"


def _main(names: Sequence[str]) -> str:
    imports = "".join(f"from {PACKAGE}.{name} import {name}\n" for name in names)
    calls = "x"
    for name in names:
        calls = f"{name}({calls})"
    return f"{imports}\n\ndef run(x):\n    return {calls}\n"


def _tests(
    draw: random.Random, functions: Sequence[tuple[str, Chain]], settings: CodePackageSettings
) -> tuple[list[str], list[str]] | None:
    """Assert sources for the reward and for the strict verifier; None where a draw gave none."""
    tests: list[str] = []
    hidden: list[str] = []
    for name, chain in functions:
        cases = draw_cases(draw, chain, settings.num_tests + settings.num_hidden)
        if cases is None:
            return None
        written = [f"assert {name}({argument!r}) == {value!r}" for (argument,), value in cases]
        tests += written[: settings.num_tests]
        hidden += written[settings.num_tests :]
    return tests, hidden


def _question(given: Mapping[str, str], parts: Sequence[tuple[str, Chain]], whole: Chain) -> str:
    lines = [f"The Python package {PACKAGE} is to have these functions, each in a file of its own:"]
    for name, part in parts:
        words = "given" if _file(name) in given else part.description
        lines.append(f"- {_file(name)}: {name}(x) takes {ARGUMENTS[part.takes]}: {words}.")
    names = [name for name, _ in parts]
    lines.append(
        f"- {_file('main')}: run(x) takes {ARGUMENTS[whole.takes]} and puts it through "
        f"{listed(names)}, in this order; it imports them."
    )
    lines += [_block(name, source) for name, source in given.items()]
    missing = [_file(name) for name in [*names, "main"] if _file(name) not in given]
    lines.append(f"Write {listed(missing)}. Every function returns its result.")
    return "\n".join(lines)
