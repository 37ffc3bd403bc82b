"""Verdicts of our own for reasoning-gym tasks whose scorer executes the answer.

Each is a function of the answer as it is written and the entry's metadata; True, False, or None
where nothing of the asked form is there. Nothing is executed: grids, lists and expressions are read
by their form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from groupwise.verifiers.answers.arithmetic import Polynomial, evaluate, numbers_in, parse

Verdict = bool | None
Own = Callable[[str, Mapping[str, Any], str], Verdict]
"""Answer, metadata, gold answer."""

_INTEGERS = re.compile(r"[\s\[\](),;]*(?:-?\d{1,9}[\s\[\](),;]+)*-?\d{1,9}[\s\[\](),;]*")


def _integers(text: str) -> list[int] | None:
    """Whole numbers with white space, commas or brackets between them, and nothing else."""
    if not _INTEGERS.fullmatch(text):
        return None
    return [int(each) for each in re.findall(r"-?\d+", text)]


def _rows(text: str) -> list[str]:
    """Lines that hold something; a nested list is one line a row."""
    text = re.sub(r"\]\s*,\s*\[", "\n", text)
    return [line for line in text.splitlines() if line.strip(" []\t,")]


def binary_matrix(answer: str, metadata: Mapping[str, Any], gold: str) -> Verdict:
    """The distances, row by row."""
    rows = [_integers(row) for row in _rows(answer)]
    if not rows or any(row is None for row in rows):
        return None
    return rows == [list(row) for row in metadata["solution"]]


def spiral_matrix(answer: str, metadata: Mapping[str, Any], gold: str) -> Verdict:
    """The elements in their order."""
    found = _integers(answer)
    return None if found is None else found == list(metadata["solution"])


def string_insertion(answer: str, metadata: Mapping[str, Any], gold: str) -> Verdict:
    """The letters A to E, in quotes or not."""
    text = answer.strip().strip("\"'`")
    return text == metadata["solution"] if re.fullmatch(r"[A-E]{1,200}", text) else None


def n_queens(answer: str, metadata: Mapping[str, Any], gold: str) -> Verdict:
    """A board with the given queens, n in all, none of which attacks another."""
    board = [re.findall(r"[Q_]", row) for row in _rows(answer)]
    puzzle: Sequence[Sequence[str]] = metadata["puzzle"]
    size = len(puzzle)
    if len(board) != size or any(len(row) != size for row in board):
        return None
    if re.search(r"[^\sQ_,\[\]'\"]", answer):
        return None
    queens = [(r, c) for r in range(size) for c in range(size) if board[r][c] == "Q"]
    kept = all(board[r][c] == "Q" for r in range(size) for c in range(size) if puzzle[r][c] == "Q")
    lines = [
        {r for r, _ in queens}, {c for _, c in queens}, {r + c for r, c in queens},
        {r - c for r, c in queens},
    ]  # fmt: skip
    return kept and len(queens) == size and all(len(line) == size for line in lines)


def countdown(answer: str, metadata: Mapping[str, Any], gold: str) -> Verdict:
    """An expression of all the numbers, each once, that makes the target."""
    return _expression(answer, metadata["numbers"], metadata["target"])


def puzzle24(answer: str, metadata: Mapping[str, Any], gold: str) -> Verdict:
    """The same with the target 24."""
    return _expression(answer, metadata["numbers"], 24)


def _expression(answer: str, numbers: Sequence[int], target: int) -> Verdict:
    if "**" in answer or "^" in answer:
        return False
    try:
        read = parse(_undressed(answer))
        value = evaluate(read).constant
    except ValueError:
        return None
    except ZeroDivisionError:
        return False
    if value is None:
        return None
    return value == target and sorted(numbers_in(read)) == sorted(numbers)


def polynomial_multiplication(answer: str, metadata: Mapping[str, Any], gold: str) -> Verdict:
    """The product, multiplied out: no parentheses left."""
    text = _undressed(answer)
    try:
        return _polynomial(text) == _polynomial(gold) and "(" not in text
    except ValueError:
        return None
    except ZeroDivisionError:
        return False


def simple_integration(answer: str, metadata: Mapping[str, Any], gold: str) -> Verdict:
    """An antiderivative: the gold one up to a constant, which may be written or not."""
    try:
        read = _polynomial(_undressed(answer))
        return read.without("C", "c") == _polynomial(gold).without("C", "c")
    except ValueError:
        return None
    except ZeroDivisionError:
        return False


def _polynomial(text: str) -> Polynomial:
    return evaluate(parse(text))


def _undressed(answer: str) -> str:
    """Without dollars, backquotes and a full stop around it."""
    return answer.strip().strip("$`").strip().removesuffix(".")


OWN: dict[str, Own] = {
    "binary_matrix": binary_matrix,
    "countdown": countdown,
    "n_queens": n_queens,
    "polynomial_multiplication": polynomial_multiplication,
    "puzzle24": puzzle24,
    "simple_integration": simple_integration,
    "spiral_matrix": spiral_matrix,
    "string_insertion": string_insertion,
}
"""By task."""

NO_ANSWER = "its entries have no answer, so no verdict can be checked against one"
REFUSED: dict[str, str] = {
    "boxnet": NO_ANSWER,
    "coin_flip": "its scorer accepts any long run of zeros",
    "composite": "it is a mixture of other tasks and has none of its own; mix environments instead",
    "game_of_life_halting": "its scorer gives full marks to any text",
    "graph_color": NO_ANSWER,
    "intermediate_integration": "its scorer executes the answer, and a verdict on integrals of "
    "that kind needs an algebra system that executes its input too; some gold answers are "
    "integrals that are left unsolved",
    "propositional_logic": NO_ANSWER,
    "rubiks_cube": NO_ANSWER,
    "rush_hour": NO_ANSWER,
}
"""Tasks that cannot be trained on, with the reason."""
