"""Verifiers by name: built-in ones, TRL-style functions, classes, and compositions of them.

A built-in is one entry of `BUILTIN`; its module is imported when it is asked for, so that listing
names is cheap and optional libraries stay optional.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from pydantic import Field

from groupwise.errors import RecipeError
from groupwise.imports import import_object
from groupwise.types import Prompt, Score
from groupwise.verifiers.core.composition import Combine, Component, Composite
from groupwise.verifiers.core.contract import (
    Case,
    OnError,
    SettingsVerifier,
    Verifier,
    score_cases,
)
from groupwise.verifiers.core.names import Arguments, unknown_name, validated
from groupwise.verifiers.core.user import Isolated, RewardFunction, call_user

BUILTIN: dict[str, str] = {
    "exact": "groupwise.verifiers.answers.answers:Exact",
    "number": "groupwise.verifiers.answers.answers:Number",
    "tagged": "groupwise.verifiers.answers.answers:Tagged",
    "boxed": "groupwise.verifiers.answers.answers:Boxed",
    "format": "groupwise.verifiers.text.checks:Format",
    "math": "groupwise.verifiers.answers.math:Math",
    "choice": "groupwise.verifiers.answers.answers:Choice",
    "regex": "groupwise.verifiers.text.checks:Regex",
    "json_schema": "groupwise.verifiers.text.json_schema:JsonSchema",
    "language": "groupwise.verifiers.text.language:Language",
    "length": "groupwise.verifiers.text.checks:Length",
    "repetition": "groupwise.verifiers.text.checks:Repetition",
    "target": "groupwise.verifiers.process.target:Target",
    "instructions": "groupwise.verifiers.text.instructions:Instructions",
    "judge": "groupwise.verifiers.judge.judge:Judge",
    "rubric": "groupwise.verifiers.judge.rubric:Rubric",
    "code": "groupwise.verifiers.code.code:Code",
    "sql": "groupwise.verifiers.code.sql:Sql",
    "text": "groupwise.verifiers.answers.answers:Text",
    "countdown": "groupwise.verifiers.answers.countdown:Countdown",
    "reasoning_gym": "groupwise.verifiers.answers.reasoning_gym:ReasoningGym",
    "play": "groupwise.verifiers.process.play:PlayResult",
}

REMOVED: dict[str, str] = {
    "assignment": '"math" (a gold answer "x = 3, y = -2") or "text"',
    "moment": '"text" (a date or time as it is written) or "number" (a duration in one unit)',
    "sequence": '"math" with a gold answer in brackets, "(3, 10, 21)", or "text"',
    "steps": '"process_reward_model", or a function of your own whose scores have `steps`',
    "sudoku": '"reasoning_gym" with task = "mini_sudoku" or "sudoku"',
    "code_package": '"code", which judges one program',
    "contains_all": '"regex", "text", or a reward function of your own (module:function)',
    "proof": "a verifier of your own (module:Class) that runs your checker, isolated",
    "code.literal_inputs": "held-out tests (tests_column), and the doctor's `literal_tests`",
    **{
        f"{name}.percent": 'a list of accepted answers, as ["0.28", "28%"]'
        for name in ("number", "boxed", "tagged", "math")
    },
    "length.kind": "a reward function of your own (module:function) for a cosine of the length",
}
"""Names of earlier versions, and what to use in their place."""

ENTRY_POINTS = "groupwise.verifiers"
"""The entry point group of verifiers; this package offers its model-backed ones in it too."""


class VerifierSettings(Arguments):
    """One component of the reward."""

    name: str = Field(
        description="A built-in verifier (number, boxed, ...) or `module:function`, a TRL-style "
        "reward function, or `module:Class`, a Verifier."
    )
    weight: float = Field(
        default=1.0,
        allow_inf_nan=False,
        description="What its value is multiplied by in the sum; 0 reports it without counting it.",
    )
    label: str | None = Field(
        default=None,
        description="What metrics and gates call it; the name by default. Two components of one "
        "name need it.",
    )
    gate: str | None = Field(
        default=None,
        description="Another component's label: this one counts only where that one was correct "
        "(`label` or `label:correct`) or at least found an answer (`label:parsed`).",
    )
    threshold: float | None = Field(
        default=None,
        allow_inf_nan=False,
        description="Where set, the value becomes 1 at or above it and 0 below.",
    )
    correct_from: float | None = Field(
        default=None,
        allow_inf_nan=False,
        description="Value from which the outcome is `correct`, for accuracy and pass rates; the "
        "reward stays as it is. By default 1 is correct; values above 1 have no verdict.",
    )
    on_error: OnError = Field(
        default="stop",
        description="stop: an exception ends the run naming verifier, row and error. skip: the row "
        "is excluded and counted; where every row fails the run still ends.",
    )
    deadline: float = Field(
        default=600.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds for one batch of a `module:function` or `module:Class`, after which "
        "a warning names it; 0 is none. An `async` one is abandoned then and its completions are "
        "`verifier_timeout`; a plain one runs in the main thread and is waited for. Not for one "
        "with a time_limit.",
    )
    time_limit: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Where set, a `module:function` or `module:Class` runs in worker processes, "
        "and this is the seconds for one call. A function is called with the whole batch, and with "
        "each completion alone where that overran; a completion that overruns alone is "
        "`verifier_timeout` (not scored, counted), and so are those left after 8 in a row.",
    )
    arguments: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="The verifier's own arguments."
    )


VerifierTables = Sequence[Mapping[str, Any] | VerifierSettings]
"""Verifiers as a recipe states them."""


def verifier_class(name: str) -> type[SettingsVerifier]:
    """The class of a built-in verifier, or of one that an installed package offers by entry point.

    `RecipeError` with the nearest name otherwise.
    """
    if name in REMOVED:
        raise RecipeError(f"verifier {name!r} was removed; use {REMOVED[name]}")
    target = BUILTIN.get(name) or _offered().get(name)
    if target is None:
        raise unknown_name("verifier", name, [*BUILTIN, *_offered(), "module:function"])
    module, _, attribute = target.partition(":")
    found: type[SettingsVerifier] = getattr(importlib.import_module(module), attribute)
    return found


@cache
def _offered() -> dict[str, str]:
    """Name and `module:Class` of every entry point in the group."""
    return {each.name: each.value for each in entry_points(group=ENTRY_POINTS)}


def load_verifier(name: str, **arguments: Any) -> Verifier:
    """A verifier from a built-in name, `module:function` (TRL-style) or `module:Class`.

    `RecipeError` where the name, the module or an argument does not exist. The current folder is
    searched for modules, as `python script.py` would.
    """
    where = f"verifier {name!r}"
    for argument in arguments:
        if f"{name}.{argument}" in REMOVED:
            use = REMOVED[f"{name}.{argument}"]
            raise RecipeError(f"{where}: the argument {argument!r} was removed; use {use}")
    if ":" not in name:
        return validated(verifier_class(name), arguments, where)
    found = import_object(name, "verifier")
    if isinstance(found, Verifier):
        return found
    is_class = isinstance(found, type)
    if isinstance(found, type) and issubclass(found, SettingsVerifier):
        return validated(found, arguments, where)
    if isinstance(found, type) and issubclass(found, Verifier):
        made: Verifier = call_user(found, arguments, where)
        return made
    if callable(found) and not is_class:
        return RewardFunction(found, reference=name, arguments=arguments)
    own = "groupwise.verifiers.Verifier"
    raise RecipeError(
        f"{where} is a {f'class, and not derived from {own}' if is_class else type(found).__name__}"
        "; give a function with the arguments (prompts, completions, **kwargs), an instance of a "
        f"class that takes them when called, or a class derived from {own}"
    )


def verifier_from_table(table: Mapping[str, Any] | VerifierSettings) -> Component:
    """One `[[environment.verifiers]]` entry as a component (name, weight, gate, arguments, ...)."""
    if not isinstance(table, VerifierSettings | Mapping):
        raise RecipeError(
            f"environment.verifiers: {table!r:.60} is a {type(table).__name__}; give tables, as "
            '[{"name": "number"}]'
        )
    if not isinstance(table, VerifierSettings):
        table = validated(VerifierSettings, table, "environment.verifiers")
    verifier = load_verifier(table.name, **table.arguments)
    deadline = table.deadline if ":" in table.name else 0.0
    if table.time_limit is not None:
        if ":" not in table.name:
            raise RecipeError(
                f"environment.verifiers: time_limit is for `module:function` and `module:Class`; "
                f"{table.name!r} has no such limit, or its own among its arguments"
            )
        verifier, deadline = Isolated(table.name, table.arguments, verifier, table.time_limit), 0.0
    shared = ("weight", "gate", "threshold", "correct_from", "on_error")
    fields = {field: getattr(table, field) for field in shared}
    return Component(verifier, label=table.label or table.name, deadline=deadline, **fields)


def compose(tables: VerifierTables, combine: Combine = "sum") -> Composite:
    """The weighted sum or product of several entries; its parts are named by their labels."""
    if isinstance(tables, str | Mapping | VerifierSettings):
        raise RecipeError(
            f"environment.verifiers = {tables!r:.60}; give a list of tables, as "
            '[{"name": "number"}]'
        )
    return Composite([verifier_from_table(table) for table in tables], combine)


def verify(
    name: str,
    *,
    completion: str,
    answer: Any = None,
    prompt: str = "",
    columns: Mapping[str, Any] | None = None,
    **arguments: Any,
) -> Score:
    """One completion judged by one verifier.

    >>> verify("number", completion="3 + 4 = 7.", answer="7").outcome
    'correct'
    """
    task = Prompt(id="verify", text=prompt, answer=answer, columns=dict(columns or {}))
    (score,) = score_cases(load_verifier(name, **arguments), [Case(task, completion)])
    return score
