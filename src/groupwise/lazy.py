"""A room's public names that load with their first use, so that `groupwise --help` stays quick.

__getattr__ = attributes_from(__name__, {"Sandbox": "groupwise.sandbox.pool"})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def attributes_from(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of `module`: each name of `homes` comes from the module it stands with.

    >>> find = attributes_from("example", {"sqrt": "math"})
    >>> find("sqrt")(9.0)
    3.0
    """

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return find
