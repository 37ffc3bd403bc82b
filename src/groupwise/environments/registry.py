"""Environments by name: the built-in ones and `module:Class`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from pydantic import BaseModel

from groupwise.environments.base import Environment, Wrapper
from groupwise.environments.checks import check_answers, check_columns
from groupwise.environments.own import own_environment
from groupwise.environments.settings import EnvironmentSettings
from groupwise.environments.tools import Toolbox, load_tools
from groupwise.environments.user import SimulatedUser, check_rules, has_rules
from groupwise.errors import RecipeError
from groupwise.verifiers import Combine, Composite, VerifierSettings, compose
from groupwise.verifiers.core.names import unknown_name

BUILTIN: dict[str, str] = {
    "arithmetic": "groupwise.environments.arithmetic:make_arithmetic",
    "target_token": "groupwise.environments.target_token:make_target_token",
    "dataset": "groupwise.environments.dataset:make_dataset",
    "mixture": "groupwise.environments.mixture:make_mixture",
    "countdown": "groupwise.environments.countdown:make_countdown",
    "sorting": "groupwise.environments.sorting:make_sorting",
    "strings": "groupwise.environments.strings:make_strings",
    "multiple_choice": "groupwise.environments.multiple_choice:make_multiple_choice",
    "knights": "groupwise.environments.knights:make_knights",
    "sudoku": "groupwise.environments.sudoku:make_sudoku",
    "equations": "groupwise.environments.equations:make_equations",
    "calendar": "groupwise.environments.calendar:make_calendar",
    "code": "groupwise.environments.code_tasks:make_code",
    "code_package": "groupwise.environments.code_packages:make_code_package",
    "sql": "groupwise.environments.sql_tasks:make_sql",
    "instructions": "groupwise.environments.instruction_tasks:make_instructions",
    "tic_tac_toe": "groupwise.environments.games.tic_tac_toe:make_tic_tac_toe",
    "blackjack": "groupwise.environments.games.blackjack:make_blackjack",
    "grid_world": "groupwise.environments.games.grid_world:make_grid_world",
    "gsm8k": "groupwise.environments.shapes:make_gsm8k",
    "math": "groupwise.environments.shapes:make_math",
    "mmlu": "groupwise.environments.shapes:make_mmlu",
    "ifeval": "groupwise.environments.shapes:make_ifeval",
    "humaneval": "groupwise.environments.shapes:make_humaneval",
    "mbpp": "groupwise.environments.shapes:make_mbpp",
}
SETTINGS: dict[str, str] = {
    "arithmetic": "groupwise.environments.arithmetic:ArithmeticSettings",
    "dataset": "groupwise.environments.dataset:DatasetSettings",
    "mixture": "groupwise.environments.mixture:MixtureSettings",
    "countdown": "groupwise.environments.countdown:CountdownSettings",
    "sorting": "groupwise.environments.sorting:SortingSettings",
    "strings": "groupwise.environments.strings:StringsSettings",
    "multiple_choice": "groupwise.environments.multiple_choice:MultipleChoiceSettings",
    "knights": "groupwise.environments.knights:KnightsSettings",
    "sudoku": "groupwise.environments.sudoku:SudokuSettings",
    "equations": "groupwise.environments.equations:EquationsSettings",
    "calendar": "groupwise.environments.calendar:CalendarSettings",
    "target_token": "groupwise.environments.target_token:TargetTokenSettings",
    "code": "groupwise.environments.code_tasks:CodeSettings",
    "code_package": "groupwise.environments.code_packages:CodePackageSettings",
    "sql": "groupwise.environments.sql_tasks:SqlSettings",
    "instructions": "groupwise.environments.instruction_tasks:InstructionsSettings",
    "tic_tac_toe": "groupwise.environments.games.tic_tac_toe:TicTacToeSettings",
    "blackjack": "groupwise.environments.games.blackjack:BlackjackSettings",
    "grid_world": "groupwise.environments.games.grid_world:GridWorldSettings",
    "gsm8k": "groupwise.environments.shapes:Gsm8kSettings",
    "math": "groupwise.environments.shapes:MathSettings",
    "mmlu": "groupwise.environments.shapes:MmluSettings",
    "ifeval": "groupwise.environments.shapes:IfevalSettings",
    "humaneval": "groupwise.environments.shapes:HumanevalSettings",
    "mbpp": "groupwise.environments.shapes:MbppSettings",
}
"""The pydantic model of a built-in environment's arguments."""

