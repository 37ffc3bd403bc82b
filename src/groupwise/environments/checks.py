"""What is checked about prompts before anything loads: columns and gold answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.errors import RecipeError
from groupwise.types import Prompt
from groupwise.verifiers import Verifier

SHOWN = 5
"""How many rows a message names."""
DEEPEST = 100
"""Lists and objects of a column within one another."""


def first_of(places: Sequence[str]) -> str:
    """The first places for a message, and how many more there are."""
    more = [f"and {len(places) - SHOWN} more"] if len(places) > SHOWN else []
    return "; ".join([*places[:SHOWN], *more])


def check_values(values: Mapping[str, Any], where: str) -> None:
    """`RecipeError` naming the column whose text holds half of a surrogate pair, whose lists and
    objects lie too deep for what reads and writes them later, or whose keys are no texts.

    JSON's `"\\ud800"` gives half a pair; it is no character, and no tokenizer takes it.
    """
    for column, value in values.items():
        if _deeper_than(value, DEEPEST):
            raise RecipeError(
                f"{where}: column {column!r} holds lists or objects more than {DEEPEST} deep; "
                "flatten them, or give them as a text"
            )
        try:
            json.dumps(value, sort_keys=True, default=str, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise RecipeError(
                f"{where}: column {column!r} holds {error.object[error.start]!r}, half of a "
                "surrogate pair, which is no character; write the whole character or take it out"
            ) from error
        except (TypeError, ValueError) as error:
            raise RecipeError(
                f"{where}: column {column!r} cannot be written as JSON ({error}); give texts, "
                "numbers, lists, and objects whose keys are texts"
            ) from error


def _deeper_than(value: Any, depth: int) -> bool:
    """Whether lists and objects lie more than `depth` within one another, found without recursion.

    >>> _deeper_than([[1]], 1), _deeper_than([[1]], 2)
    (True, False)
    """
    level = {id(value): value}  # one that holds itself many times over is looked at once a level
    for _ in range(depth + 1):
        level = {id(part): part for each in level.values() for part in _parts(each)}
        if not level:
            return False
    return True


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    return list(value) if isinstance(value, (list, tuple)) else []


def check_columns(
    verifier: Verifier,
    prompts: Sequence[Prompt],
    where: str,
    places: Sequence[str] | None = None,
) -> None:
    """`RecipeError` where a prompt lacks a column that the verifier needs; names what there is.

    `places` names each prompt's row.
    """
    for column in sorted(verifier.required_columns):
        for number, prompt in enumerate(prompts):
            if column not in prompt.columns:
                available = ", ".join(sorted({*prompt.columns, "answer"}))
                place = f"prompt {prompt.id!r}" if places is None else places[number]
                raise RecipeError(
                    f"{where}: verifier {verifier.name!r} needs a column {column!r}, which {place} "
                    f"does not have; available: {available}"
                )


def rejected_answers(verifier: Verifier, prompts: Sequence[Prompt]) -> list[tuple[int, str]]:
    """Position and reason of every prompt whose gold answer its own verifier rejects."""
    reasons = verifier.check_answers(prompts)
    return [(position, reason) for position, reason in enumerate(reasons) if reason is not None]


def check_answers(verifier: Verifier, prompts: Sequence[Prompt], where: str) -> None:
    """`RecipeError` naming the first rows whose gold answer is rejected, and how many there are."""
    rejected = rejected_answers(verifier, prompts)
    if rejected:
        rows = [
            f"prompt {prompts[position].id!r} (answer {prompts[position].answer!r}): {reason}"
            for position, reason in rejected
        ]
        raise RecipeError(f"{where}: {rejected_message(rows)}")


def rejected_message(rows: Sequence[str]) -> str:
    """One message from one line a rejected row."""
    plural = "answers are" if len(rows) > 1 else "answer is"
    return f"{len(rows)} gold {plural} rejected by their own verifier: {first_of(rows)}"
