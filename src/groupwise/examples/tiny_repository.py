"""`tiny_repository`: the `tiny` decoder that repairs made-up repositories, often in the wrong file.

Taught by rows of two turns: a guess, the failing test's message, another try. It shows that using
the test output can be learned, not how well a model codes. In a recipe:
`name = "groupwise.examples.tiny_repository:tiny_repository"`.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.environments.repository import FAILED
from groupwise.environments.repository_files import block
from groupwise.environments.repository_tasks import OPERATIONS, Task, draw_task, module
from groupwise.policies.tiny import (
    BOS,
    END,
    Row,
    TinyRecipe,
    build_model,
    learned,
    read,
    row_loss,
    train,
)

PIECES = (
    "```python ", ".py\ndef ", "(x):  # ", "\n    return ", "\n```", "\n```\n", "case ", " of ",
    ": assert ", ") == ", ": AssertionError", FAILED,
    *(f"{words} " for words in OPERATIONS),
    *(expression.format("") for expression in OPERATIONS.values()),
)  # fmt: skip
"""Texts that are one token each."""
_TOKENS = re.compile("|".join(map(re.escape, sorted(PIECES, key=len, reverse=True))) + "|[\\s\\S]")
_FILE = re.compile(r"def (\w)\(x\):  # (.+) (\d)\n")


@dataclass(frozen=True)
class RepositoryRecipe(TinyRecipe):
    """A label takes a file at random, in the share `follows` of the second turns the one that the
    message names; in the share `right` it writes what the file's comment says. The share `told` of
    the rows has a message that names a file."""

    updates: int = 600
    batch: int = 48
    num_files: int = 4
    follows: float = 0.35
    right: float = 0.6
    told: float = 0.75


def tiny_repository(recipe: RepositoryRecipe | None = None) -> Path:
    """The folder of a model that repairs a file of a made-up repository. Built in a minute."""
    return build_model(recipe or RepositoryRecipe(), cold_start, pieces=PIECES)


def cold_start(model: Any, recipe: RepositoryRecipe) -> None:
    draw = random.Random(recipe.seed)

    def loss() -> Any:
        return row_loss(model, [repair_row(recipe, draw) for _ in range(recipe.batch)], PIECES)

    train(model, recipe, loss)


def tokens(text: str) -> list[str]:
    """A text as the tokenizer splits it."""
    return _TOKENS.findall(text)


def repair_row(recipe: RepositoryRecipe, draw: random.Random) -> Row:
    """A repository, a try, what the tests say, and another try."""
    task = draw_task(draw, recipe.num_files)
    question = "\n".join(block(path, text) for path, text in task.files.items())
    number = draw.randrange(len(task.tests))
    named = f"{task.tests[number][5]}.py"
    message = f"case {number + 1} of {len(task.tests)}: "
    message += f"{task.tests[number].splitlines()[1]}: AssertionError"
    if draw.random() >= recipe.told:
        message, named = FAILED, draw.choice(list(task.files))
    second = named if draw.random() < recipe.follows else draw.choice(list(task.files))
    row = read(BOS, "<|user|>", *tokens(question), END, "<|assistant|>")
    row += learned([*tokens(label(recipe, draw, task, draw.choice(list(task.files)))), END])
    row += read("<|user|>", *tokens(message), END, "<|assistant|>")
    return row + learned([*tokens(label(recipe, draw, task, second)), END])


def label(recipe: RepositoryRecipe, draw: random.Random, task: Task, path: str) -> str:
    """A file with one line replaced, rightly or not."""
    found = _FILE.match(task.files[path])
    assert found is not None
    name, words, number = found.groups()
    operation = words if draw.random() < recipe.right else draw.choice(list(OPERATIONS))
    return block(path, module(name, words, operation, int(number)))
