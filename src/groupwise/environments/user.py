"""A user who answers the policy: by rules, or simulated by a model behind an endpoint.

`[environment.user]` adds it to any environment. Turns that the environment answers stay its own;
when the environment would end the rollout, the user answers instead, or ends it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Any

from pydantic import Field, field_validator, model_validator

from groupwise.environments.episode import Episode
from groupwise.environments.wrappers import EnvironmentWrapper, EpisodeWrapper
from groupwise.errors import RecipeError
from groupwise.templates import Template
from groupwise.texts import whole_texts
from groupwise.types import Message, Prompt
from groupwise.verifiers.core.names import Arguments, validated
from groupwise.verifiers.judge.endpoint import chat_reply, key_headers

_COLUMN = re.compile(r"\{(\w+)\}")


class Rule(Arguments):
    """The user's answer to a completion that matches; without `say`, the conversation ends."""

    when: str = Field(
        default="", description="A regular expression, looked for anywhere; empty fits everything."
    )
    say: str | None = Field(
        default=None, description="The user's words; {column} takes a column of the prompt."
    )
    once: bool = Field(default=False, description="Whether it is used once a conversation at most.")

    @field_validator("when")
    @classmethod
    def _is_pattern(cls, value: str) -> str:
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"when = {value!r} is not a regular expression: {error}") from error
        return value


