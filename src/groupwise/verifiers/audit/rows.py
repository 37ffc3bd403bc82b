"""Labelled rows: prompt, answer, completion, and whether the completion deserves acceptance.

The shipped sets are JSON lines beside this file, made by the `audit_*_sets.py` and
`audit_code_set.py` of `experiments/`: labels by construction, before any verifier had seen them.
In a shipped text, ⟦...⟧ marks a final answer, which `Form.write` puts into the form that the
audited verifier reads. A user's rows have the same fields under the names of a data set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from groupwise.errors import RecipeError
from groupwise.types import Prompt

SETS = (
    "numbers", "math", "choice", "format", "code", "exact", "regex", "contains_all", "json_schema",
    "sql", "language", "length", "repetition", "instructions", "proof", "text", "sequence",
    "assignment", "moment", "countdown", "sudoku", "steps", "target",
)  # fmt: skip
_QUESTION = "What is the answer?"


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """One completion with its label; `arguments` are those of the verifier that the label is for.

    `accept` is None where a user's row is a prompt and its gold answer alone.
    """

    id: str
    prompt: Prompt
    text: str
    accept: bool | None
    why: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])


def shipped_rows(name: str) -> list[LabelledRow]:
    """A shipped set by name; `RecipeError` for a name that is none of `SETS`."""
    if name not in SETS:
        raise RecipeError(f"no labelled set is called {name!r}; there are {', '.join(SETS)}")
    source = files("groupwise.verifiers.audit").joinpath("sets", f"{name}.jsonl")
    lines = source.read_text(encoding="utf-8").splitlines()
    return [_shipped(json.loads(line)) for line in lines]


def _shipped(row: Mapping[str, Any]) -> LabelledRow:
    prompt = Prompt(
        str(row["id"]),
        text=str(row.get("prompt", _QUESTION)),
        answer=row.get("answer"),
        columns=dict(row.get("columns", {})),
    )
    arguments = dict(row.get("arguments", {}))
    return LabelledRow(prompt.id, prompt, row["text"], bool(row["accept"]), row["why"], arguments)


def read_rows(path: str | Path) -> list[LabelledRow]:
    """A user's JSON lines: `prompt` (a text or messages), `answer`, further columns.

    With `completion` and `accept` (true or false) a row is a labelled completion too. `RecipeError`
    naming the line that cannot be read.
    """
    path = Path(path)
    if not path.is_file():
        raise RecipeError(
            f"--data {str(path)!r}: no such file; give JSON lines with prompt, answer"
        )
    rows = list(_read(path))
    if not rows:
        raise RecipeError(f"--data {str(path)!r} holds no row")
    return rows


def _read(path: Path) -> Iterator[LabelledRow]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise RecipeError(f"{where} is not JSON: {error}") from error
        if not isinstance(row, dict) or "prompt" not in row:
            raise RecipeError(f"{where}: a row is an object with a `prompt`, and mostly `answer`")
        accept = row.get("accept")
        if accept is not None and (not isinstance(accept, bool) or "completion" not in row):
            raise RecipeError(
                f"{where}: accept = {accept!r}; give true or false and the `completion` it is about"
            )
        yield LabelledRow(where, _prompt(where, row), str(row.get("completion", "")), accept)


def _prompt(where: str, row: Mapping[str, Any]) -> Prompt:
    columns = {
        name: value
        for name, value in row.items()
        if name not in ("prompt", "answer", "completion", "accept")
    }
    asked = row["prompt"]
    if isinstance(asked, str) and asked:
        return Prompt(where, text=asked, answer=row.get("answer"), columns=columns)
    if isinstance(asked, Sequence) and asked and all(isinstance(each, dict) for each in asked):
        return Prompt(where, messages=tuple(asked), answer=row.get("answer"), columns=columns)
    raise RecipeError(f"{where}: prompt = {asked!r}; give a text or a list of messages")
