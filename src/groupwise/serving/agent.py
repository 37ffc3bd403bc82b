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
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from groupwise.environments import Environment, load_environment
from groupwise.environments.order import Cursor
from groupwise.environments.settings import NamedEnvironment
from groupwise.errors import RecipeError
from groupwise.imports import import_object
from groupwise.serving.player import AgentPlayer
from groupwise.verifiers import VerifierTables
from groupwise.verifiers.core.names import Arguments, validated

NAME = "agent"
POLICY = "policy"
"""The name of the model, beside those that the recipe adds."""
PYTHON = "{python}"


class AgentSettings(Arguments):
    """The arguments of `agent`."""

    command: tuple[str, ...] = Field(
        default=(),
        description="The agent's program and its arguments, as a list; `{python}` is the "
        "interpreter that trains.",
    )
    function: str | None = Field(
        default=None,
        description="In place of a command: `module:function`, called as function(base_url, task) "
        "in a process of its own; what it returns is the answer.",
    )
    tasks: NamedEnvironment = Field(
        description="The environment whose prompts are the tasks and whose verifier judges the "
        'agent\'s answer, as { name = "arithmetic", level = "easy" }.',
    )
    columns: tuple[str, ...] = Field(
        default=(), description="Columns of the tasks that the agent gets beside the messages."
    )
    answer: Literal["output", "completion"] = Field(
        default="output",
        description="What is judged: what the agent prints or returns, or the policy's last words.",
    )
    on_rewrite: Literal["branch", "refuse"] = Field(
        default="branch",
        description="A request whose messages do not go on from the last answer starts a branch, "
        "which shares the rollout's reward, or is refused; it is counted in any case.",
    )
    at_once: int = Field(default=32, ge=1, description="Agents that run at a time.")
    gather_seconds: float = Field(
        default=30.0,
        gt=0,
        description="A batch is sampled as soon as every agent waits for an answer or has ended, "
        "and without those that do neither after so many seconds.",
    )
    pass_on: tuple[str, ...] = Field(
        default=(),
        description="Environment variables that the agent gets beside PATH, HOME and the like.",
    )
    models: tuple[str, ...] = Field(
        default=(), description='Names of models that mean the policy too, as "gpt-4o".'
    )

    @field_validator("command", mode="before")
    @classmethod
    def _is_list(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f'command = {value!r}; give a list, as ["{PYTHON}", "agent.py"]')
        return value

    @model_validator(mode="after")
    def _one_program(self) -> AgentSettings:
        if bool(self.command) == bool(self.function):
            raise ValueError(
                f'give command = ["{PYTHON}", "agent.py"] or function = "module:function", one of '
                "the two"
            )
        return self


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
        self.player = AgentPlayer(
            command=_command(settings, where),
            columns=settings.columns,
            judges_output=settings.answer == "output",
            refuses_rewrites=settings.on_rewrite == "refuse",
            at_once=settings.at_once,
            gather_seconds=settings.gather_seconds,
            pass_on=settings.pass_on,
            variables={} if settings.function is None else _own_path(),
            models=(POLICY, *settings.models),
        )

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
