"""`tiny_repository`: the `tiny` decoder that repairs made-up repositories, often in the wrong file.

Taught by rows of two turns: a guess, the failing test's message, another try. It shows that using
the test output can be learned, not how well a model codes. In a recipe:
`name = "groupwise.examples.tiny_repository:tiny_repository"`.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from groupwise.environments.repository import FAILED
from groupwise.environments.repository_files import block
from groupwise.environments.repository_tasks import (
    NAMES,
    NUMBERS,
    OPERATIONS,
    Task,
    draw_task,
    module,
)
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

HEADS = tuple(f"```python {name}.py\ndef {name}(x):  # " for name in NAMES)
COMMENTS = tuple(f"{words} {number}" for words in OPERATIONS for number in NUMBERS)
RESULTS = tuple(text.format(number) for text in OPERATIONS.values() for number in NUMBERS)
PIECES = (
    *HEADS, *COMMENTS, "\n    return ", *RESULTS, "\n```", "\n```\n",
    "case ", " of ", *(f": assert {name}(" for name in NAMES), ") == ", ": AssertionError", FAILED,
)  # fmt: skip
"""Texts that are one token each: a file is five tokens."""
_TOKENS = re.compile("|".join(map(re.escape, sorted(PIECES, key=len, reverse=True))) + "|[\\s\\S]")
_FILE = re.compile(r"def (\w)\(x\):  # (.+) (\d)\n")


@dataclass(frozen=True)
class RepositoryRecipe(TinyRecipe):
    """A label takes a file at random, in the share `follows` of the second turns the one that the
    message names; in the share `right` it writes what the file's comment says. The share `named` of
    the rows has a message that names a file.

    Of the `updates`, the first `lookups` teach to find a file by its name, and the next `clean`
    have labels that follow and are right.
    """

    initializer_range: float = 0.03
    learning_rate: float = 4e-3
    updates: int = 650
    lookups: int = 150
    clean: int = 300
    batch: int = 64
    num_files: int = 3
    follows: float = 0.5
    right: float = 0.45
    named: float = 0.75


def tiny_repository(recipe: RepositoryRecipe | None = None) -> Path:
    """The folder of a model that repairs a file of a made-up repository. Built in a minute."""
    return build_model(recipe or RepositoryRecipe(), cold_start, pieces=PIECES)


def cold_start(model: Any, recipe: RepositoryRecipe) -> None:
    draw = random.Random(recipe.seed)
    clean = replace(recipe, follows=1.0, right=1.0)
    numbers = iter(range(recipe.updates))

    def row(number: int) -> Row:
        if number < recipe.lookups:
            return lookup_row(draw)
        return repair_row(clean if number < recipe.lookups + recipe.clean else recipe, draw)

    def loss() -> Any:
        number = next(numbers)
        return row_loss(model, [row(number) for _ in range(recipe.batch)], PIECES)

    train(model, recipe, loss)


def tokens(text: str) -> list[str]:
    """A text as the tokenizer splits it."""
    return _TOKENS.findall(text)


def lookup_row(draw: random.Random) -> Row:
    """The first lines of some files, then a dozen of their names: what follows each is learned.

    A dozen questions a row teach it in seconds; the two of `repair_row` take many times as long.
    """
    files = {head: draw.choice(COMMENTS) for head in draw.sample(HEADS, draw.randint(3, 8))}
    row = read(BOS, "<|user|>", *(token for file in files.items() for token in file))
    row += read(END, "<|assistant|>")
    for head in draw.choices(list(files), k=12):
        row += read(head) + learned([files[head]])
    return row


def repair_row(recipe: RepositoryRecipe, draw: random.Random) -> Row:
    """A repository, a try, what the tests say, and another try."""
    task = draw_task(draw, recipe.num_files)
    question = "\n".join(block(path, text) for path, text in task.files.items())
    number = draw.randrange(len(task.tests))
    named = f"{task.tests[number][5]}.py"
    message = f"case {number + 1} of {len(task.tests)}: "
    message += f"{task.tests[number].splitlines()[1]}: AssertionError"
    if draw.random() >= recipe.named:
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
