"""Calls of a user's own code, with what to say of arguments that do not fit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from groupwise.errors import RecipeError
from groupwise.imports import raised_at
from groupwise.verifiers.core.contract import describe_error


def call_user(function: Callable[..., Any], arguments: Mapping[str, Any], where: str) -> Any:
    """What a user's class or function returns; `where` names it in messages.

    Raises RecipeError if the arguments are not those it takes, or if it raises.
    """
    try:
        signature = inspect.signature(function)
    except ValueError:
        signature = None  # unknown for some functions written in C
    try:
        if signature is not None:
            signature.bind(**arguments)
    except TypeError as error:
        raise RecipeError(
            f"{where} cannot be called with {sorted(arguments)}: {error}; it takes {signature}"
        ) from error
    try:
        return function(**arguments)
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from error
    except (Exception, SystemExit) as error:
        raise RecipeError(f"{where} raised {describe_error(error)}{raised_at(error)}") from error
