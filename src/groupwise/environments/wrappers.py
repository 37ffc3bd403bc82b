"""What a recipe adds to any environment (tools, a user), and the episodes that wrap others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from groupwise.environments.episode import Episode
from groupwise.templates import Template, offered, renders_tools, tool_instructions
from groupwise.types import Prompt, Score


class EnvironmentWrapper:
    """Wraps every episode of an environment. Subclasses override what they change."""

    def wrap(self, episode: Episode, template: Template) -> Episode:
        """The episode that is played instead."""
        return episode

    answer_role: str | None = None
    """The role of the messages that it sends to the policy, if it sends any."""

    @property
    def variables(self) -> dict[str, Any]:
        """Variables that the chat template gets beside the messages."""
        return {}

    def prompt(self, prompt: Prompt, template: Template) -> Prompt:
        """The prompt that the policy reads; verifiers get the environment's own."""
        return prompt

    def describe(self) -> dict[str, Any]:
        """For the record."""
        return {}

    def close(self) -> None:
        """Release what it opened."""


def with_tools(prompt: Prompt, tools: Sequence[Mapping[str, Any]], template: Template) -> Prompt:
    """The chat with `tools` in its system message if the chat template does not write tools."""
    if renders_tools(template, tools):
        return prompt
    return replace(prompt, messages=offered(prompt.messages, tool_instructions(tools)))


class EpisodeWrapper(Episode):
    """An episode with turns before those of an inner one, which keeps its result and its end.

    `added_counts` are the wrapper's own; `counts` is their sum with the inner episode's current
    ones.
    """

    def __init__(self, inner: Episode) -> None:
        self.added_counts: Counter[str] = Counter()
        self.inner = inner
        super().__init__(inner.prompt)

    @property
    def counts(self) -> Any:
        """Both episodes' counts; an inner value that is not a mapping is returned unchanged."""
        inner: Any = self.inner.counts
        if not isinstance(inner, Mapping):
            return inner
        found: dict[Any, Any] = {**inner}
        for name, number in self.added_counts.items():
            own = found.get(name, 0)
            found[name] = own + number if isinstance(own, int | float) else own
        return found

    @counts.setter
    def counts(self, value: Counter[str]) -> None:
        self.added_counts = value

    def result(self) -> Score | None:
        return self.inner.result()

    def close(self) -> None:
        self.inner.close()
