"""Which shipped rows measure which verifier, and with what arguments they hold.

Left out: the rows themselves (`rows.py`, `sets/`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from groupwise.types import Prompt
from groupwise.verifiers.audit.rows import LabelledRow, shipped_rows
from groupwise.verifiers.core.composition import Composite
from groupwise.verifiers.core.contract import Verifier

FAMILIES: dict[str, tuple[str, ...]] = {
    "number": ("numbers",),
    "boxed": ("numbers",),
    "tagged": ("numbers",),
    "math": ("numbers", "math"),
    **{
        name: (name,)
        for name in (
            "choice", "format", "code", "exact", "regex", "contains_all", "json_schema", "sql",
            "language", "length", "repetition", "instructions", "proof", "text", "sequence",
            "assignment", "moment", "countdown", "sudoku", "steps", "target",
        )
    },
}  # fmt: skip
"""Which shipped sets a built-in verifier is measured on."""

NEEDED = ("regex", "length", "target")
"""Verifiers that have to be told what to look for; by name alone, they get their set's arguments"""


def arguments_of_set(name: str) -> dict[str, Any]:
    """What a verifier of `NEEDED` is told so that its labelled set is about it; else nothing."""
    return dict(shipped_rows(name)[0].arguments) if name in NEEDED else {}


def kind_of(verifier: Verifier) -> str:
    """The name that decides which labelled sets apply: of a composition, its main part's."""
    while True:
        if isinstance(verifier, Composite):
            verifier = max(verifier.components, key=lambda each: abs(each.weight)).verifier
        elif isinstance(getattr(verifier, "verifier", None), Verifier):
            verifier = getattr(verifier, "verifier")  # noqa: B009 (known to be there)
        else:
            return verifier.name


def labelled_rows(
    verifier: Verifier, rows: Sequence[LabelledRow], sets: Sequence[str] | None
) -> dict[str, list[LabelledRow]]:
    """The labelled rows by set: those that hold for the verifier's arguments, and the user's."""
    names = FAMILIES.get(kind_of(verifier), ()) if sets is None else sets
    arguments = _arguments(verifier)
    found = {name: [row for row in shipped_rows(name) if _fits(row, arguments)] for name in names}
    own = [row for row in rows if row.accept is not None]
    return {**found, "data": own} if own else found


def _arguments(verifier: Verifier) -> Mapping[str, Any]:
    if isinstance(verifier, Composite):
        verifier = max(verifier.components, key=lambda each: abs(each.weight)).verifier
    return verifier.arguments


def _fits(row: LabelledRow, arguments: Mapping[str, Any]) -> bool:
    return all(arguments.get(name, value) == value for name, value in row.arguments.items())


def shipped_prompts(labelled: Mapping[str, Sequence[LabelledRow]]) -> list[Prompt]:
    """One prompt for each gold answer of the sets."""
    rows = [row for own in labelled.values() for row in own]
    return list({str((row.prompt.answer, row.prompt.columns)): row.prompt for row in rows}.values())


def spread(prompts: Sequence[Prompt], number: int) -> list[Prompt]:
    """At most `number` prompts, evenly spaced."""
    if len(prompts) <= number:
        return list(prompts)
    return [prompts[place * len(prompts) // number] for place in range(number)]
