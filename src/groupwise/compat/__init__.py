"""Environments of other libraries, behind this project's own interface; each an optional extra.

Found by the entry point group `groupwise.environments`; nothing below imports this room.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any

from groupwise.errors import RecipeError


def optional(module: str, package: str, extra: str) -> Any:
    """The imported module; `RecipeError` naming the extra where its package is not installed."""
    try:  # by its metadata: a folder of that name would be found as a module, too
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise RecipeError(
            f"this environment needs the package {package}, which is not installed: "
            f'pip install "groupwise[{extra}]"'
        ) from None
    return importlib.import_module(module)
