"""One tool: a function that the policy may call, with its schema and what may go wrong.

Left out: which calls a completion holds (`templates.tool_calls`) and their deadlines (toolbox.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from groupwise.environments.tools.schema import function_schema

_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
    "array": (list,), "object": (dict,), "null": (type(None),),
}  # fmt: skip


class ToolError(Exception):
    """A call that went wrong by the policy's doing; its message is the policy's to read."""


class ToolUnavailable(Exception):  # noqa: N818 (a state of the tool, not of the call)
    """The tool itself does not work: the rollout has failed, and the policy is not to blame."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A function (sync or async) that takes JSON arguments by name and gives a text or a value.

    >>> def double(number: int) -> int:
    ...     '''Doubles a number.'''
    ...     return 2 * number
    >>> Tool.of(double).call({"number": 4})
    8
    """

    name: str
    function: Callable[..., Any]
    schema: Mapping[str, Any]
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What decides its results beside the arguments; for the record."""

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        name: str | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> Tool:
        """A tool from a function; RecipeError where its schema cannot be made."""
        name = name or _name_of(function)
        return cls(name, function, function_schema(function, name), facts or {})

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """What the function gives (an awaitable from an async one).

        Raises ToolError where the arguments do not fit, and whatever the function raises.
        """
        self._check(arguments)
        return self.function(**arguments)

    def _check(self, arguments: Mapping[str, Any]) -> None:
        parameters = self.schema["function"]["parameters"]
        known: Mapping[str, Any] = parameters["properties"]
        for name in arguments:
            if name not in known:
                raise ToolError(
                    f"{self.name} has no argument {name!r}; it takes {', '.join(known)}"
                )
        for name in parameters["required"]:
            if name not in arguments:
                raise ToolError(f"{self.name} needs the argument {name!r}")
        for name, value in arguments.items():
            if not _fits(value, known[name]):
                raise ToolError(
                    f"{self.name}: argument {name!r} is {value!r:.60}; give {_wanted(known[name])}"
                )


def _name_of(function: Callable[..., Any]) -> str:
    """A function's name, that of the one behind a partial, or that of an object's class."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _fits(value: object, schema: Mapping[str, Any]) -> bool:
    if "anyOf" in schema:
        return any(_fits(value, each) for each in schema["anyOf"])
    if "enum" in schema:
        return value in list(schema["enum"])
    kind = schema.get("type")
    if kind is None:
        return True
    if isinstance(value, bool):
        return bool(kind == "boolean")
    if not isinstance(value, _KINDS[kind]):
        return False
    items = schema.get("items", {})
    return not isinstance(value, list) or all(_fits(each, items) for each in value)


def _wanted(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_wanted(each) for each in schema["anyOf"])
    if "enum" in schema:
        return "one of " + ", ".join(map(repr, schema["enum"]))
    return f"a value of type {schema.get('type')}"
