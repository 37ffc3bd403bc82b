"""`tiny_code` and `tiny_tools`: the `tiny` decoder taught the start of a task by made-up rows.

Both are built once, in seconds, and cached by the hash of everything that decides their weights.
They know nothing beyond their rows: they show that learning from test cases and from a tool works,
not how well a model does. In a recipe: `name = "groupwise.examples.tiny_models:tiny_code"`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groupwise.environments.functions import OPERATIONS
from groupwise.policies.tiny import (
    BOS,
    CHAT_TEMPLATE,
    END,
    Row,
    TinyRecipe,
    build_model,
    learned,
    read,
    row_loss,
    train,
)


def build(
    recipe: TinyRecipe,
    batch: Callable[[random.Random], list[Row]],
    pieces: Sequence[str],
    chat_template: str = CHAT_TEMPLATE,
) -> Path:
    """The folder of a model that is trained on `batch(draw)` in every update."""

    def cold_start(model: Any, recipe: TinyRecipe) -> None:
        draw = random.Random(recipe.seed)
        train(model, recipe, lambda: row_loss(model, batch(draw), pieces))

    return build_model(recipe, cold_start, pieces=pieces, chat_template=chat_template)


# --- tiny_code: one-line functions of a number ---------------------------------------------------

TABLE = tuple((o.words, o.expression, o.low, o.high) for o in OPERATIONS["numbers"])
"""Words, expression, and the smallest and largest number `k` in them."""
QUESTION = "solve(x): "
PROGRAM = "def solve(x):\n    return "
MESSAGE = ("accuracy: case ", " of 6: gave ")
"""What is said of a wrong program in recipes/code_rl.toml: the case, and the wrong value."""


def parts(text: str) -> list[str]:
    """A text of the table around its number: what stands before and behind it, `{k}` between."""
    return [part for part in text.partition("{k}") if part]


CODE_PIECES = tuple(
    dict.fromkeys(
        part
        for text in (QUESTION, PROGRAM, *MESSAGE, *(text for line in TABLE for text in line[:2]))
        for part in parts(text)
        if len(part) > 1 and part != "{k}"
    )
)
"""Texts that are one token each."""


@dataclass(frozen=True)
class CodeRecipe(TinyRecipe):
    """Of a line's labels the share `right` is its program and `mistaken` that of the next line.

    In the share `repairs` of the rows a wrong program and the verifier's message come first, and
    `repaired` of the labels are right.
    """

    updates: int = 600
    batch: int = 96
    right: float = 0.35
    mistaken: float = 0.45
    repairs: float = 0.25
    repaired: float = 0.5


def tiny_code(recipe: CodeRecipe | None = None) -> Path:
    """The folder of a model that writes one-line functions, and often the wrong one.

    Twelve kinds of functions of a whole number are asked for in a few words (`solve(x): add 7`).
    It writes a program that runs, copies the number, takes the right operation about a third of the
    time, and its most likely program is wrong. Told that one failed, it is right half of the time.
    Built here in seconds.
    """
    recipe = recipe or CodeRecipe()

    def batch(draw: random.Random) -> list[Row]:
        return [code_row(recipe, draw) for _ in range(recipe.batch)]

    return build(recipe, batch, CODE_PIECES)


def code_tokens(text: str, k: int) -> list[str]:
    """A text of the table with its number written in, token by token."""
    found: list[str] = []
    for part in parts(text):
        whole = part in CODE_PIECES
        found += [part] if whole else list(str(k) if part == "{k}" else part)
    return found


def code_row(recipe: CodeRecipe, draw: random.Random) -> Row:
    """A question, a wrong program and its message in some rows, and the program that is learned."""
    line = draw.randrange(len(TABLE))
    words, _, low, high = TABLE[line]
    k = draw.randint(low, high)

    def program(right: float) -> list[str]:
        chance, away = draw.random(), 0
        if chance >= right:
            is_next = chance < right + (1 - right) * recipe.mistaken / (1 - recipe.right)
            away = 1 if is_next else draw.randrange(2, len(TABLE))
        return [PROGRAM, *code_tokens(TABLE[(line + away) % len(TABLE)][1], k), END]

    row = read(BOS, "<|user|>", QUESTION, *code_tokens(words, k), END, "<|assistant|>")
    if draw.random() >= recipe.repairs:
        return row + learned(program(recipe.right))
    case, gave = MESSAGE
    said = [case, str(draw.randint(1, 2)), gave, *str(draw.randint(-99, 9999))]
    row += read(*program(0.0), "<|user|>", *said, END, "<|assistant|>")
    return row + learned(program(recipe.repaired))


# --- tiny_tools: products, by a calculator or by guessing ----------------------------------------

TOOL_PIECES = (
    "<tool_call>",
    '{"name": "calculator", "arguments": {"expression": "',
    '"}}',
    "</tool_call>",
)
"""Texts that are one token each: the frame of a call, in the format of Hermes and Qwen."""

TOOLS_TEMPLATE = (
    "{{ bos_token }}"
    "{% if tools %}{{ '<|system|>' }}"
    "{% for tool in tools %}{{ tool['function']['name'] }}{% if not loop.last %} {% endif %}"
    "{% endfor %}{{ '<|end|>' }}{% endif %}"
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% for call in message['tool_calls'] or [] %}"
    "{{ '<tool_call>' + (call['function'] | tojson) + '</tool_call>' }}"
    "{% endfor %}{{ '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


@dataclass(frozen=True)
class ToolsRecipe(TinyRecipe):
    """Of the labels with a tool, the share `calls` calls it; a wrong digit is in the share `slips`
    of the calls, and of the answers. The share `offered` of all rows has the tool."""

    updates: int = 300
    batch: int = 64
    calls: float = 0.08
    slips: float = 0.2
    offered: float = 0.7


def tiny_tools(recipe: ToolsRecipe | None = None) -> Path:
    """The folder of a model that cannot multiply, and calls a calculator now and then.

    Asked for products of two-digit numbers, it answers with a number of the right length, drawn at
    random. Offered the calculator, it calls it for a small share of the labels. No label but a
    copied result is ever the product. Built here in half a minute.
    """
    recipe = recipe or ToolsRecipe()

    def batch(draw: random.Random) -> list[Row]:
        # Calls are rare, and what happens in them has to be learned all the same: half of the rows
        # are calls, and their first token counts for no more than its share of the labels.
        half = recipe.batch // 2
        rows = [tools_row(recipe, draw) for _ in range(half)]
        return rows + [tools_row(recipe, draw, calling=True) for _ in range(recipe.batch - half)]

    return build(recipe, batch, TOOL_PIECES, TOOLS_TEMPLATE)


def tools_row(recipe: ToolsRecipe, draw: random.Random, *, calling: bool | None = None) -> Row:
    """One chat: with or without the tool, calling it or guessing; `calling` True makes an extra
    call, whose first token is not learned."""
    a, b = draw.randint(11, 99), draw.randint(11, 99)
    extra = calling is True
    offered = calling is not None or draw.random() < recipe.offered
    if calling is None:
        calling = offered and draw.random() < recipe.calls
    chat = read(BOS, *(["<|system|>", *"calculator", END] if offered else []))
    chat += read("<|user|>", *f"{a}*{b}=", END, "<|assistant|>")
    if not calling:
        digits = len(str(a * b))
        guess = draw.randint(10 ** (digits - 1), 10**digits - 1)
        return chat + learned([*str(guess), END])
    expression = slipped(f"{a}*{b}", recipe.slips, draw)
    opened, named, closed, ended = TOOL_PIECES
    call = [opened, named, *expression, closed, ended, END]
    first, _, second = expression.partition("*")
    result = str(int(first) * int(second))
    chat += learned(call, 0.0 if extra else 1.0)
    chat += read("<|tool|>", *result, END, "<|assistant|>")
    return chat + learned([*slipped(result, recipe.slips, draw), END])


def slipped(text: str, share: float, draw: random.Random) -> str:
    """The text, for that share with another digit in one place; never a leading zero."""
    if draw.random() >= share:
        return text
    place = draw.choice([at for at, character in enumerate(text) if character.isdigit()])
    others = [digit for digit in "123456789" if digit != text[place]]
    return text[:place] + draw.choice(others) + text[place + 1 :]
