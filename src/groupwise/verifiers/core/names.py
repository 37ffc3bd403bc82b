"""Messages for a name that does not exist: what was given, the nearest legal one, all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from groupwise.errors import RecipeError
from groupwise.suggestions import expectation, nearest

Settings = TypeVar("Settings", bound=BaseModel)


class Arguments(BaseModel):
    """A table of arguments: frozen, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def unknown_name(kind: str, name: str, legal: Iterable[str]) -> RecipeError:
    """The error for an unknown `kind` (\"verifier\", \"argument of number\", ...).

    >>> str(unknown_name("verifier", "nubmer", ["exact", "number"]))
    "unknown verifier 'nubmer'; did you mean 'number'? Legal: exact, number"
    """
    names = list(legal)
    near = nearest(name, names)
    hint = f"; did you mean {near!r}?" if near else "."
    return RecipeError(f"unknown {kind} {name!r}{hint} Legal: {', '.join(names) or 'none'}")


def validated(model: type[Settings], arguments: Mapping[str, Any], where: str) -> Settings:
    """`model(**arguments)`, with a failure told as a `RecipeError` that names `where` and field."""
    for name in arguments:
        if name not in model.model_fields:
            raise unknown_name(f"argument of {where}", name, model.model_fields)
    try:
        return model(**arguments)
    except ValidationError as error:
        first = error.errors()[0]
        info = model.model_fields.get(str(first["loc"][0]) if first["loc"] else "")
        field = ".".join(str(part) for part in first["loc"]) or "arguments"
        message = f"{where}: {field} = {first.get('input')!r}: {expectation(first, info)}"
        meaning = f" ({info.description})" if info is not None and info.description else ""
        if first["type"] == "value_error":
            said, meaning = str(first["ctx"]["error"]), ""
            message = f"{where}: {said}" if field in ("arguments", said.split()[0]) else message
        if first["type"] == "missing":
            message = f"{where}: {field} is missing"
        raise RecipeError(message + meaning) from error
