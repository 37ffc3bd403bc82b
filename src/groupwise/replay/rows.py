"""Recorded rows as prompts, cases and groups again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.algorithms import Algorithm, algorithm_from_table
from groupwise.errors import RecipeError
from groupwise.records import Run
from groupwise.texts import from_json
from groupwise.types import FINISH_REASONS, Prompt
from groupwise.verifiers import Case

Row = Mapping[str, Any]

_NAMES_CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def prompt_of(row: Row) -> Prompt:
    """The prompt of a recorded row: a chat where the text is a list of messages."""
    messages, columns = _parsed(row["prompt"], list), _parsed(row.get("columns"), dict)
    given = {"messages": tuple(messages)} if messages else {"text": row["prompt"]}
    return Prompt(id=row["prompt_id"], answer=row.get("answer"), columns=columns or {}, **given)


def case_of(row: Row) -> Case:
    """What a verifier reads of a recorded row. The environment's own verdict is not recorded."""
    turns = _parsed(row.get("messages"), list)
    return Case(
        prompt_of(row),
        row["text"] if row.get("output") is None else row["output"],
        completion_ids=tuple(row["completion_ids"]),
        finish_reason=row["finish_reason"] if row["finish_reason"] in FINISH_REASONS else "stop",
        turns=tuple(turns) if turns else None,
        opened=row.get("opened") or "",
    )


def group_numbers(rows: Sequence[Row]) -> list[int]:
    """The number of each row's group: rows of one prompt's visit in one step."""
    numbers: dict[tuple[Any, ...], int] = {}
    keys = [(row["step"], row["prompt_id"], row.get("visit"), row.get("kind")) for row in rows]
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def algorithm_of(run: Run) -> Algorithm:
    """The run's algorithm, from its recorded recipe.

    Raises RecipeError where the recipe has none (an imported record), or names the user's code.
    """
    table = run.recipe.get("algorithm")
    if table is None:
        raise RecipeError(
            f"{run.folder} has no algorithm in its recipe; name one: --algorithm grpo"
        )
    code = _code_in(table)
    if code is not None:
        raise RecipeError(
            f"{run.folder}: its algorithm names code, {code!r}, which is not imported to read a "
            "record; name a preset instead, for example grpo"
        )
    return algorithm_from_table(table)


def _code_in(value: Any) -> str | None:
    """The first text in nested tables that names `module:function`."""
    if isinstance(value, str):
        return value if _NAMES_CODE.fullmatch(value) else None
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return next(filter(None, map(_code_in, value)), None)
    return None


def _parsed(text: str | None, kind: type) -> Any:
    """The JSON value of a text where it is of that kind, else None."""
    if text is None or text[:1] not in ("[", "{"):
        return None
    try:
        value = from_json(text)
    except ValueError:
        return None
    return value if isinstance(value, kind) else None
