"""The arguments of the `agent` environment."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from groupwise.environments.settings import NamedEnvironment
from groupwise.verifiers.core.names import Arguments

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
