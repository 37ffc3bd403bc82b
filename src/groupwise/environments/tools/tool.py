"""One tool: a function that the policy may call, its schema, and the errors of a call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from groupwise.environments.tools.schema import function_schema


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
        """A tool from a function. Raises RecipeError if its schema cannot be made."""
        name = name or _name_of(function)
        return cls(name, function, function_schema(function, name), facts or {})

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """The function's result (an awaitable from an async one).

        Raises ToolError for arguments that do not fit, and whatever the function raises.
        """
        self._check(arguments)
        return self.function(**arguments)

    def _check(self, arguments: Mapping[str, Any]) -> None:
        import jsonschema_rs

        parameters = self.schema["function"].get("parameters", {})
        known: Mapping[str, Any] = parameters.get("properties", {})
        for name in arguments:
            if name not in known:
                raise ToolError(
                    f"{self.name} has no argument {name!r}; it takes {', '.join(known)}"
                )
        for name in parameters.get("required", ()):
            if name not in arguments:
                raise ToolError(f"{self.name} needs the argument {name!r}")
        for name, value in arguments.items():
            error = next(jsonschema_rs.validator_for(known[name]).iter_errors(value), None)
            if error is not None:
                raise ToolError(f"{self.name}: argument {name!r}: {error.message}")


def _name_of(function: Callable[..., Any]) -> str:
    """A function's name, that of the one behind a partial, or that of an object's class."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))
