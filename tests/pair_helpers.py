"""Rows and ids of pairs that the tests of the stages on pairs use."""

from __future__ import annotations

import random

import torch

from groupwise.policies.tiny import sums
from groupwise.stages.chats import TokenExample
from groupwise.stages.pairs import TokenPair
from helpers import VOCABULARY


def wrong_rows(shuffled: bool = False, each: int = 4) -> list[dict[str, str]]:
    """Every sum's answer against wrong ones; shuffled: in the order of a coin."""
    draw, rows = random.Random(0), []
    for a, b in sums():
        for wrong in draw.sample([n for n in range(10) if n != a + b], each):
            one, other = str(a + b), str(wrong)
            if shuffled and draw.random() < 0.5:
                one, other = other, one
            rows.append({"prompt": f"{a}+{b}=", "chosen": one, "rejected": other})
    return rows


def make_pairs(count: int = 7, margins: bool = False) -> list[TokenPair]:
    """Ragged answers, each pair behind its own prompt, with context inside some of them."""
    generator = torch.Generator().manual_seed(1)

    def ids(low: int, high: int) -> tuple[int, ...]:
        length = int(torch.randint(low, high, (1,), generator=generator))
        return tuple(torch.randint(3, VOCABULARY, (length,), generator=generator).tolist())

    pairs = []
    for number in range(count):
        prompt, answers = ids(1, 8), (ids(1, 10), ids(1, 10))
        sides = [
            TokenExample(
                prompt, each, tuple(n == 0 or n % 3 != number % 3 for n in range(len(each)))
            )
            for each in answers
        ]
        margin = 0.2 * number if margins else 0.0
        pairs.append(TokenPair(sides[0], sides[1], margin, (-20.0 + number, -21.0)))
    return pairs
