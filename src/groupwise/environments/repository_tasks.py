"""Tasks of the `repository` environment: read from a file, or made up."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Literal

from pydantic import Field

from groupwise.environments.generated import Task as DrawnTask
from groupwise.environments.generated import drawn_sides
from groupwise.errors import RecipeError
from groupwise.texts import from_json
from groupwise.verifiers.core.names import Arguments, validated


class Task(Arguments):
    """One repository to repair."""

    files: dict[str, str] = Field(min_length=1)
    gold: dict[str, str] = Field(min_length=1)
    tests: tuple[str, ...] = Field(min_length=1)
    hidden_tests: tuple[str, ...] = ()
    issue: str = ""
    split: Literal["train", "heldout"] = "train"


def read_tasks(path: str) -> dict[str, Task]:
    """The tasks of a file by place. Raises RecipeError naming the line that is not one."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"environment.path = {path!r} cannot be read: {error}") from error
    tasks = {}
    for number, line in enumerate(lines, start=1):
        place = f"{path}, line {number}"
        try:
            row = from_json(line)
        except ValueError as error:
            raise RecipeError(f"{place}: not JSON: {error}") from error
        tasks[place] = validated(Task, row, place)
    return tasks


NAMES = "abcdefgh"
"""The functions of made-up files, one letter each."""
NUMBERS = range(2, 10)
OPERATIONS: dict[str, str] = {
    "add": "x + {}", "subtract": "x - {}", "times": "x * {}", "divide by": "x // {}",
    "modulo": "x % {}",
}  # fmt: skip
"""What a made-up function's comment says, and what it should return."""


def module(name: str, words: str, operation: str, number: int) -> str:
    """The source of a made-up file; `words` say what `operation` should do."""
    expression = OPERATIONS[operation].format(number)
    return f"def {name}(x):  # {words} {number}\n    return {expression}\n"


def made_up(num_train: int, num_heldout: int, num_files: int, seed: int) -> dict[str, Task]:
    """Tasks in which one file of several does not do what its comment says."""

    def draw(random: random.Random) -> DrawnTask:
        task = draw_task(random, num_files)
        text = json.dumps(task.files)
        return DrawnTask(text, None, text, {"task": task})

    sides = drawn_sides(draw, seed, ("repository",), (num_train, num_heldout))
    tasks = [
        each.columns["task"].model_copy(update={"split": split})
        for split, side in zip(("train", "heldout"), sides, strict=True)
        for each in side
    ]
    return {f"repository {number}": task for number, task in enumerate(tasks, start=1)}


def draw_task(draw: random.Random, num_files: int) -> Task:
    """A made-up task: one test and one hidden test a function; the broken one fails its test."""
    names = draw.sample(NAMES, num_files)
    files: dict[str, str] = {}
    gold: dict[str, str] = {}
    tests: list[str] = []
    hidden: list[str] = []
    broken = draw.choice(names)
    for name in names:
        words, number = draw.choice(list(OPERATIONS)), draw.choice(NUMBERS)
        given = draw.choice([each for each in OPERATIONS if (each == words) != (name == broken)])
        files[f"{name}.py"] = module(name, words, given, number)
        if name == broken:
            gold[f"{name}.py"] = module(name, words, words, number)
        tries = draw.sample(range(10, 100), 90)
        tells = [x for x in tries if _value(words, x, number) != _value(given, x, number)]
        for x, into in zip((tells or tries)[:2], (tests, hidden)):
            value = _value(words, x, number)
            into.append(f"from {name} import {name}\nassert {name}({x}) == {value}")
    return Task(files=files, gold=gold, tests=tuple(tests), hidden_tests=tuple(hidden))


def _value(operation: str, x: int, number: int) -> int:
    """What a made-up function returns for `x`; the expression is this file's own."""
    return int(eval(OPERATIONS[operation].format(number), {"x": x}))
