"""Calls of a user's own code: where it raised, and what to say of arguments that do not fit."""

from __future__ import annotations

import inspect
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from groupwise.errors import RecipeError
from groupwise.verifiers.core.contract import describe_error

_OTHERS = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_PACKAGE = str(Path(__file__).parents[2])


def raised_at(error: BaseException) -> str:
    """` (rewards.py, line 3)`: the innermost line that is neither this package's nor that of an
    installed one; empty where there is none."""
    place, entry = "", error.__traceback__
    while entry is not None:
        file = entry.tb_frame.f_code.co_filename
        if not file.startswith((*_OTHERS, _PACKAGE, "<")):
            place = f" ({file}, line {entry.tb_lineno})"
        entry = entry.tb_next
    return place


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
