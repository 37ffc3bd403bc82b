"""The `agent` environment: a program that speaks the OpenAI API plays the rollouts.

Tasks and verifier are another environment's (`tasks`). For every rollout the agent is started with
its task and the address of a server on this machine; what it asks is sampled from the policy, what
it answers is judged. Turns, tools and prompts are the agent's own.
"""

from __future__ import annotations

import inspect
import os
import shutil
import sys
from collections.abc import Collection, Mapping
from typing import Any

from groupwise.environments import Environment, load_environment
from groupwise.environments.order import Cursor
from groupwise.errors import RecipeError
from groupwise.imports import import_object
from groupwise.serving.player import AgentPlayer
from groupwise.serving.settings import NAME, PYTHON, AgentSettings
from groupwise.verifiers import VerifierTables
from groupwise.verifiers.core.names import validated


def make_agent(arguments: Mapping[str, Any], seed: int, verifiers: VerifierTables = ()) -> Agent:
    """The `agent` environment. RecipeError for tasks or a program that cannot be used."""
    settings = validated(AgentSettings, arguments, f"environment {NAME!r}")
    given = settings.tasks
    try:
        tasks = load_environment(
            given.name,
            seed=seed,
            verifiers=verifiers or given.verifiers,
            combine=given.combine,
            **given.arguments,
        )
    except RecipeError as error:
        raise RecipeError(f"environment {NAME!r}, tasks: {error}") from error
    try:
        return Agent(settings, tasks)
    except BaseException:
        tasks.close()
        raise


class Agent(Environment):
    """Another environment's tasks, played by an agent."""

    def __init__(self, settings: AgentSettings, tasks: Environment) -> None:
        where = f"environment {NAME!r}"
        if tasks.player is not None or tasks.answer_role is not None:
            raise RecipeError(
                f"{where}: tasks.name = {tasks.name!r} has turns of its own, which the agent takes "
                "instead; give an environment of one turn"
            )
        for column in settings.columns:
            for prompt in tasks.prompts(split="all"):
                if column not in prompt.columns:
                    known = ", ".join(sorted(prompt.columns)) or "none"
                    raise RecipeError(
                        f"{where}: columns holds {column!r}, which {tasks.place(prompt.id)} does "
                        f"not have; it has {known}"
                    )
        self.tasks = tasks
        facts = {"arguments": settings.model_dump(mode="json"), "tasks": tasks.describe()}
        splits = {split: tasks.prompts(split=split) for split in tasks.splits}
        super().__init__(NAME, tasks.verifier, splits, facts)
        self.places = tasks.places
        own_path = {} if settings.function is None else _own_path()
        self.player = AgentPlayer(settings, _command(settings, where), own_path)

    def cursor(self, seed: int) -> Cursor:
        return self.tasks.cursor(seed)

    def remove(self, ids: Collection[str], fact: str, split: str | None = None) -> None:
        super().remove(ids, fact, split)
        self.tasks.remove(ids, fact, split)

    @property
    def answer_role(self) -> str | None:
        """Most agents answer a completion with the result of a tool or as the user."""
        return "user"

    @property
    def notes(self) -> list[str]:
        return [*super().notes, *(f"tasks: {note}" for note in self.tasks.notes)]

    def close(self) -> None:
        self.player.close()
        super().close()
        self.tasks.close()


def _command(settings: AgentSettings, where: str) -> tuple[str, ...]:
    """The program with its arguments. RecipeError where it cannot be found."""
    if settings.function is None:
        program, *rest = (sys.executable if each == PYTHON else each for each in settings.command)
        if shutil.which(program) is None:
            raise RecipeError(
                f"{where}: command = {list(settings.command)}: there is no program {program!r}; "
                f"give a path or a name in PATH, or {PYTHON!r}"
            )
        return program, *rest
    function = import_object(settings.function, f"{where}, function")
    try:
        inspect.signature(function).bind("http://127.0.0.1/v1", {})
    except (TypeError, ValueError) as error:
        raise RecipeError(
            f"{where}: function = {settings.function!r} cannot be called as function(base_url, "
            f"task): {error}"
        ) from error
    start = "from groupwise.serving.launch import main; main()"
    return sys.executable, "-c", start, settings.function


def _own_path() -> Mapping[str, str]:
    """A function is imported from where this process would import it."""
    return {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
