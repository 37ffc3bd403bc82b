"""`tiny-tools`: a small decoder that cannot multiply, and calls a calculator now and then.

The `tiny` decoder with the frame of a tool call in its vocabulary (four more tokens, in the format
of Hermes and Qwen), started on a table of its own: products of two-digit numbers. Without a tool it
answers with a number of the right length, drawn at random. Offered the calculator, it calls it for
a small share of the labels, with a wrong digit in some of the calls and in some of the answers that
it copies from the result. No label but a copied result is ever the product. Built once, and cached
by the hash of everything that decides its weights. It shows that learning to use a tool works, not
how well a model does.
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
    END,
    ROLES,
    TinyRecipe,
    build_folder,
    vocabulary,
)

PIECES = (
    "<tool_call>",
    '{"name": "calculator", "arguments": {"expression": "',
    '"}}',
    "</tool_call>",
)
"""Texts that are one token each: the frame of a call."""

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
class TinyToolsRecipe(TinyRecipe):
    """Everything that decides the weights.

    Of the labels with a tool, the share `calls` calls it; a wrong digit is in the share `slips` of
    the calls, and of the answers. The share `offered` of all rows has the tool.
    """

    updates: int = 300
    batch: int = 64
    learning_rate: float = 5e-3
    calls: float = 0.08
    slips: float = 0.2
    offered: float = 0.7

    @property
    def name(self) -> str:
        text = json.dumps([asdict(self), TOOLS_TEMPLATE, CHARACTERS, ROLES, PIECES, "1"])
        return f"tiny-tools-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def build_tiny_tools(recipe: TinyToolsRecipe | None = None) -> Path:
    """The folder of the model in the cache, built and trained when it is not there."""
    recipe = recipe or TinyToolsRecipe()

    def build(folder: Path) -> None:
        build_folder(recipe, _cold_start, folder, pieces=PIECES, chat_template=TOOLS_TEMPLATE)

    return cached_folder(recipe.name, build)


Row = tuple[list[int], list[bool]]
"""The ids of a chat, and which of them the assistant wrote."""


def row(recipe: TinyToolsRecipe, draw: random.Random, *, calling: bool | None = None) -> Row:
    """One chat: with or without the tool, calling it or guessing; `calling` decides where given."""
    a, b = draw.randint(11, 99), draw.randint(11, 99)
    question = f"{a}*{b}="
    offered = calling is not None or draw.random() < recipe.offered
    if calling is None:
        calling = offered and draw.random() < recipe.calls
    chat = _Chat()
    chat.add(BOS)
    if offered:
        chat.add("<|system|>", *"calculator", END)
    chat.add("<|user|>", *question, END, "<|assistant|>")
    if not calling:
        digits = len(str(a * b))
        chat.say(*str(draw.randint(10 ** (digits - 1), 10**digits - 1)))
        return chat.row
    expression = _slipped(f"{a}*{b}", recipe.slips, draw)
    chat.say(PIECES[0], PIECES[1], *expression, PIECES[2], PIECES[3])
    first, _, second = expression.partition("*")
    result = str(int(first) * int(second))
    chat.add("<|tool|>", *result, END, "<|assistant|>")
    chat.say(*_slipped(result, recipe.slips, draw))
    return chat.row


class _Chat:
    """Ids as they are added, and whose they are."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.own: list[bool] = []

    def add(self, *tokens: str, own: bool = False) -> None:
        known = vocabulary()
        extra = {piece: len(known) + place for place, piece in enumerate(PIECES)}
        self.ids += [known[token] if token in known else extra[token] for token in tokens]
        self.own += [own] * len(tokens)

    def say(self, *tokens: str) -> None:
        self.add(*tokens, END, own=True)

    @property
    def row(self) -> Row:
        return self.ids, self.own


def _slipped(text: str, share: float, draw: random.Random) -> str:
    """The text, for that share with another digit in one place; never a leading zero."""
    if draw.random() >= share:
        return text
    place = draw.choice([at for at, character in enumerate(text) if character.isdigit()])
    others = [digit for digit in "123456789" if digit != text[place]]
    return text[:place] + draw.choice(others) + text[place + 1 :]


def _cold_start(model: Any, recipe: TinyToolsRecipe) -> None:
    """Cross-entropy on what the assistant wrote.

    Calls are rare, and what happens in them has to be learnt all the same: half of the rows are
    calls, and their first token counts for no more than its share of the labels.
    """
    import torch

    draw = random.Random(recipe.seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.learning_rate, total_steps=recipe.updates, pct_start=0.1
    )
    for _ in range(recipe.updates):
        rows = [row(recipe, draw) for _ in range(recipe.batch // 2)]
        calls = [row(recipe, draw, calling=True) for _ in range(recipe.batch - len(rows))]
        ids, weights = _padded(rows, calls)
        logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        losses = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
        )
        loss = (losses * weights[:, 1:].flatten()).sum() / weights[:, 1:].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def _padded(rows: list[Row], calls: list[Row]) -> tuple[Any, Any]:
    """Ids [B, T], and 1 where a token is learnt: the assistant's, but no extra call's first."""
    import torch

    longest = max(len(ids) for ids, _ in (*rows, *calls))
    end = vocabulary()[END]
    filled = torch.full((len(rows) + len(calls), longest), end)
    weights = torch.zeros(len(rows) + len(calls), longest)
    for place, (ids, own) in enumerate((*rows, *calls)):
        filled[place, : len(ids)] = torch.tensor(ids)
        weights[place, : len(ids)] = torch.tensor(own, dtype=torch.float32)
        if place >= len(rows):
            weights[place, own.index(True)] = 0.0
    return filled, weights
