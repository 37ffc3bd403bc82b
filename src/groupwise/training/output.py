"""Which folder a run is written to, and whether it starts, goes on, or is already done.

Left out: what is in the folder (records/) and the weights (checkpoints.py).
"""

from __future__ import annotations

import os
import shutil
import tomllib
from pathlib import Path

from groupwise.errors import RecipeError
from groupwise.recipe import Recipe, flatten
from groupwise.records import refuse_in_use

# What may differ between a run and its continuation: how far it goes and what is looked at.
_FREE_ON_RESUME = ("training.steps", "evaluation.", "checkpoints.")


def default_output(recipe_name: str, parent: Path = Path("runs")) -> Path:
    """`runs/<recipe>-<number>`, the first number that is free."""
    number = 1
    while (parent / f"{recipe_name}-{number}").exists():
        number += 1
    return parent / f"{recipe_name}-{number}"


def holds_run(folder: Path) -> bool:
    return (folder / "recipe.toml").is_file()


def claim(folder: Path, *, resume: bool, overwrite: bool) -> bool:
    """Decide what becomes of `folder`. True where a run in it is to go on.

    A folder that holds a run is refused without `resume` or `overwrite`; one that holds anything
    else is refused always, so nothing of the user's is written over. Raises RecipeError.
    """
    if resume and overwrite:
        raise RecipeError("resume and overwrite are both asked for; give one of the two")
    if not folder.exists():
        _refuse_unwritable(folder)
        return False
    if not folder.is_dir():
        raise RecipeError(f"output = {str(folder)!r} is a file; name a folder")
    if holds_run(folder):
        refuse_in_use(folder)
        if resume or overwrite:
            return resume
        raise RecipeError(
            f"output = {str(folder)!r} already holds a run; go on with it (--resume), replace it "
            f"(--overwrite), or name another folder, for example {str(_next_to(folder))!r}"
        )
    if any(not _left_by_a_start(entry) for entry in folder.iterdir()):
        raise RecipeError(
            f"output = {str(folder)!r} is not empty and holds no run; name another folder, for "
            f"example {str(_next_to(folder))!r}"
        )
    return False


def clear(folder: Path) -> None:
    """Delete the run in `folder`; it is moved aside first, so no half of it stays in its place."""
    refuse_in_use(folder)
    aside = folder.with_name(f".{folder.name}.replaced-{os.getpid()}")
    folder.rename(aside)
    shutil.rmtree(aside)


def _left_by_a_start(entry: Path) -> bool:
    """The lock, or the empty folder, of a start that failed."""
    if entry.name == "rollouts" and entry.is_dir():
        return not any(entry.iterdir())
    return entry.name == ".lock"


def _refuse_unwritable(folder: Path) -> None:
    """The nearest folder above that is there must be one, and be writable."""
    above = next(parent for parent in folder.absolute().parents if parent.exists())
    if not above.is_dir():
        raise RecipeError(f"output = {str(folder)!r}: {str(above)!r} is a file; name a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise RecipeError(
            f"output = {str(folder)!r}: {str(above)!r} cannot be written to; name a folder that can"
        )


def _next_to(folder: Path) -> Path:
    return default_output(folder.absolute().name or "run", folder.parent)


def same_run(folder: Path, recipe: Recipe) -> None:
    """Refuse to go on with a run under a recipe that would have been another run.

    Raises RecipeError naming the fields that differ.
    """
    before = flatten(tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8")))
    now = flatten(tomllib.loads(recipe.to_toml()))
    changed = [
        f"{key} ({before.get(key, 'unset')!r} there, {now.get(key, 'unset')!r} now)"
        for key in sorted(before.keys() | now.keys())
        if before.get(key) != now.get(key) and not key.startswith(_FREE_ON_RESUME)
    ]
    if changed:
        raise RecipeError(
            f"{str(folder)!r} was made by another recipe: {', '.join(changed)}. A resumed run "
            f"equals the unbroken one only with the same recipe (free: training.steps, "
            "[evaluation], [checkpoints]); name another output, or give the recipe it was made with"
        )
