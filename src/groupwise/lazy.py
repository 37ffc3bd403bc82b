"""A package's public names that load with their first use, so that `groupwise --help` stays quick.

    if TYPE_CHECKING:
        from groupwise.samplers.contract import Sampler as Sampler
    __getattr__, __all__ = lazy_names(__name__, __file__)

The block for type checkers is the only list of names: it is read from the source.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_names(module: str, file: str) -> tuple[Callable[[str], Any], list[str]]:
    """The `__getattr__` of a package, and the names that its TYPE_CHECKING block imports.

    Raises AttributeError, as any module does, for another name.
    """
    homes: dict[str, str] = {}
    for block in ast.parse(Path(file).read_text(encoding="utf-8")).body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for line in block.body:
                if isinstance(line, ast.ImportFrom) and line.module:
                    homes.update(dict.fromkeys((each.name for each in line.names), line.module))

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    return find, list(homes)
