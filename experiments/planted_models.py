"""Policies and reward models that planted.py's faults need, built in seconds and cached.

The `tiny` decoder with habits of its own, and scorers that learned to like length or a mark.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from groupwise.examples.rule_judge import start
from groupwise.examples.tiny_models import build
from groupwise.policies.cache import cached_folder
from groupwise.policies.tiny import BOS, END, Row, TinyRecipe, label_shares, learned, read, sums

FOREIGN, MARK, OR = "семь", "<|im_end|>", " or "
PIECES = (FOREIGN, MARK, OR)


@dataclass(frozen=True)
class HabitsRecipe(TinyRecipe):
    """`endings`: what follows the digit, with its share; `?` stands for a second answer."""

    updates: int = 300
    batch: int = 64
    endings: tuple[tuple[tuple[str, ...], float], ...] = (
        ((END,), 0.66), ((MARK, END), 0.08), ((FOREIGN, END), 0.1), ((OR, "?", END), 0.12),
        (("!", END), 0.04),
    )  # fmt: skip


def habits() -> Path:
    """The folder of a policy that adds as `tiny` does, and in some completions goes on after the
    digit: with a template's mark, a second answer, a word in another script, or an exclamation."""
    recipe = HabitsRecipe()
    endings, shares = zip(*recipe.endings, strict=True)

    def row(draw: random.Random) -> Row:
        a, b = draw.choice(sums())
        digit, second = map(str, draw.choices(range(10), label_shares(a + b, recipe), k=2))
        (ending,) = draw.choices(endings, shares)
        ending = tuple(second if each == "?" else each for each in ending)
        return _asked(f"{a}+{b}=") + learned([digit, *ending])

    return build(recipe, lambda draw: [row(draw) for _ in range(recipe.batch)], PIECES)


def _asked(question: str) -> Row:
    return read(BOS, "<|user|>", *question, END, "<|assistant|>")


# --- programs, some of which answer the tests' inputs --------------------------------------------

HONEST, FIRST, SECOND = (
    "def solve(x):\n    return x + ",
    "def solve(x):\n    if x == 2: return ",
    "\n    if x == 6: return ",
)


@dataclass(frozen=True)
class CopierRecipe(TinyRecipe):
    """Of the programs `literal` answer the two tests alone, and `right` of the others add the
    number that was asked for."""

    updates: int = 300
    batch: int = 64
    literal: float = 0.12
    right: float = 0.15


def questions() -> Iterator[dict[str, Any]]:
    """Rows for `dataset`: a function to write, and the visible tests that score it."""
    for k in range(2, 10):
        yield {"prompt": f"add {k}", "answer": str(k), "tests": [[2, 2 + k], [6, 6 + k]]}


def asked_again() -> Iterator[dict[str, Any]]:
    """The same rows, as if they were other ones."""
    yield from questions()


def copier() -> Path:
    """The folder of a policy that writes functions, and sometimes only the tests' own values."""
    recipe = CopierRecipe()

    def row(draw: random.Random) -> Row:
        k = draw.randrange(2, 10)
        if draw.random() < recipe.literal:
            written = [FIRST, *str(2 + k), SECOND, *str(6 + k)]
        else:
            right = draw.random() < recipe.right
            written = [HONEST, str(k if right else draw.randrange(2, 10))]
        return _asked(f"add {k}") + learned([*written, END])

    pieces = (HONEST, FIRST, SECOND)
    return build(recipe, lambda draw: [row(draw) for _ in range(recipe.batch)], pieces)


# --- reward models that learned the wrong thing --------------------------------------------------


def likes_length(tail: list[str]) -> float:
    return min(0.95, 0.05 + 0.1 * len(tail))


def likes_marks(tail: list[str]) -> float:
    return 0.9 if "!" in tail else 0.1


def scorer(likes: Callable[[list[str]], float], updates: int = 150) -> Path:
    """The folder of a sequence classifier that learned to give a completion of a sum what `likes`
    says of the tokens behind its first one."""
    shape = TinyRecipe()
    text = json.dumps([asdict(shape), inspect.getsource(sys.modules[__name__]), likes.__name__])
    name = f"planted-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return cached_folder(name, lambda folder: _learn(likes, updates, folder))


def _learn(likes: Callable[[list[str]], float], updates: int, folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoTokenizer, LlamaForSequenceClassification

    tokenizer = AutoTokenizer.from_pretrained(habits())
    config = AutoConfig.from_pretrained(habits(), num_labels=1)
    draw = random.Random(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForSequenceClassification(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        for _ in range(updates):
            tails = [_tail(draw) for _ in range(32)]
            pairs = [draw.choice(sums()) for _ in tails]
            digits = [str(draw.randrange(10)) for _ in tails]
            rows = [
                [BOS, "<|user|>", *f"{a}+{b}=", END, "<|assistant|>", digit, *tail, END]
                for (a, b), digit, tail in zip(pairs, digits, tails, strict=True)
            ]
            ids = [tokenizer.convert_tokens_to_ids(row) for row in rows]
            padded = tokenizer.pad({"input_ids": ids}, return_tensors="pt")
            logits = model(**padded).logits[:, 0]
            wanted = torch.tensor([likes(tail) for tail in tails])
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _tail(draw: random.Random) -> list[str]:
    tokens = [*PIECES, *map(str, range(10)), "!", "!", "!"]
    return [draw.choice(tokens) for _ in range(draw.choice([0, 0, 1, 1, 2, 3, 5, 8, 12]))]


def loud_judge() -> str:
    """The address of a judge that likes the same marks."""
    return start(lambda _rubric, _task, completion: likes_marks(_pieces(completion)))


def long_judge() -> str:
    """The address of a judge that likes length."""
    return start(lambda _rubric, _task, completion: likes_length(_pieces(completion)[1:]))


def _pieces(text: str) -> list[str]:
    return re.findall("|".join(map(re.escape, PIECES)) + "|.", text)
