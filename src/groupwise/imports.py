"""Imports what a recipe names as `module:attribute`, from the current folder or a package."""

from __future__ import annotations

import importlib
import inspect
import sys
import sysconfig
from pathlib import Path
from typing import Any

from groupwise.errors import RecipeError
from groupwise.suggestions import nearest
from groupwise.texts import whole_text

_OTHERS = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
_PACKAGE = str(Path(__file__).parent)


def import_object(name: str, kind: str) -> Any:
    """What `module:attribute` names; the current folder is searched after the installed packages.

    `kind` ("verifier", "algorithm.surrogate =") starts the message. Raises RecipeError saying which
    half is missing.
    """
    module_name, _, attribute = name.rpartition(":")
    if not _is_module_name(module_name) or not attribute.isidentifier():
        stem = Path(module_name.replace("\\", "/")).stem
        legal = f"{stem if stem.isidentifier() else 'rewards'}:{attribute or 'function'}"
        raise RecipeError(
            f"{kind} {name!r}: not `module:name` of Python; a module is named without folder and "
            f'without .py, and looked for in the current folder: give "{legal}"'
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):
            raise RecipeError(
                f"{kind} {name!r}: module {module_name!r} imports {error.name!r}, which is neither "
                f"in {here} nor among the installed packages{raised_at(error)}"
            ) from error
        raise RecipeError(
            f"{kind} {name!r}: no module {error.name!r} in {here} or among the installed packages; "
            "give `module:name` of a Python file in the current folder or of a package"
        ) from error
    except (Exception, SystemExit) as error:
        words = whole_text(str(error))
        raised = f"{type(error).__name__}: {words}" if words else type(error).__name__
        raise RecipeError(
            f"{kind} {name!r}: importing module {module_name!r} raised {raised}{raised_at(error)}"
        ) from error
    if not hasattr(module, attribute):
        public = [
            each
            for each, value in vars(module).items()
            if not each.startswith("_")
            and (inspect.isfunction(value) or inspect.isclass(value))
            and value.__module__ == module_name
        ]
        near = nearest(attribute, public)
        hint = f"; did you mean {near!r}?" if near else "."
        raise RecipeError(
            f"{kind} {name!r}: module {module_name!r} has no {attribute!r}{hint} "
            f"Legal: {', '.join(public) or 'none'}"
        )
    return getattr(module, attribute)


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


def _is_module_name(text: str) -> bool:
    """True for identifiers joined by dots, but for a file name such as `rewards.py`."""
    parts = text.split(".")
    return parts[1:] != ["py"] and all(part.isidentifier() for part in parts)
