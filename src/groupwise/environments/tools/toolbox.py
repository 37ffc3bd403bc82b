"""The tools of an environment, and the episode that runs the calls of a completion.

A completion without a call is passed to the environment's own episode (in a single-turn
environment it ends the rollout). Every call has a deadline. An error of a call is a message to the
policy; a tool that does not work fails the rollout.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property
from inspect import isawaitable
from typing import Any

from groupwise.environments.episode import Episode
from groupwise.environments.tools.tool import Tool, ToolError, ToolUnavailable
from groupwise.environments.wrappers import EnvironmentWrapper, EpisodeWrapper, with_tools
from groupwise.errors import RecipeError
from groupwise.instants import passed
from groupwise.templates import (
    Template,
    ToolCall,
    ToolStyle,
    parse_tool_calls,
    tool_message,
    tool_style,
)
from groupwise.texts import shortened
from groupwise.types import Message, Prompt, Score
from groupwise.waiting.calls import CallQueue

MOST_CALLS = 8
"""Calls of one completion that are run; the others get an error."""


class Toolbox(EnvironmentWrapper):
    """Tools by name, with the limits of a call.

    `seconds` for one call, `characters` of a result that the policy gets. Raises RecipeError where
    two tools share a name.
    """

    def __init__(
        self, tools: Sequence[Tool], *, seconds: float = 10.0, characters: int = 4000
    ) -> None:
        self.tools = {tool.name: tool for tool in tools}
        if len(self.tools) < len(tools):
            names = [tool.name for tool in tools]
            twice = next(name for name in names if names.count(name) > 1)
            raise RecipeError(f"environment.tools: two tools are called {twice!r}; keep one")
        self.seconds = seconds
        self.characters = characters

    @property
    def schemas(self) -> list[Mapping[str, Any]]:
        """One JSON schema a tool, as chat templates take them."""
        return [tool.schema for tool in self.tools.values()]

    def wrap(self, episode: Episode, template: Template) -> Episode:
        return ToolEpisode(episode, self, tool_style(template, self.schemas))

    answer_role = "tool"

    @property
    def variables(self) -> dict[str, Any]:
        return {"tools": self.schemas}

    def prompt(self, prompt: Prompt, template: Template) -> Prompt:
        """The prompt, with the tools in its system message if the template does not write them."""
        if prompt.text is not None:
            raise RecipeError(
                f"environment.tools: prompt {prompt.id!r} is raw text, and tools need a chat; "
                "give the prompts as messages (dataset: chat = true)"
            )
        return with_tools(prompt, self.schemas, template)

    def describe(self) -> dict[str, Any]:
        return {"tools": [{**each.schema["function"], **each.facts} for each in
                          self.tools.values()]}  # fmt: skip

    def close(self) -> None:
        if "_waits" in self.__dict__:
            self._waits.close()

    @cached_property
    def _waits(self) -> CallQueue:
        return CallQueue()

    def start(self, call: ToolCall) -> Future[Any]:
        """The call's result as text. Fails with the tool's own error, or TimeoutError."""
        return self._waits.start(lambda: _text(self._called(call)), self.seconds)

    def _called(self, call: ToolCall) -> Any:
        passed("tool call")
        if call.name not in self.tools:
            names = ", ".join(self.tools)
            raise ToolError(f"there is no tool {call.name!r}; there are: {names}")
        return self.tools[call.name].call(call.arguments)


def _text(value: Any) -> Any:
    if isawaitable(value):

        async def awaited() -> str:
            return _written(await value)

        return awaited()
    return _written(value)


def _written(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


class ToolEpisode(EpisodeWrapper):
    """An episode with tools: calls are answered here, other completions by the inner episode."""

    def __init__(self, inner: Episode, toolbox: Toolbox, style: ToolStyle) -> None:
        super().__init__(inner)
        self.toolbox = toolbox
        self.style = style

    def next(self, completion: str) -> Any:
        """Tool messages for a completion with calls, otherwise the inner episode's answer."""
        parsed = parse_tool_calls(completion, self.style)
        if not parsed.calls and not parsed.errors:
            return self._inner_next(completion)
        self.rewards.append(0.0)
        answers = self._run(parsed.calls)
        for error in parsed.errors:
            self.added_counts["tools/errors"] += 1
            answers.append(tool_message(ToolCall("tool_call", {}), f"error: {error}"))
        return answers

    def _inner_next(self, completion: str) -> Any:
        before = len(self.inner.rewards)
        answer = self.inner.next(completion)
        if isawaitable(answer):

            async def awaited() -> Any:
                found = await answer
                self.rewards += self.inner.rewards[before:]
                return found

            return awaited()
        self.rewards += self.inner.rewards[before:]
        return answer

    def _run(self, calls: Sequence[ToolCall]) -> list[Message]:
        """One message a call, in order; the calls run together."""
        started = [self.toolbox.start(call) for call in calls[:MOST_CALLS]]
        messages = []
        for call, future in zip(calls, started):
            self.added_counts["tools/calls"] += 1
            if call.name in self.toolbox.tools:
                self.added_counts[f"tools/calls/{call.name}"] += 1
            messages.append(tool_message(call, self._result_text(future)))
        for call in calls[MOST_CALLS:]:
            self.added_counts["tools/errors"] += 1
            words = f"error: only {MOST_CALLS} calls at a time are run"
            messages.append(tool_message(call, words))
        return messages

    def _result_text(self, future: Future[Any]) -> str:
        try:
            result = str(future.result())  # ends by its own deadline
            return shortened(result, self.toolbox.characters)
        except ToolUnavailable:
            raise
        except ToolError as error:
            words = str(error)
        except TimeoutError as error:
            self.added_counts["tools/timeouts"] += 1
            words = str(error)
        except Exception as error:  # noqa: BLE001 (a user's tool may raise anything)
            words = f"{type(error).__name__}: {error}"
        self.added_counts["tools/errors"] += 1
        return shortened(f"error: {words}", self.toolbox.characters)

    def result(self) -> Score | None:
        if not self.inner.rewards:
            self.rewards.clear()  # without rewards of turns, tool turns have none either
        return super().result()
