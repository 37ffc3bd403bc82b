"""Verbalised sampling: several answers with stated probabilities in one completion (arXiv
2510.01171)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from groupwise.types import Prompt

INSTRUCTION = (
    "Give {count} different responses to what follows. Write each as "
    "<response><text>the response</text><probability>the probability, from 0 to 1, that you would "
    "give it</probability></response>.\n\n"
)
_RESPONSE = re.compile(r"<response>(.*?)</response>", re.DOTALL)
_TEXT = re.compile(r"<text>(.*?)</text>", re.DOTALL)
_PROBABILITY = re.compile(r"<probability>\s*([^<]*?)\s*(%?)\s*</probability>")


@dataclass(frozen=True, slots=True)
class Verbalized:
    """Stated responses, and their probabilities, which sum to 1. `uniform`: no usable one was
    stated. `dropped`: responses whose probability was missing, unreadable, NaN or negative."""

    texts: tuple[str, ...]
    probabilities: tuple[float, ...]
    uniform: bool = False
    dropped: int = 0


def verbalized_prompt(prompt: Prompt, count: int) -> Prompt:
    """The prompt with the instruction in front of its last message, or of its raw text."""
    instruction = INSTRUCTION.format(count=count)
    if prompt.text is not None:
        return replace(prompt, text=instruction + prompt.text)
    *before, last = prompt.messages
    content = f"{instruction}{last.get('content', '')}"
    return replace(prompt, messages=(*before, {**last, "content": content}))


def read_verbalized(text: str) -> Verbalized | None:
    """The stated distribution, renormalised; None where no response can be read.

    A response without a usable probability is dropped. Where none has one, or all are 0, every
    response is as likely.

    >>> row = "<response><text>{}</text><probability>{}</probability></response>"
    >>> read_verbalized(row.format("a", "0.3") + row.format("b", "10%")).probabilities
    (0.75, 0.25)
    """
    stated: list[tuple[str, float | None]] = []
    for block in _RESPONSE.findall(text):
        found, number = _TEXT.search(block), _PROBABILITY.search(block)
        if found is not None and found.group(1).strip():
            value = None if number is None else _probability(*number.groups())
            stated.append((found.group(1).strip(), value))
    if not stated:
        return None
    usable = [(answer, value) for answer, value in stated if value is not None]
    total = math.fsum(value for _, value in usable)
    if total <= 0:
        texts = tuple(answer for answer, _ in stated)
        return Verbalized(texts, (1 / len(texts),) * len(texts), uniform=True)
    return Verbalized(
        tuple(answer for answer, _ in usable),
        tuple(value / total for _, value in usable),
        dropped=len(stated) - len(usable),
    )


def _probability(written: str, percent: str) -> float | None:
    try:
        value = float(written) / (100 if percent else 1)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
