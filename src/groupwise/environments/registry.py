"""Environments by name: built-in ones, `reasoning_gym:TASK`, entry points, `module:Class`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

from pydantic import BaseModel

from groupwise.environments.base import Environment
from groupwise.environments.checks import check_prompts
from groupwise.environments.custom import custom_environment
from groupwise.environments.mixture import MixtureSettings, mixed
from groupwise.environments.settings import EnvironmentSettings
from groupwise.environments.tools import Toolbox, load_tools
from groupwise.environments.user import SimulatedUser
from groupwise.environments.wrappers import EnvironmentWrapper
from groupwise.errors import RecipeError
from groupwise.verifiers import Combine, Composite, VerifierTables, compose
from groupwise.verifiers.core.names import unknown_name, validated


class Entry(NamedTuple):
    """One built-in environment: its title, and where its settings and its factory are.

    Both are `module:name` within this package. The factory is called as
    `make(settings, seed, verifiers)` with validated settings.
    """

    title: str
    settings: str
    make: str = "generated:make_generated"


_SHAPED = "shapes:make_shaped"
BUILTIN: dict[str, Entry] = {
    "arithmetic": Entry("Sums and products of whole numbers", "arithmetic:ArithmeticSettings",
                        "arithmetic:make_arithmetic"),
    "countdown": Entry("Reach a target with the numbers offered", "countdown:CountdownSettings"),
    "target_token": Entry("Write a token as often as possible", "target_token:TargetTokenSettings",
                          "target_token:make_target_token"),
    "code": Entry("Write a small function", "code_tasks:CodeSettings", "code_tasks:make_code"),
    "sql": Entry("Answer a question with a query", "sql_tasks:SqlSettings"),
    "instructions": Entry("Follow rules about a text", "instruction_tasks:InstructionsSettings"),
    "tic_tac_toe": Entry("Play against an opponent", "tic_tac_toe:TicTacToeSettings"),
    "repository": Entry("Repair files until hidden tests pass", "repository:RepositorySettings",
                        "repository:Repository"),
    "dataset": Entry("Your own rows", "dataset:DatasetSettings", "dataset:from_rows"),
    "mixture": Entry("Several environments in one run", "mixture:MixtureSettings",
                     "registry:_mixture"),
    "gsm8k": Entry("Rows as GSM8K has them", "shapes:Gsm8kSettings", _SHAPED),
    "math": Entry("Rows as MATH has them", "shapes:MathSettings", _SHAPED),
    "mmlu": Entry("Rows as MMLU or ARC have them", "shapes:MmluSettings", _SHAPED),
    "ifeval": Entry("Rows as IFEval has them", "shapes:IfevalSettings", _SHAPED),
    "humaneval": Entry("Rows as HumanEval has them", "shapes:HumanevalSettings", _SHAPED),
    "mbpp": Entry("Rows as MBPP has them", "shapes:MbppSettings", _SHAPED),
}  # fmt: skip

REMOVED: dict[str, str] = {
    "sorting": "reasoning_gym:number_sorting",
    "strings": "reasoning_gym:letter_counting",
    "multiple_choice": "mmlu",
    "knights": "reasoning_gym:knights_knaves",
    "sudoku": "reasoning_gym:mini_sudoku",
    "equations": "reasoning_gym:simple_equations",
    "calendar": "reasoning_gym:calendar_arithmetic",
    "code_package": "code",
    "blackjack": "tic_tac_toe",
    "grid_world": "tic_tac_toe",
}
"""Environments of earlier versions and the nearest one that replaces each."""

REASONING_GYM = "reasoning_gym"
"""The prefix of tasks of that package, before the colon."""
ENTRY_POINTS = "groupwise.environments"
"""The entry point group of environments from other packages."""


def settings_class(name: str) -> type[BaseModel]:
    """The model of a built-in environment's arguments; `RecipeError` with the nearest name."""
    if name not in BUILTIN:
        raise _unknown(name, list(BUILTIN))
    found: type[BaseModel] = _loaded(BUILTIN[name].settings)
    return found


def load_environment(
    name: str,
    seed: int = 0,
    verifiers: VerifierTables = (),
    combine: Combine = "sum",
    **arguments: Any,
) -> Environment:
    """An environment by name, everything about its data checked.

    `seed` decides generated problems and splits. `verifiers` replace the environment's own, and
    `combine` says how their weighted values become one. `RecipeError` for an unknown name or
    argument (nearest name given) and for bad data.
    """
    made = _made(name, seed, verifiers, arguments)
    if combine == "sum":
        return made
    if not isinstance(made.verifier, Composite):
        raise RecipeError(
            f"environment.combine is for several verifiers; environment {made.name!r} has one "
            f'of its own ({made.verifier.name}): leave combine at "sum", or let the '
            "environment make its verifier with groupwise.verifiers.compose"
        )
    made.verifier = Composite(made.verifier.components, combine)
    return made


def _made(
    name: str, seed: int, verifiers: VerifierTables, arguments: Mapping[str, Any]
) -> Environment:
    if name.startswith(f"{REASONING_GYM}:"):
        from groupwise.environments.reasoning_gym import make_reasoning_gym

        return make_reasoning_gym(name, arguments, seed=seed, verifiers=verifiers)
    if ":" in name:
        return custom_environment(name, seed, verifiers, arguments)
    make: Callable[..., Environment]
    if name in BUILTIN:
        settings = validated(settings_class(name), arguments, f"environment {name!r}")
        make = _loaded(BUILTIN[name].make)
        return make(settings, seed, verifiers)
    if name not in offered():
        raise _unknown(name, [*BUILTIN, *offered(), f"{REASONING_GYM}:<task>", "module:Class"])
    make = EntryPoint(name, offered()[name], ENTRY_POINTS).load()
    return make(arguments, seed=seed, verifiers=verifiers)


def _loaded(target: str) -> Any:
    """The object `module:name` of this package."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(f"groupwise.environments.{module}"), name)


def _mixture(settings: MixtureSettings, seed: int, verifiers: VerifierTables) -> Environment:
    return mixed(settings, seed, verifiers, load_environment)


def _unknown(name: str, known: Sequence[str]) -> RecipeError:
    if name not in REMOVED:
        return unknown_name("environment", name, known)
    extra = ' (pip install "groupwise[reasoning-gym]")' if ":" in REMOVED[name] else ""
    return RecipeError(f"environment {name!r} was removed; use {REMOVED[name]!r}{extra}")


@cache
def offered() -> dict[str, str]:
    """Name and `module:function` of every entry point in the group, adapters to other libraries.

    The function is called as `make(arguments, seed=, verifiers=)`, its arguments not validated.
    """
    return {each.name: each.value for each in entry_points(group=ENTRY_POINTS)}


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
        check_prompts(made.strict, made.prompts(split="all"), where)
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
        made.set_judged(settings.judged)
    if made.player is not None and (settings.tools or settings.user is not None):
        raise RecipeError(
            f"environment {made.name!r} plays its rollouts by itself; environment.tools and "
            "environment.user are for the others: leave them out, the agent brings its own"
        )
    prompts = made.prompts(split="all")
    wrappers: list[EnvironmentWrapper] = []
    if settings.user is not None:
        wrappers.append(SimulatedUser(settings.user, prompts))
    if settings.tools:
        made.count("unused_row_tools", sum(bool(prompt.tools) for prompt in prompts))
        tools = load_tools(settings.tools)
        wrappers.append(
            Toolbox(tools, seconds=settings.tool_seconds, characters=settings.tool_characters)
        )
    made.wrappers = tuple(wrappers)
