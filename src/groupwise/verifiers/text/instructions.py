"""Instruction following by rules: `instructions`, over IFEval's ids and arguments.

The prompt's columns `instruction_id_list` and `kwargs` say what was asked, as in IFEval's data; or
the arguments do, the same for every prompt. The checks themselves are in `instruction_checks.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from groupwise.types import Prompt, Score
from groupwise.verifiers.core.contract import Case
from groupwise.verifiers.core.names import unknown_name
from groupwise.verifiers.core.scores import BadAnswer, graded
from groupwise.verifiers.text.checks import TextVerifier
from groupwise.verifiers.text.instruction_checks import CHECKS, kind

Asked = list[tuple[str, dict[str, Any]]]


class Instructions(TextVerifier):
    """The share of the asked instructions that the text follows; the reason names the others."""

    verifier_name: ClassVar[str] = "instructions"

    ids: tuple[str, ...] = Field(
        default=(), description="IFEval ids, the same for every prompt; else from the columns."
    )
    kwargs: tuple[dict[str, Any], ...] = Field(
        default=(), description="Their arguments, one table an id."
    )
    count: Literal["share", "all"] = Field(
        default="share", description="share: the fraction followed. all: 1 only where all are."
    )
    loose: bool = Field(
        default=False,
        description="IFEval's loose reading: also without the first line, the last line, both, or "
        "the asterisks; the best of them counts for each instruction.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Instructions:
        if self.ids:
            checked(self.ids, self.kwargs or [{}] * len(self.ids))
        return self

    @property
    def required_columns(self) -> frozenset[str]:
        return frozenset() if self.ids else frozenset({"instruction_id_list", "kwargs"})

    def judge(self, text: str, case: Case) -> Score:
        asked = self._asked(case.prompt)
        texts = _variants(text) if self.loose else [text]
        failed = [
            name
            for name, arguments in asked
            if not any(each.strip() and CHECKS[name](each, **arguments) for each in texts)
        ]
        share = 1 - len(failed) / len(asked)
        value = share if self.count == "share" else float(not failed)
        return graded(value, f"not followed: {', '.join(failed)}" if failed else "all followed")

    def _asked(self, prompt: Prompt) -> Asked:
        if self.ids:
            return checked(self.ids, self.kwargs or [{}] * len(self.ids))
        case = Case(prompt, "")
        try:
            return checked(case.column("instruction_id_list"), case.column("kwargs"))
        except (ValueError, TypeError, AttributeError) as error:
            raise BadAnswer(str(error)) from error

    def check_row(self, prompt: Prompt) -> None:
        self._asked(prompt)


def checked(ids: Sequence[str], kwargs: Sequence[Mapping[str, Any] | None]) -> Asked:
    """Ids with their arguments, None entries left out; `ValueError` if they do not fit."""
    if not len(ids) or len(ids) != len(kwargs):
        raise ValueError(f"{len(ids)} instruction ids and {len(kwargs)} tables of arguments")
    asked: Asked = []
    for name, table in zip(ids, kwargs):
        if name not in CHECKS:
            raise unknown_name("instruction", name, CHECKS)
        given = {key: value for key, value in (table or {}).items() if value is not None}
        _, *wanted = inspect.signature(CHECKS[name]).parameters
        if set(given) != set(wanted):
            raise ValueError(
                f"instruction {name!r} takes {', '.join(wanted) or 'no arguments'}; "
                f"got {', '.join(given) or 'none'}"
            )
        asked.append((name, {key: _argument(name, key, given[key]) for key in given}))
    return asked


def _argument(name: str, key: str, value: Any) -> Any:
    """The value as the `kind` of its argument; whole floats are integers."""
    value = value.tolist() if hasattr(value, "tolist") else value
    wanted = kind(key)
    if key.endswith("relation") and value not in ("less than", "at least"):
        raise ValueError(f"instruction {name!r}: a relation is 'less than' or 'at least'")
    if wanted == "int" and isinstance(value, (int, float)) and value == int(value):
        return int(value)
    texts = value if wanted == "Sequence[str]" else [value]
    if wanted == "int" or not isinstance(texts, list) or not all(type(t) is str for t in texts):
        raise ValueError(f"instruction {name!r}: {key} = {value!r:.60}; expected {wanted}")
    return value


def _variants(text: str) -> list[str]:
    """The text, and without its first line, last line, both, each also without asterisks."""
    lines = text.strip().split("\n")
    bodies = [text, "\n".join(lines[1:]), "\n".join(lines[:-1]), "\n".join(lines[1:-1])]
    bodies = [body.strip() for body in bodies]
    return bodies + [body.replace("*", "") for body in bodies]
