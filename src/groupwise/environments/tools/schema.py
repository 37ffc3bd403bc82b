"""A tool's JSON schema from a Python function: its signature, type hints and docstring.

The description is the docstring up to its arguments; each argument's is its line under `Args:` (or
`:param name:`).
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, get_type_hints

from pydantic import PydanticUserError, TypeAdapter

from groupwise.errors import RecipeError

_SECTION = re.compile(r"^\s*(Args|Arguments|Parameters|Returns|Raises|Yields|Example[s]?):\s*$")
_ARGUMENT = re.compile(r"^\s*(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_PARAM = re.compile(r"^\s*:(param\s+(\w+)|\w+[^:]*):\s*(.*)$")


def function_schema(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """`{"type": "function", "function": {"name", "description", "parameters"}}`.

    Raises RecipeError where the function has no docstring, an argument no type, or takes *args.
    """
    written = function if inspect.isroutine(function) else _behind(function)
    words, described = read_docstring(
        inspect.getdoc(written if written.__doc__ else function) or ""
    )
    if not words:
        raise RecipeError(
            f"tool {name!r} has no docstring; write what it does, so that the policy can know"
        )
    properties: dict[str, Any] = {}
    required: list[str] = []
    try:
        hints = get_type_hints(written)
    except (NameError, TypeError) as error:
        raise RecipeError(f"tool {name!r}: its type hints cannot be read: {error}") from error
    for argument in inspect.signature(function).parameters.values():
        if argument.kind not in (argument.POSITIONAL_OR_KEYWORD, argument.KEYWORD_ONLY):
            raise RecipeError(f"tool {name!r} takes {argument}; give every argument a name")
        if argument.name not in hints:
            raise RecipeError(
                f"tool {name!r}: argument {argument.name!r} has no type; write "
                f"{argument.name}: str, for instance"
            )
        entry = type_schema(hints[argument.name], f"tool {name!r}, argument {argument.name!r}")
        if argument.name in described:
            entry["description"] = described[argument.name]
        properties[argument.name] = entry
        if argument.default is argument.empty:
            required.append(argument.name)
    parameters = {"type": "object", "properties": properties, "required": required}
    return {
        "type": "function",
        "function": {"name": name, "description": words, "parameters": parameters},
    }


def _behind(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a callable object stands for: a partial's own, else its `__call__`."""
    if isinstance(function, functools.partial):
        return _behind(function.func)
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    called: Callable[..., Any] = inspect.unwrap(type(function).__call__)
    return called


def type_schema(hint: Any, where: str) -> dict[str, Any]:
    """The JSON schema of a type hint. Raises RecipeError for one that JSON cannot express.

    >>> type_schema(list[int] | None, "here")
    {'anyOf': [{'items': {'type': 'integer'}, 'type': 'array'}, {'type': 'null'}]}
    """
    try:
        found: dict[str, Any] = _plain(TypeAdapter(hint).json_schema())
    except PydanticUserError as error:
        raise RecipeError(
            f"{where}: {hint!r} has no JSON type; use str, int, float, bool, list, dict"
        ) from error
    return found


def _plain(schema: Any) -> Any:
    """Without titles and entries that allow everything."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _plain(value)
        for key, value in schema.items()
        if key != "title" and (key, value) not in (("additionalProperties", True), ("items", {}))
    }


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """What a cleaned docstring says of the function, and of each argument.

    >>> read_docstring("Adds.\\n\\nArgs:\\n    a: the first\\n        number")
    ('Adds.', {'a': 'the first number'})
    """
    words: list[str] = []
    described: dict[str, str] = {}
    section, current, indent = "", "", 0
    for line in text.splitlines():
        heading, param = _SECTION.match(line), _PARAM.match(line)
        if heading:
            section = heading[1]
        elif param:
            section = "other"
            if param[2]:
                described[param[2]] = param[3].strip()
        elif not section:
            words.append(line)
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            depth = len(line) - len(line.lstrip())
            found = _ARGUMENT.match(line)
            if found and (not current or depth <= indent):
                current, indent = found[1], depth
                described[current] = found[2].strip()
            elif current:
                described[current] = f"{described[current]} {line.strip()}"
    return " ".join(" ".join(words).split()), described
