"""The recipe's `tools`: names of built-in tools or `module:function`, with arguments."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from pydantic import Field, model_validator

from groupwise.environments.tools.tool import Tool
from groupwise.errors import RecipeError
from groupwise.imports import import_object
from groupwise.sandbox import SandboxUnavailable
from groupwise.sandbox.packages import find_packages
from groupwise.verifiers.core.names import Arguments, unknown_name, validated
from groupwise.verifiers.core.user import call_user

BUILTIN_TOOLS = ("calculator", "python")


class ToolSettings(Arguments):
    """One tool; a name alone may be written as a text."""

    name: str = Field(
        description="calculator, python (in the sandbox), or `module:function`, a function with "
        "type hints and a docstring."
    )
    arguments: dict[str, Any] = Field(
        default_factory=dict,
        description="python: time_limit, memory_megabytes, packages, tier. A `module:function` "
        "with arguments is called with them and gives the tool; a class always is.",
    )

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


def load_tools(settings: Sequence[ToolSettings]) -> list[Tool]:
    """The tools that a recipe names. RecipeError for a name or arguments that do not exist."""
    return [_load(each) for each in settings]


def _load(settings: ToolSettings) -> Tool:
    facts: dict[str, Any] = {"arguments": settings.arguments} if settings.arguments else {}
    if settings.name == "calculator":
        from groupwise.environments.tools.calculator import calculator

        if settings.arguments:
            raise RecipeError("tool 'calculator' takes no arguments; leave them out")
        return Tool.of(calculator)
    if settings.name == "python":
        from groupwise.environments.tools.python import PythonArguments, make_python
        from groupwise.sandbox import shared_sandbox

        python = validated(PythonArguments, settings.arguments, "tool 'python'")
        try:
            find_packages(python.packages)
            shared_sandbox(python.tier, python.packages)  # what cannot run is refused now
        except (RecipeError, SandboxUnavailable) as error:
            raise RecipeError(f"tool 'python': {error}") from error
        return Tool.of(make_python(python), facts=facts)
    if settings.name == "search":
        raise RecipeError(
            "tool 'search' was removed; give a function of your own over your documents, as "
            "module:function"
        )
    if ":" not in settings.name:
        raise unknown_name("tool", settings.name, [*BUILTIN_TOOLS, "module:function"])
    found = import_object(settings.name, "tool")
    if isinstance(found, Tool):
        return found
    if not callable(found):
        raise RecipeError(f"tool {settings.name!r} is not a function; give one, or a Tool")
    made = found
    if settings.arguments or inspect.isclass(found):
        made = call_user(found, settings.arguments, f"tool {settings.name!r}")
    if isinstance(made, Tool):
        return made
    if not callable(made):
        raise RecipeError(f"tool {settings.name!r} returned {made!r:.60}; return a function")
    return Tool.of(made, facts={"source": settings.name, **facts})
