"""What is checked about prompts before anything loads: columns and gold answers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.errors import RecipeError
from groupwise.texts import counted
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


def check_prompts(verifier: Verifier, prompts: Sequence[Prompt], where: str) -> None:
    """`check_columns` and `check_answers`."""
    places = [f"prompt {prompt.id!r}" for prompt in prompts]
    check_columns(verifier, prompts, where, places)
    check_answers(verifier, prompts, where, places)


def check_columns(
    verifier: Verifier, prompts: Sequence[Prompt], where: str, places: Sequence[str]
) -> None:
    """Raises RecipeError if a prompt lacks a column that the verifier needs; names what there is.

    `places` names each prompt's row.
    """
    for column in sorted(verifier.required_columns):
        for place, prompt in zip(places, prompts, strict=True):
            if column not in prompt.columns:
                available = ", ".join(sorted({*prompt.columns, "answer"}))
                raise RecipeError(
                    f"{where}: verifier {verifier.name!r} needs a column {column!r}, which {place} "
                    f"does not have; available: {available}"
                )


def check_answers(
    verifier: Verifier,
    prompts: Sequence[Prompt],
    where: str,
    places: Sequence[str],
    column: str = "",
    advice: str = "",
) -> None:
    """Raises RecipeError naming the first prompts whose gold answer their verifier rejects.

    The message shows the value of `column` for the answer where there is one.
    """
    rows = []
    for place, prompt, reason in zip(places, prompts, verifier.check_answers(prompts), strict=True):
        if reason is not None:
            answer = prompt.columns.get(column, prompt.answer)
            rows.append(f"{place} (answer {answer!r:.60}): {reason}")
    if rows and all(re.search(r"\): (\w+: )?the column ", row) for row in rows):
        raise RecipeError(
            f"{where}: {counted(len(rows), 'row')} cannot be judged: {first_of(rows)}{advice}"
        )
    if rows:
        plural = "answers are" if len(rows) > 1 else "answer is"
        raise RecipeError(
            f"{where}: {len(rows)} gold {plural} rejected by their own verifier: "
            f"{first_of(rows)}{advice}"
        )
