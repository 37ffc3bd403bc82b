"""`verifiers_v1`: the tasks of a `verifiers` v1 task set, scored by their own rewards.

A task's prompt becomes a prompt; a completion is put behind it in a trace, and the task's
`score` judges that. One turn. Refused, with the reason: task sets that need a container, tools, or
a runtime for their rewards, prompts with pictures, and tasks whose user opens. Written for
verifiers 0.4 (`verifiers.v1` alone); left out: its harnesses, runtimes and clients.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from groupwise.compat import optional
from groupwise.environments import Environment, prompt_id
from groupwise.errors import RecipeError
from groupwise.randomness import generator
from groupwise.types import Message, Prompt, Score
from groupwise.verifiers import Case, Verifier, VerifierSettings, compose
from groupwise.verifiers.core.names import validated
from groupwise.verifiers.core.scores import rated

NAME = "verifiers_v1"
ROLES = ("system", "user", "assistant")


class VerifiersSettings(BaseModel):
    """The arguments of `verifiers_v1`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    taskset: str = Field(
        min_length=1, description="The task set: the name of an installed module that exports it."
    )
    arguments: dict[str, Any] = Field(
        default_factory=dict[str, Any], description="Fields of the task set's own configuration."
    )
    limit: int = Field(default=1000, ge=1, description="Use the first so many tasks.")
    heldout_share: float = Field(
        default=0.1, ge=0, lt=1, description="Share of the tasks held out, chosen by the seed."
    )
    seconds: float = Field(default=30.0, gt=0, description="How long scoring one text may take.")


def make_verifiers_v1(
    arguments: Mapping[str, Any],
    seed: int,
    verifiers: Sequence[Mapping[str, Any] | VerifierSettings] = (),
) -> Environment:
    """The `verifiers_v1` environment. `RecipeError` where the task set cannot be used, and why."""
    settings = validated(VerifiersSettings, arguments, f"environment {NAME!r}")
    vf = optional("verifiers.v1", "verifiers", "verifiers-v1")
    where = f"environment {NAME!r}, task set {settings.taskset!r}"
    tasks = _tasks(vf, settings, where)
    prompts = [_prompt(task, where) for task in tasks]
    by_id = {prompt.id: task for prompt, task in zip(prompts, tasks)}
    if len(by_id) < len(prompts):
        raise RecipeError(f"{where}: {len(prompts) - len(by_id)} tasks are there twice")
    order = list(range(len(prompts)))
    generator(seed, "data", NAME, settings.taskset).shuffle(order)
    num_heldout = int(len(order) * settings.heldout_share)
    splits = {
        "train": [prompts[place] for place in sorted(order[num_heldout:])],
        "heldout": [prompts[place] for place in sorted(order[:num_heldout])],
    }
    own = TaskRewards(settings, by_id)
    verifier: Verifier = compose(verifiers) if verifiers else own
    return Environment(NAME, verifier, splits, {"arguments": settings.model_dump(mode="json")})


class TaskRewards(Verifier):
    """The weighted sum of a task's own rewards, for tasks that were loaded with the prompts."""

    name: ClassVar[str] = NAME

    def __init__(self, settings: VerifiersSettings, tasks: Mapping[str, Any]) -> None:
        self._settings = settings
        self._tasks = dict(tasks)

    @property
    def arguments(self) -> Mapping[str, Any]:
        return self._settings.model_dump(mode="json")

    async def score_case(self, case: Case) -> Score:
        task = self._tasks[case.prompt.id]
        trace = traced(task, case)
        try:
            await asyncio.wait_for(task.score(trace, None), self._settings.seconds)
        except TimeoutError:
            reason = f"no verdict after {self._settings.seconds:g} s"
            return Score(None, "verifier_timeout", reason)
        value = float(trace.reward)
        parts = {name: None if r is None else r.value for name, r in trace.rewards.items()}
        if not parts or None in parts.values() or not math.isfinite(value):
            return Score(None, "infrastructure_error", f"no finite reward: {parts}")
        return replace(rated(value, f"the task's rewards sum to {value:g}"), parts=parts)


def traced(task: Any, case: Case) -> Any:
    """A trace of the prompt's messages and one sampled answer."""
    vf = optional("verifiers.v1", "verifiers", "verifiers-v1")
    written = [*case.prompt.messages, {"role": "assistant", "content": case.text}]
    nodes = [
        vf.MessageNode(
            parent=place - 1 if place else None,
            message=getattr(vf, f"{each['role'].title()}Message")(content=each["content"]),
            sampled=place == len(written) - 1,
        )
        for place, each in enumerate(written)
    ]
    return vf.Trace(
        task=vf.TraceTask(type=type(task).__name__, data=task.data),
        agent=vf.AgentInfo(config=vf.AgentConfig()),
        nodes=nodes,
        state=optional("verifiers.v1.state", "verifiers", "verifiers-v1").state_cls(type(task))(),
    )


def _tasks(vf: Any, settings: VerifiersSettings, where: str) -> list[Any]:
    try:
        config = vf.taskset_config_type(settings.taskset)(id=settings.taskset, **settings.arguments)
        taskset = vf.load_taskset(config)
        tasks = list(itertools.islice(taskset, settings.limit))
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise RecipeError(f"{where}: {type(error).__name__}: {error}") from error
    if not tasks:
        raise RecipeError(f"{where} has no tasks")
    if taskset.toolsets(config) or type(tasks[0]).toolsets(tasks[0].config):
        raise RecipeError(f"{where} needs tools, which this adapter does not start")
    if tasks[0].NEEDS_CONTAINER:
        raise RecipeError(f"{where} needs a container, which this adapter does not start")
    for reward in tasks[0].hooks("reward"):
        runtime = inspect.signature(reward).parameters.get("runtime")
        if runtime is not None and runtime.default is inspect.Parameter.empty:
            raise RecipeError(f"{where}: the reward {reward.__name__} needs a runtime")
    if not tasks[0].hooks("reward") and not tasks[0].plugged_judges():
        raise RecipeError(f"{where} has no rewards")
    return tasks


def _prompt(task: Any, where: str) -> Prompt:
    data = task.data
    if data.prompt is None:
        raise RecipeError(f"{where}: task {data.idx} has no prompt; its user opens")
    own = [("user", data.prompt)] if isinstance(data.prompt, str) else data.prompt
    opening = [("system", data.system_prompt)] if data.system_prompt else []
    messages: list[Message] = []
    for each in (*opening, *own):
        role, content = each if isinstance(each, tuple) else (each.role, each.content)
        if not isinstance(content, str) or role not in ROLES:
            raise RecipeError(f"{where}: task {data.idx} has a prompt that is not plain text")
        messages.append({"role": role, "content": content})
    columns = {"task": data.model_dump(mode="json", exclude_none=True)}
    return Prompt(prompt_id(messages, answer=task.key), tuple(messages), columns=columns)
