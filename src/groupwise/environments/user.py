"""A user who answers the policy by rules.

`[environment.user]` adds it to any environment. Turns that the environment answers stay its own;
when the environment would end the rollout, the user answers instead, or ends it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from inspect import isawaitable
from typing import Any

from pydantic import Field, field_validator, model_validator

from groupwise.environments.episode import Episode
from groupwise.environments.wrappers import EnvironmentWrapper, EpisodeWrapper
from groupwise.errors import RecipeError
from groupwise.templates import Template
from groupwise.types import Prompt
from groupwise.verifiers.core.names import Arguments, validated

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
    """`[environment.user]`."""

    rules: tuple[Rule, ...] = Field(
        default=(),
        description="Tried in order; the first that fits answers. Where none fits, the "
        "conversation ends. A prompt's own column `user` (a list of such tables) goes before them.",
    )

    @model_validator(mode="before")
    @classmethod
    def _has_no_endpoint(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and "url" in values:
            raise ValueError(
                "user: url was removed; give rules, or an environment of your own whose "
                "Episode.next asks the endpoint (docs/environments.md)"
            )
        return values


class SimulatedUser(EnvironmentWrapper):
    """Wraps every episode with the user of a recipe."""

    answer_role = "user"

    def __init__(self, settings: UserSettings, prompts: Sequence[Prompt]) -> None:
        """RecipeError where neither the table nor any prompt says what the user answers."""
        if not (settings.rules or any(prompt.columns.get("user") for prompt in prompts)):
            raise RecipeError(
                "environment.user: no rules, and no prompt with a column `user`: the user would "
                'never answer; give rules = [{ when = "which city", say = "Rome" }]'
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
        known = {*prompt.columns, "answer"}
        for rule in rules_for(prompt, self.settings):
            for name in _COLUMN.findall(rule.say or ""):
                if name not in known:
                    raise RecipeError(
                        f"environment.user: {{{name}}} is not a column of prompt {prompt.id!r}; it "
                        f"has {', '.join(sorted(known))}"
                    )
        return prompt

    def describe(self) -> dict[str, Any]:
        return {"user": self.settings.model_dump(mode="json")}


class UserEpisode(EpisodeWrapper):
    """An episode that continues past the inner one's end while a rule of the user fits."""

    def __init__(self, inner: Episode, settings: UserSettings) -> None:
        super().__init__(inner)
        self.rules = rules_for(inner.prompt, settings)

    def next(self, completion: str) -> Any:
        """The inner episode's answer, or the user's; awaitable if the inner one's is."""
        answer = self.inner.next(completion)
        if not isawaitable(answer):
            return self._answered(completion, answer)

        async def awaited() -> Any:
            return self._answered(completion, await answer)

        return awaited()

    def _answered(self, completion: str, answer: Any) -> Any:
        """The answer, else the user's words as a message; None where they end the conversation."""
        self.rewards = self.inner.rewards  # it may have replaced its list
        words = self._words(completion) if answer is None else None
        if words is None:
            return answer
        self.added_counts["user_answers"] += 1
        return [{"role": "user", "content": words}]

    def _words(self, completion: str) -> str | None:
        for rule in self.rules:
            if re.search(rule.when, completion):
                if rule.once:
                    self.rules = [each for each in self.rules if each is not rule]
                return None if rule.say is None else _filled(rule.say, self.prompt)
        return None


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
