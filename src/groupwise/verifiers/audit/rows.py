"""Labelled rows: prompt, answer, completion, and whether the completion deserves acceptance.

The shipped sets are JSON lines beside this file, written by `experiments/audit_*.py`: labels by
construction, before any verifier had seen them. In a shipped text, ⟦...⟧ marks a final answer,
which `probes.Form.fill` writes in the form that the audited verifier reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from groupwise.errors import RecipeError
from groupwise.texts import from_json
from groupwise.types import Prompt
from groupwise.verifiers.core.composition import main_part
from groupwise.verifiers.core.contract import Verifier
from groupwise.verifiers.core.user import RewardFunction

_FOLDER = files("groupwise.verifiers.audit").joinpath("sets")
SETS = tuple(sorted(each.name.removesuffix(".jsonl") for each in _FOLDER.iterdir()))
"""The shipped sets; most are named after the verifier that they measure."""
_SETS_OF = {
    "number": ("numbers",),
    "boxed": ("numbers",),
    "tagged": ("numbers",),
    "math": ("numbers", "math"),
}
NEEDED = ("regex", "length", "target")
"""Verifiers that have required arguments; audited by name alone, they use their set's."""


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """One completion with its label; `arguments` are those of the verifier that the label is for.

    `accept` is None if a user's row is only a prompt and its gold answer.
    """

    id: str
    prompt: Prompt
    text: str
    accept: bool | None
    why: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])


def sets_of(name: str) -> tuple[str, ...]:
    """The shipped sets that measure a built-in verifier."""
    return _SETS_OF.get(name, (name,) if name in SETS else ())


def arguments_of_set(name: str) -> dict[str, Any]:
    """The arguments that a verifier of `NEEDED` is audited with by default; else none."""
    return dict(shipped_rows(name)[0].arguments) if name in NEEDED else {}


def labelled_rows(
    verifier: Verifier, rows: Sequence[LabelledRow], sets: Sequence[str] | None
) -> dict[str, list[LabelledRow]]:
    """The labelled rows by set: those that hold for the verifier's arguments, and the user's."""
    main = main_part(verifier)
    own = () if isinstance(main, RewardFunction) else sets_of(main.name)
    names = own if sets is None else sets
    found = {
        name: [
            row
            for row in shipped_rows(name)
            if all(main.arguments.get(key, value) == value for key, value in row.arguments.items())
        ]
        for name in names
    }
    labelled = [row for row in rows if row.accept is not None]
    return {**found, "data": labelled} if labelled else found


def shipped_rows(name: str) -> list[LabelledRow]:
    """A shipped set by name; `RecipeError` for an unknown one."""
    if name not in SETS:
        raise RecipeError(f"unknown labelled set {name!r}; legal: {', '.join(SETS)}")
    lines = _FOLDER.joinpath(f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [_shipped(from_json(line)) for line in lines]


def _shipped(row: Mapping[str, Any]) -> LabelledRow:
    prompt = Prompt(
        str(row["id"]),
        text=str(row.get("prompt", "What is the answer?")),
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
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    rows = [_row(f"{path}:{number}", line) for number, line in lines if line.strip()]
    if not rows:
        raise RecipeError(f"--data {str(path)!r} has no rows")
    return rows


def _row(where: str, line: str) -> LabelledRow:
    try:
        row = from_json(line)
    except ValueError as error:
        raise RecipeError(f"{where} is not JSON: {error}") from error
    if not isinstance(row, dict) or "prompt" not in row:
        raise RecipeError(f"{where}: expected an object with `prompt` and usually `answer`")
    accept = row.pop("accept", None)
    if accept is not None and (not isinstance(accept, bool) or "completion" not in row):
        raise RecipeError(
            f"{where}: accept = {accept!r}; give true or false and the `completion` it is about"
        )
    text = str(row.pop("completion", ""))
    return LabelledRow(where, _prompt(where, row), text, accept)


def _prompt(where: str, row: dict[str, Any]) -> Prompt:
    asked, answer = row.pop("prompt"), row.pop("answer", None)
    if isinstance(asked, str) and asked:
        return Prompt(where, text=asked, answer=answer, columns=row)
    if isinstance(asked, list) and asked and all(isinstance(each, dict) for each in asked):
        return Prompt(where, messages=tuple(asked), answer=answer, columns=row)
    raise RecipeError(f"{where}: prompt = {asked!r}; give a text or a list of messages")
