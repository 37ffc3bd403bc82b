"""`tiny-code`: a small decoder that writes one-line Python functions, and often the wrong one.

The `tiny` decoder started on a table of its own: twelve kinds of functions of a whole number, asked
for in a few words (`solve(x): add 7`), each with the right program for a share of the labels, the
program of the next line of the table for a somewhat larger share, and any other line's for the
rest. The words and the fixed parts of the programs are one token each. So it writes a program that
runs, copies the number, takes the right operation about a third of the time, and its most likely
program is wrong. Built once, in seconds, and cached by the hash of everything
that decides its weights. It knows nothing beyond this table: it shows that learning from test cases
works, not how well a model codes.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from groupwise.policies.cache import cached_folder
from groupwise.policies.tiny import (
    BOS,
    CHARACTERS,
    CHAT_TEMPLATE,
    END,
    PAD,
    ROLES,
    TinyRecipe,
    build_folder,
    vocabulary,
)

TABLE: tuple[tuple[str, str, int, int], ...] = (
    ("add {k}", "x + {k}", 1, 50),
    ("subtract {k}", "x - {k}", 1, 50),
    ("multiply by {k}", "x * {k}", 2, 12),
    ("square it", "x * x", 0, 0),
    ("take the absolute value", "abs(x)", 0, 0),
    ("subtract it from {k}", "{k} - x", 1, 50),
    ("take the remainder of the division by {k}", "x % {k}", 3, 13),
    ("divide by {k} and round down", "x // {k}", 2, 9),
    ("take the larger of it and {k}", "max(x, {k})", -5, 10),
    ("take the smaller of it and {k}", "min(x, {k})", 5, 30),
    ("take the sum of its digits", "sum(int(d) for d in str(abs(x)))", 0, 0),
    ("list its digits from left to right", "[int(d) for d in str(abs(x))]", 0, 0),
)
"""Words, expression, and the smallest and largest `k`."""


QUESTION = "solve(x): "
PROGRAM = "def solve(x):\n    return "


def parts(text: str) -> list[str]:
    """A text of the table around its number: what stands before and behind it, `{k}` between."""
    before, hole, behind = text.partition("{k}")
    return [part for part in (before, hole, behind) if part]


PIECES = tuple(
    dict.fromkeys(
        part
        for text in (QUESTION, PROGRAM, *(line[0] for line in TABLE), *(line[1] for line in TABLE))
        for part in parts(text)
        if len(part) > 1 and part != "{k}"
    )
)
"""Texts that are one token each."""


@dataclass(frozen=True)
class TinyCodeRecipe(TinyRecipe):
    """Everything that decides the weights.

    Of a line's labels the share `right` is its program and `mistaken` that of the next line.
    """

    updates: int = 600
    batch: int = 96
    learning_rate: float = 5e-3
    right: float = 0.35
    mistaken: float = 0.45

    @property
    def name(self) -> str:
        text = json.dumps(
            [asdict(self), CHAT_TEMPLATE, CHARACTERS, ROLES, TABLE, QUESTION, PROGRAM, "1"]
        )
        return f"tiny-code-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def build_tiny_code(recipe: TinyCodeRecipe | None = None) -> Path:
    """The folder of the model in the cache, built and trained when it is not there."""
    recipe = recipe or TinyCodeRecipe()

    def build(folder: Path) -> None:
        build_folder(recipe, _cold_start, folder, pieces=PIECES)

    return cached_folder(recipe.name, build)


def tokens(text: str, k: int) -> list[str]:
    """A text of the table with its number written in, token by token."""
    found: list[str] = []
    for part in parts(text):
        if part == "{k}":
            found += str(k)
        else:
            found += [part] if part in PIECES else list(part)
    return found


def row(recipe: TinyCodeRecipe, draw: random.Random) -> tuple[list[str], list[str]]:
    """The tokens of a question and of the program that is its label."""
    line = draw.randrange(len(TABLE))
    words, _, low, high = TABLE[line]
    k = draw.randint(low, high)
    chance = draw.random()
    if chance >= recipe.right:
        away = 1 if chance < recipe.right + recipe.mistaken else draw.randrange(2, len(TABLE))
        line = (line + away) % len(TABLE)
    question = [BOS, "<|user|>", QUESTION, *tokens(words, k), END, "<|assistant|>"]
    return question, [PROGRAM, *tokens(TABLE[line][1], k), END]


def _cold_start(model: Any, recipe: TinyCodeRecipe) -> None:
    """Cross-entropy on the programs and their ends, the lines of the table drawn alike."""
    import torch

    draw = random.Random(recipe.seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.learning_rate, total_steps=recipe.updates, pct_start=0.1
    )
    for _ in range(recipe.updates):
        ids, labels = _batch([row(recipe, draw) for _ in range(recipe.batch)])
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        loss: Any = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def _batch(rows: list[tuple[list[str], list[str]]]) -> tuple[Any, Any]:
    """Ids [B, T] and labels [B, T], -100 wherever nothing is learnt."""
    import torch

    ids = {**vocabulary()}
    ids.update({piece: len(vocabulary()) + place for place, piece in enumerate(PIECES)})
    longest = max(len(question) + len(answer) for question, answer in rows)
    inputs = torch.full((len(rows), longest), ids[PAD])
    labels = torch.full((len(rows), longest), -100)
    for place, (question, answer) in enumerate(rows):
        coded = torch.tensor([ids[token] for token in [*question, *answer]])
        inputs[place, : len(coded)] = coded
        labels[place, len(question) : len(coded)] = coded[len(question) :]
    return inputs, labels