REASONING_GYM = "reasoning_gym"
"""What stands before the colon of the tasks of that package."""
ENTRY_POINTS = "groupwise.environments"
"""The entry point group of environments of others."""


def settings_class(name: str) -> type[BaseModel]:
    """The model of a built-in environment's arguments; `RecipeError` with the nearest name."""
    if name not in SETTINGS:
        raise unknown_name("environment", name, SETTINGS)
    module, _, attribute = SETTINGS[name].partition(":")
    found: type[BaseModel] = getattr(importlib.import_module(module), attribute)
    return found


def load_environment(
    name: str,
    seed: int = 0,
    verifiers: Sequence[Mapping[str, Any] | VerifierSettings] = (),
    combine: Combine = "sum",
    **arguments: Any,
) -> Environment:
    """An environment by name, everything about its data checked.

    `seed` decides generated problems and splits. `verifiers` replace the environment's own, and
    `combine` says how their weighted values become one. `RecipeError` for an unknown name or
    argument (nearest name given) and for bad data.
    """
    made = _made(name, seed, verifiers, arguments)
    if combine != "sum":
        made.verifier = _composite(made).combined(combine)
    return made


def _made(
    name: str,
    seed: int,
    verifiers: Sequence[Mapping[str, Any] | VerifierSettings],
    arguments: Mapping[str, Any],
) -> Environment:
    if name.startswith(f"{REASONING_GYM}:"):
        from groupwise.environments.reasoning_gym import make_reasoning_gym

        return make_reasoning_gym(name, arguments, seed=seed, verifiers=verifiers)
    if ":" in name:
        return own_environment(name, seed, verifiers, arguments)
    target = BUILTIN.get(name) or offered().get(name)
    if target is None:
        known = [*BUILTIN, *offered(), f"{REASONING_GYM}:<task>", "module:Class"]
        raise unknown_name("environment", name, known)
    module, _, attribute = target.partition(":")
    make: Callable[..., Environment] = getattr(importlib.import_module(module), attribute)
    return make(arguments, seed=seed, verifiers=verifiers)


@cache
def offered() -> dict[str, str]:
    """Name and `module:function` of every entry point in the group, adapters to other libraries.

    Such a function is called as the built-in ones are: `make(arguments, seed=, verifiers=)`.
    """
    return {each.name: each.value for each in entry_points(group=ENTRY_POINTS)}


def _composite(environment: Environment) -> Composite:
    """Its verifier, where that has components to combine."""
    if isinstance(environment.verifier, Composite):
        return environment.verifier
    raise RecipeError(
        f"environment.combine is for several verifiers; environment {environment.name!r} has one "
        f'of its own ({environment.verifier.name}): leave combine at "sum", or let the environment '
        "make its verifier with groupwise.verifiers.compose"
    )


def environment_from_settings(settings: EnvironmentSettings, seed: int = 0) -> Environment:
    """The environment that a recipe's `[environment]` table states, strict verifiers included."""
    made = load_environment(
        settings.name,
        seed=seed,
        verifiers=settings.verifiers,
        combine=settings.combine,
        **settings.arguments,
    )
    _put_around(made, settings)
    if settings.strict_verifiers:
        made.strict = compose(settings.strict_verifiers, settings.combine)
        where = f"environment {settings.name!r}, strict_verifiers"
        check_columns(made.strict, made.prompts(split="all"), where)
        check_answers(made.strict, made.prompts(split="all"), where)
    return made


def _put_around(made: Environment, settings: EnvironmentSettings) -> None:
    """The limits, the user and the tools that the recipe states."""
    made.limits = replace(
        made.limits,
        turns=settings.max_turns,
        turn_tokens=settings.turn_tokens,
        seconds=settings.max_seconds,
        wait_seconds=settings.wait_seconds,
        characters=settings.answer_characters,
    )
    if settings.judged is not None:
        made.judged = settings.judged
    wrappers: list[Wrapper] = []
    if settings.user is not None:
        check_rules(settings.user, made.prompts(split="all"))
        wrappers.append(SimulatedUser(settings.user))
    else:
        made.count("unused_user_rules", sum(map(has_rules, made.prompts(split="all"))))
    if settings.tools:
        tools = load_tools(settings.tools)
        wrappers.append(
            Toolbox(tools, seconds=settings.tool_seconds, characters=settings.tool_characters)
        )
    made.wrappers = tuple(wrappers)
