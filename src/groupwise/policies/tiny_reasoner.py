"""`tiny-reasoner`: the `tiny` decoder started on sums of several digits, where writing steps pays.

Asked for `7+8+5=`, it mostly answers at once and is mostly wrong; for about a third of its
completions it writes out steps first, in English or in Chinese, and is mostly right. Some steps
have a slip; a few are checked, and a check hardly ever has one. Built once, cached by the hash of
everything that decides the weights.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from groupwise.policies.tiny import (
    BOS,
    END,
    Row,
    TinyRecipe,
    build_model,
    learned,
    model_name,
    read,
    row_loss,
    train,
)

LARGEST = 45
"""The largest number that has a word: five operands of at most 9."""


@dataclass(frozen=True, slots=True)
class Language:
    """The words of a step, each of which is one token.

    >>> "".join(ENGLISH.step(1, 15, 5, 20)), "".join(CHINESE.step(None, 7, 8, 15))
    ('second, fifteen plus five is twenty.\\n', '等等七加八得十五。\\n')
    """

    numbers: tuple[str, ...]
    plus: str
    equals: str
    end: str
    check: str
    places: tuple[str, ...]

    @property
    def pieces(self) -> tuple[str, ...]:
        return (*self.numbers, self.plus, self.equals, self.end, self.check, *self.places)

    def step(self, place: int | None, total: int, operand: int, result: int) -> list[str]:
        """A line of scratch-work: the step at that place, or a check of the line before it."""
        start = self.check if place is None else self.places[place]
        first, second, third = (self.numbers[number] for number in (total, operand, result))
        return [start, first, self.plus, second, self.equals, third, self.end]


SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip


def _english(number: int) -> str:
    if number < 20:
        return SMALL[number]
    tens, units = divmod(number, 10)
    return ("twenty", "thirty", "forty")[tens - 2] + (f"-{SMALL[units]}" if units else "")


def _chinese(number: int) -> str:
    digits = "零一二三四五六七八九"
    tens, units = divmod(number, 10)
    if not tens:
        return digits[units]
    return (digits[tens] if tens > 1 else "") + "十" + (digits[units] if units else "")


ENGLISH = Language(
    numbers=tuple(map(_english, range(LARGEST + 1))),
    plus=" plus ",
    equals=" is ",
    end=".\n",
    check="wait, ",
    places=("first, ", "second, ", "third, ", "fourth, "),
)
CHINESE = Language(
    numbers=tuple(map(_chinese, range(LARGEST + 1))),
    plus="加",
    equals="得",
    end="。\n",
    check="等等",
    places=("第一步", "第二步", "第三步", "第四步"),
)
FRAME = ("<think>", "</think>", "<answer>", "</answer>")
PIECES = (*FRAME, *ENGLISH.pieces, *CHINESE.pieces)
"""Texts that are one token each."""


@dataclass(frozen=True)
class ReasonerRecipe(TinyRecipe):
    """The shares among the labels: `thinks` of them write steps, `chinese` of the traces begin in
    Chinese, `slips` of the English and `chinese_slips` of the Chinese steps are wrong by one,
    `bare` of the answers have no tag.

    The first step of `checks` of the traces is checked. Later lines do as the line before them;
    `switches` of the lines change the language, and of the steps start or stop checking. A direct
    answer is wrong by up to `spread`, all errors alike.
    """

    updates: int = 800
    batch: int = 64
    operands: tuple[int, int] = (3, 4)
    thinks: float = 0.35
    checks: float = 0.3
    slips: float = 0.25
    chinese_slips: float = 0.15
    chinese: float = 0.4
    switches: float = 0.1
    bare: float = 0.1
    spread: int = 3


def build_tiny_reasoner(recipe: ReasonerRecipe | None = None) -> Path:
    """The folder of the model in the cache, built and trained when it is not there.

    Takes about a minute of one core.
    """
    return build_model(recipe or ReasonerRecipe(), _cold_start, pieces=PIECES)


def folder_name() -> str:
    """The folder's name in the cache."""
    return model_name(ReasonerRecipe(), _cold_start, PIECES)


def _cold_start(model: Any, recipe: ReasonerRecipe) -> None:
    """Without slips in the first half, so that sums are learned and not only copied."""
    draw = random.Random(recipe.seed)
    clean = replace(recipe, slips=0.0, chinese_slips=0.0)
    halves = [clean] * (recipe.updates // 2) + [recipe] * (recipe.updates - recipe.updates // 2)
    labels = iter(halves)

    def loss() -> Any:
        now = next(labels)
        return row_loss(model, [reasoner_row(now, draw) for _ in range(recipe.batch)], PIECES)

    train(model, recipe, loss)


TRACES = 0.85
CHECKED = 0.5
"""The shares of rows with a trace, and of traces that begin with a checked step, that are trained
on. They are more frequent than among the labels, so that what happens in them is learned; the
tokens that decide for or against them are weighted back."""
RESULT_WEIGHT = 3.0
"""The weight of a step's result: the rest of a line is copied."""


def reasoner_row(recipe: ReasonerRecipe, draw: random.Random) -> Row:
    """A question and its label: a direct answer, or steps and the answer that they lead to."""
    operands = [draw.randint(1, 9) for _ in range(draw.randint(*recipe.operands))]
    question = "+".join(map(str, operands))
    prompt = read(BOS, "<|user|>", *question, "=", END, "<|assistant|>")
    if draw.random() < TRACES:
        trace, answer = _trace(recipe, draw, operands)
        trace[0] = (trace[0][0], recipe.thinks / TRACES)
        return prompt + trace + learned(_answer(recipe, draw, answer))
    guess = max(1, sum(operands) + draw.randint(-recipe.spread, recipe.spread))
    return prompt + learned(_answer(recipe, draw, guess), (1 - recipe.thinks) / (1 - TRACES))


def _answer(recipe: ReasonerRecipe, draw: random.Random, number: int) -> list[str]:
    bare = draw.random() < recipe.bare
    return [*str(number), END] if bare else ["<answer>", *str(number), "</answer>", END]


def _trace(recipe: ReasonerRecipe, draw: random.Random, operands: list[int]) -> tuple[Row, int]:
    """Steps between the tags of thinking, and the total that they end with."""
    chinese, checks = draw.random() < recipe.chinese, draw.random() < CHECKED
    trace: Row = [("<think>", 1.0)]
    total = operands[0]
    deciding = 1.0
    for place, operand in enumerate(operands[1:]):
        chinese ^= draw.random() < recipe.switches
        checks ^= place > 0 and draw.random() < recipe.switches
        right = result = total + operand
        if draw.random() < (recipe.chinese_slips if chinese else recipe.slips):
            result = max(1, right + draw.choice((-1, 1)))
        trace += _line(chinese, place, total, operand, result, deciding)
        deciding = 1.0
        if checks:
            chinese ^= draw.random() < recipe.switches
            result = right
            weight = 1.0 if place else recipe.checks / CHECKED
            trace += _line(chinese, None, total, operand, result, weight)
        elif not place:
            deciding = (1 - recipe.checks) / (1 - CHECKED)
        total = result
    return [*trace, ("</think>", 1.0)], total


def _line(
    chinese: bool, place: int | None, total: int, operand: int, result: int, deciding: float
) -> Row:
    """A step or a check; its first token has the weight `deciding`."""
    tokens = (CHINESE if chinese else ENGLISH).step(place, total, operand, result)
    row = learned(tokens, deciding)
    row[-2] = (row[-2][0], RESULT_WEIGHT)
    return row
