"""Where named packages lie, so that they alone become readable in the sandbox.

Found by their metadata, without importing them here.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from groupwise.errors import RecipeError


@dataclass(frozen=True, slots=True)
class Packages:
    """What to import in the zygote, where it is found, and every path that it needs."""

    names: tuple[str, ...] = ()
    site: str | None = None
    paths: tuple[str, ...] = ()


def find_packages(names: Iterable[str]) -> Packages:
    """Paths of the named import packages and of what their distributions require.

    `RecipeError` where one is not installed.
    """
    if isinstance(names, str):
        raise RecipeError(f"packages = {names!r}: give a list of names, as [{names!r}]")
    names = tuple(dict.fromkeys(names))
    if not names:
        return Packages()
    site = os.path.dirname(_location(names[0]))
    paths = [_location(name) for name in names]
    paths += [path for each in _with_requirements(names) for path in _top_level(each)]
    return Packages(names, site, tuple(filter(os.path.exists, dict.fromkeys(paths))))


def _location(name: str) -> str:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # a part of a package that is not there, or no name at all
        spec = None
    if spec is None:
        raise RecipeError(
            f"sandbox package {name!r} is not installed; install it in this environment, or leave "
            "it out of `packages`"
        )
    if spec.submodule_search_locations:
        return os.path.realpath(next(iter(spec.submodule_search_locations)))
    return os.path.realpath(spec.origin or name)


def _with_requirements(names: Sequence[str]) -> list[importlib.metadata.Distribution]:
    """The distributions of import packages and what they require, where installed; no extras."""
    providers = importlib.metadata.packages_distributions()
    waiting = [each for name in names for each in providers.get(name, ())]
    found: dict[str, importlib.metadata.Distribution] = {}
    while waiting:
        each = waiting.pop()
        key = re.sub(r"[-_.]+", "-", each).lower()
        if key in found:
            continue
        try:
            found[key] = importlib.metadata.distribution(each)
        except importlib.metadata.PackageNotFoundError:
            continue
        for requirement in found[key].requires or ():
            needed, _, marker = requirement.partition(";")
            if "extra ==" not in marker and "extra==" not in marker:
                waiting.append(re.split(r"[^\w.-]", needed.strip(), maxsplit=1)[0])
    return list(found.values())


def _top_level(distribution: importlib.metadata.Distribution) -> set[str]:
    """The folders and files a distribution put into site-packages, its metadata included."""
    tops: set[str] = set()
    for file in distribution.files or ():
        first = file.parts[0]
        if first not in ("..", "__pycache__", "") and not first.endswith(".pth"):
            tops.add(os.path.realpath(str(distribution.locate_file(first))))
    return tops