class UserSettings(Arguments):
    """`[environment.user]`: rules, or an OpenAI-compatible endpoint."""

    rules: tuple[Rule, ...] = Field(
        default=(),
        description="Tried in order; the first that fits answers. Where none fits, the "
        "conversation ends. A prompt's own column `user` (a list of such tables) goes before them.",
    )
    url: str | None = Field(
        default=None, description="An endpoint, as http://127.0.0.1:8000/v1; in place of rules."
    )
    model: str | None = Field(default=None, description="The model asked of the endpoint.")
    instructions: str = Field(
        default="You are the user in this conversation. Answer the assistant in a few words. When "
        "you have what you need, write only [done].",
        description="The simulated user's system message; {column} takes a column of the prompt.",
    )
    done: str = Field(
        default="[done]", min_length=1, description="What in the reply ends the conversation."
    )
    temperature: float = Field(default=0.0, ge=0.0, description="Of the simulated user.")
    max_tokens: int = Field(default=256, ge=1, description="Tokens of one reply.")
    time_limit: float = Field(default=30.0, gt=0, description="Seconds for one reply.")
    tries: int = Field(default=2, ge=1, description="How often a failing endpoint is asked.")
    key_variable: str | None = Field(
        default=None, description="The environment variable that holds the endpoint's key."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> UserSettings:
        if self.url is not None and self.rules:
            raise ValueError("user: give rules or a url, one of the two")
        if self.url is not None and self.model is None:
            raise ValueError("user: a url needs the name of its model; give model")
        return self


class SimulatedUser(EnvironmentWrapper):
    """Wraps every episode with the user of a recipe."""

    answer_role = "user"

    def __init__(self, settings: UserSettings, prompts: Sequence[Prompt]) -> None:
        """RecipeError where the variable of the endpoint's key is not set, and where neither the
        table nor any prompt says what the user answers.
        """
        key_headers(settings.key_variable, "environment.user")
        if not (settings.rules or settings.url or any(p.columns.get("user") for p in prompts)):
            raise RecipeError(
                "environment.user: no rules, no url, and no prompt with a column `user`: the user "
                'would never answer; give rules = [{ when = "which city", say = "Rome" }], or a url'
            )
        self.settings = settings

    def wrap(self, episode: Episode, template: Template) -> Episode:
        return UserEpisode(episode, self.settings)

    def prompt(self, prompt: Prompt, template: Template) -> Prompt:
        """The prompt unchanged. Raises RecipeError if the user could not answer in it."""
        if prompt.text is not None:
            raise RecipeError(
                f"environment.user: prompt {prompt.id!r} is raw text, and a user answers in chats; "
                "give the prompts as messages (dataset: chat = true)"
            )
        said = [self.settings.instructions]
        if self.settings.url is None:
            said = [rule.say or "" for rule in rules_for(prompt, self.settings)]
        known = {*prompt.columns, "answer"}
        for name in _COLUMN.findall("".join(said)):
            if name not in known:
                raise RecipeError(
                    f"environment.user: {{{name}}} is not a column of prompt {prompt.id!r}; it has "
                    f"{', '.join(sorted(known))}"
                )
        return prompt

    def describe(self) -> dict[str, Any]:
        return {"user": self.settings.model_dump(mode="json", exclude={"key_variable"})}


class UserEpisode(EpisodeWrapper):
    """An episode that continues past the inner one's end while the user answers."""

    def __init__(self, inner: Episode, settings: UserSettings) -> None:
        super().__init__(inner)
        self.settings = settings
        self.rules = rules_for(inner.prompt, settings) if settings.url is None else []
        self.said: list[Message] = list(inner.prompt.messages)

    def next(self, completion: str) -> Any:
        """The inner episode's answer, or the user's; awaitable if either is."""
        answer = self.inner.next(completion)  # not on the event loop, because it may be slow
        if isawaitable(answer) or self.settings.url is not None:
            return self._waited(completion, answer)
        return self._answered(completion, answer, self._by_rule)

    async def _waited(self, completion: str, answer: Any) -> Any:
        answer = await answer if isawaitable(answer) else answer
        if answer is not None or self.settings.url is None:
            return self._answered(completion, answer, self._by_rule)
        words = await self._asked(completion)
        return self._answered(completion, None, lambda _: words)

    def _answered(self, completion: str, answer: Any, user: Callable[[str], str | None]) -> Any:
        """The answer, else the user's words as a message; None where they end the conversation."""
        self.rewards = self.inner.rewards  # it may have replaced its list
        words = user(completion) if answer is None else None
        if words is not None:
            self.added_counts["user_answers"] += 1
            answer = [{"role": "user", "content": words}]
        self.said.append({"role": "assistant", "content": completion})
        if isinstance(answer, list | tuple):  # anything else fails the rollout later
            self.said += answer
        return answer

    def _by_rule(self, completion: str) -> str | None:
        for rule in self.rules:
            if re.search(rule.when, completion):
                if rule.once:
                    self.rules = [each for each in self.rules if each is not rule]
                return None if rule.say is None else _filled(rule.say, self.prompt)
        return None

    async def _asked(self, completion: str) -> str | None:
        """The endpoint's words; None if they end the conversation. Raises as `chat_reply`.

        The simulated user writes as the assistant, so the roles are exchanged.
        """
        settings = self.settings
        messages = [{"role": "system", "content": _filled(settings.instructions, self.prompt)}]
        roles = {"user": "assistant", "assistant": "user"}
        said = (*self.said, {"role": "assistant", "content": completion})
        messages += [
            {"role": roles[each["role"]], "content": each.get("content", "")}
            for each in said
            if each.get("role") in roles
        ]
        payload = {
            "model": settings.model,
            "messages": whole_texts(messages),
            "temperature": settings.temperature,
            "max_tokens": settings.max_tokens,
        }
        headers = key_headers(settings.key_variable, "environment.user")
        words = await chat_reply(
            settings.url or "", payload, headers, settings.time_limit, settings.tries
        )
        return None if settings.done in words else words.strip()


def rules_for(prompt: Prompt, settings: UserSettings) -> list[Rule]:
    """The rules in the prompt's own column `user`, then the table's.

    Raises RecipeError if the column holds anything else.
    """
    column = prompt.columns.get("user") or ()
    if not isinstance(column, list | tuple):
        raise RecipeError(
            f"environment.user: the column `user` of prompt {prompt.id!r} is {column!r:.60}; give "
            'a list of rules, as [{"when": "which city", "say": "Rome"}]'
        )
    where = f"environment.user: rule of prompt {prompt.id!r}"
    own = []
    for each in column:
        if not isinstance(each, Mapping):
            raise RecipeError(f"{where}: {each!r:.60} is not a table; give when and say")
        # Parquet gives every rule the keys of all.
        given = {str(key): value for key, value in each.items() if value is not None}
        own.append(validated(Rule, given, where))
    return [*own, *settings.rules]


def _filled(text: str, prompt: Prompt) -> str:
    values: Mapping[str, Any] = {**prompt.columns, "answer": prompt.answer}
    return _COLUMN.sub(lambda found: str(values.get(found[1], found[0])), text)
