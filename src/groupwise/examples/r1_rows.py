"""Rows for the supervised stages of the R1 recipes: clean long traces, and short general answers.

All are made from training prompts of the recipes' environments, so nothing held out is in them.
In a recipe: `data = { path = "groupwise.examples.r1_rows:tiny_traces", limit = 300 }`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from groupwise.environments import load_environment
from groupwise.policies.tiny_reasoner import ENGLISH
from groupwise.types import Prompt

SUMS: dict[str, Any] = {
    "operations": ["add"],
    "min_operand": 1,
    "max_operand": 9,
    "max_value": 36,
    "num_operations": [2, 3],
    "phrasing": "bare",
    "num_train": 2000,
    "num_heldout": 200,
}
"""The reasoning prompts of recipes/r1.toml."""
NUMBERS: dict[str, Any] = {
    "path": "groupwise.examples.r1_rows:numbers",
    "heldout_share": 0.1,
    "verifiers": [{"name": "tagged"}],
}
"""Its general prompts: a number to be repeated, which the tiny reasoner was never asked for."""
THREE_DIGITS: dict[str, Any] = {
    "operations": ["add"],
    "min_operand": 1,
    "max_operand": 9,
    "max_value": 27,
    "num_operations": [2, 2],
    "phrasing": "bare",
    "num_train": 400,
    "num_heldout": 32,
    "system": "Think in <think></think>, then answer in <answer></answer>.",
}
"""The reasoning prompts of recipes/r1_smollm2.toml."""
ONE_RULE: dict[str, Any] = {"num_rules": [1, 1], "num_train": 200, "num_heldout": 12}
"""Its general prompts: write on a subject by one of IFEval's rules."""


def tiny_traces(seed: int) -> Iterator[dict[str, Any]]:
    """Steps in English without a slip, every one checked in every other trace, and the answer."""
    for number, prompt in enumerate(_prompts(seed, SUMS)):
        operands = prompt.columns["operands"]
        total, lines = operands[0], list[str]()
        for place, operand in enumerate(operands[1:]):
            for start in (place, None) if number % 2 else (place,):
                lines += ENGLISH.step(start, total, operand, total + operand)
            total += operand
        yield _row(prompt, f"<think>{''.join(lines)}</think><answer>{total}</answer>")


def numbers() -> Iterator[dict[str, Any]]:
    """A prompt for every second number of two and three digits."""
    for number in range(10, 1000, 2):
        yield {"prompt": f"say {number}", "answer": str(number)}


def tiny_general(seed: int) -> Iterator[dict[str, Any]]:
    """Numbers, repeated at once."""
    for prompt in _prompts(seed, NUMBERS, "dataset"):
        yield _row(prompt, f"<answer>{prompt.answer}</answer>")


def smollm2_traces(seed: int) -> Iterator[dict[str, Any]]:
    """Two steps in English, checked in every other trace, and the answer in its tag."""
    for number, prompt in enumerate(_prompts(seed, THREE_DIGITS)):
        first, second, third = prompt.columns["operands"]
        part, total = first + second, first + second + third
        lines = [
            f"Adding {first} and {second} gives {part}.",
            f"Adding {part} and {third} gives {total}.",
        ]
        lines += [f"Checking: {total} minus {third} gives {part}."] * (number % 2)
        yield _row(prompt, f"<think>{' '.join(lines)}</think><answer>{total}</answer>")


def smollm2_general(seed: int) -> Iterator[dict[str, Any]]:
    """Texts that follow one rule."""
    for prompt in _prompts(seed, ONE_RULE, "instructions"):
        yield _row(prompt, prompt.columns["example"])


def _prompts(seed: int, arguments: dict[str, Any], name: str = "arithmetic") -> list[Prompt]:
    return load_environment(name, seed=seed, **arguments).prompts(split="train")


def _row(prompt: Prompt, completion: str) -> dict[str, Any]:
    return {"messages": [*prompt.messages, {"role": "assistant", "content": completion}]}
