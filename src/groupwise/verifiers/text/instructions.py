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
from groupwise.verifiers.answers.extraction import after_reasoning
from groupwise.verifiers.core.contract import Case, SettingsVerifier
from groupwise.verifiers.core.names import unknown_name
from groupwise.verifiers.core.scores import TAG, BadAnswer, graded, no_answer
from groupwise.verifiers.text.instruction_checks import CHECKS

Asked = list[tuple[str, dict[str, Any]]]


class Instructions(SettingsVerifier):
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
    reasoning_tag: str = Field(default="think", description=TAG)

    @model_validator(mode="after")
    def _fits(self) -> Instructions:
        if self.ids:
            checked(self.ids, self.kwargs or [{}] * len(self.ids))
        return self

    @property
    def required_columns(self) -> frozenset[str]:
        return frozenset() if self.ids else frozenset({"instruction_id_list", "kwargs"})

    def score_case(self, case: Case) -> Score:
        asked = self._asked(case)
        text = after_reasoning(case.whole, self.reasoning_tag) or ""
        if not text.strip():
            return no_answer("nothing was written")
        texts = _variants(text) if self.loose else [text]
        followed = [
            any(each.strip() and CHECKS[name](each, **arguments) for each in texts)
            for name, arguments in asked
        ]
        failed = [name for (name, _), good in zip(asked, followed) if not good]
        share = sum(followed) / len(followed)
        value = share if self.count == "share" else float(not failed)
        reason = f"not followed: {', '.join(failed)}" if failed else "all followed"
        return graded(value, reason)

    def _asked(self, case: Case) -> Asked:
        if self.ids:
            return checked(self.ids, self.kwargs or [{}] * len(self.ids))
        try:
            return checked(case.column("instruction_id_list"), case.column("kwargs"))
        except (ValueError, TypeError, AttributeError) as error:
            raise BadAnswer(str(error)) from error

    def check_row(self, prompt: Prompt) -> None:
        self._asked(Case(prompt, ""))


def checked(ids: Sequence[str], kwargs: Sequence[Mapping[str, Any] | None]) -> Asked:
    """Ids with their arguments, None entries left out; `ValueError` if they do not fit."""
    if not len(ids) or len(ids) != len(kwargs):
        raise ValueError(f"{len(ids)} instruction ids and {len(kwargs)} tables of arguments")
    asked: Asked = []
    for name, table in zip(ids, kwargs):
        if name not in CHECKS:
            raise unknown_name("instruction", name, CHECKS)
        given = {key: value for key, value in (table or {}).items() if value is not None}
        parameters = inspect.signature(CHECKS[name]).parameters.values()
        wanted = {each.name: str(each.annotation) for each in parameters if each.name != "text"}
        if set(given) != set(wanted):
            raise ValueError(
                f"instruction {name!r} takes {', '.join(wanted) or 'no arguments'}; "
                f"got {', '.join(given) or 'none'}"
            )
        asked.append((name, {key: _argument(name, key, wanted[key], given[key]) for key in given}))
    return asked


def _argument(name: str, key: str, kind: str, value: Any) -> Any:
    """The value as the `kind` that the check is annotated with; whole floats are integers."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if key.endswith("relation") and value not in ("less than", "at least"):
        raise ValueError(f"instruction {name!r}: a relation is 'less than' or 'at least'")
    if kind == "int" and isinstance(value, (int, float)) and value == int(value):
        return int(value)
    texts = value if kind == "Sequence[str]" else [value]
    if kind == "int" or not isinstance(texts, list) or not all(type(t) is str for t in texts):
        raise ValueError(f"instruction {name!r}: {key} = {value!r:.60}; expected {kind}")
    return value


def _variants(text: str) -> list[str]:
    """The text, and without its first line, last line, both, each also without asterisks."""
    lines = text.strip().split("\n")
    bodies = [text, "\n".join(lines[1:]), "\n".join(lines[:-1]), "\n".join(lines[1:-1])]
    bodies = [body.strip() for body in bodies]
    return bodies + [body.replace("*", "") for body in bodies]
