"""A Python function as a tool's JSON schema: from its signature, its type hints and its docstring.

The description is the docstring up to its arguments; each argument's is its line under `Args:` (or
`:param name:`). Left out: calling the function (tool.py).
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from groupwise.errors import RecipeError

_SIMPLE: dict[Any, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", list: "array",
    dict: "object", tuple: "array", type(None): "null",
}  # fmt: skip
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
    """The JSON schema of a type hint; RecipeError for one that JSON has no word for.

    >>> type_schema(list[int] | None, "here")
    {'anyOf': [{'type': 'array', 'items': {'type': 'integer'}}, {'type': 'null'}]}
    """
    if hint is Any:
        return {}
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [type_schema(each, where) for each in inner]}
    if origin in (list, Sequence, tuple):
        return {"type": "array", "items": type_schema(inner[0], where)}
    if origin in (dict, Mapping):
        return {"type": "object"}
    raise RecipeError(f"{where}: {hint!r} has no JSON type; use str, int, float, bool, list, dict")


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
