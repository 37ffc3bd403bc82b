"""Prompts by split, as an environment's constructor takes them: what they must be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from groupwise.environments.identity import data_hash
from groupwise.errors import RecipeError
from groupwise.types import Prompt

_LEGAL = 'as {"train": [Prompt(...), ...], "heldout": [...]}'


def checked_splits(name: str, splits: Any) -> dict[str, tuple[Prompt, ...]]:
    """The splits as tuples. The same prompt may be in two splits.

    Raises RecipeError naming the place of a value that is not a prompt, or of a repeated id.
    """
    where = f"environment {name!r}"
    if not isinstance(splits, Mapping):
        raise RecipeError(
            f"{where}: splits is a {type(splits).__name__}; give prompts by split, {_LEGAL}"
        )
    for split, prompts in splits.items():
        if not isinstance(split, str) or not isinstance(prompts, Iterable):
            raise RecipeError(
                f"{where}: split {split!r} is a {type(prompts).__name__}; give prompts by split, "
                f"{_LEGAL}"
            )
    found = {split: tuple(prompts) for split, prompts in splits.items()}
    if not found.get("train"):
        raise RecipeError(f'{where} has no training prompts; give at least one under "train"')
    seen: dict[str, tuple[str, str, Prompt]] = {}
    for split, prompts in found.items():
        for number, prompt in enumerate(prompts, start=1):
            place = f"prompt {number} of split {split!r}"
            if not isinstance(prompt, Prompt):
                raise RecipeError(
                    f"{where}: {place} is a {type(prompt).__name__}; give a groupwise.types.Prompt"
                )
            if not isinstance(prompt.id, str) or not prompt.id:
                raise RecipeError(
                    f"{where}: {place} has the id {prompt.id!r:.60}; give a text that is not "
                    "empty, as groupwise.environments.prompt_id makes from the content"
                )
            other = seen.setdefault(prompt.id, (split, place, prompt))
            if other[1] != place and (other[0] == split or not _same(other[2], prompt)):
                raise RecipeError(
                    f"{where}: {other[1]} and {place} have the same id {prompt.id!r}; give each "
                    "prompt its own, as groupwise.environments.prompt_id makes from the content"
                )
    return found


def _same(one: Prompt, other: Prompt) -> bool:
    return one is other or data_hash([one]) == data_hash([other])
