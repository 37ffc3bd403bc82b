"""A tool's JSON schema from a Python function: its signature, type hints and docstring.

The description is the docstring up to its sections; each argument's is its entry under `Args:`.
"""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any, get_type_hints

from pydantic import PydanticUserError, TypeAdapter

from groupwise.errors import RecipeError

_SECTION = re.compile(r"(?m)^\s*(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?):\s*$")
_ARGUMENT = re.compile(r"(?s)(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")


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
    try:
        hints = get_type_hints(written)
    except (NameError, TypeError) as error:
        raise RecipeError(f"tool {name!r}: its type hints cannot be read: {error}") from error
    taken = inspect.signature(function).parameters
    properties: dict[str, Any] = {}
    for argument in taken.values():
        if argument.kind not in (argument.POSITIONAL_OR_KEYWORD, argument.KEYWORD_ONLY):
            raise RecipeError(f"tool {name!r} takes {argument}; give every argument a name")
        if argument.name not in hints:
            raise RecipeError(
                f"tool {name!r}: argument {argument.name!r} has no type; write "
                f"{argument.name}: str, for instance"
            )
        entry = type_schema(hints[argument.name], f"tool {name!r}, argument {argument.name!r}")
        more = {"description": described[argument.name]} if argument.name in described else {}
        properties[argument.name] = entry | more
    required = [each.name for each in taken.values() if each.default is each.empty]
    parameters = {"type": "object", "properties": properties, "required": required}
    described_function = {"name": name, "description": words, "parameters": parameters}
    return {"type": "function", "function": described_function}


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
    words, *sections = _SECTION.split(text)
    described: dict[str, str] = {}
    for name, body in zip(sections[::2], sections[1::2], strict=True):
        if name in ("Args", "Arguments", "Parameters"):
            for entry in re.split(r"\n(?=\S)", textwrap.dedent(body.strip("\n"))):
                if found := _ARGUMENT.match(entry):
                    described[found[1]] = " ".join(found[2].split())
    return " ".join(words.split()), described
