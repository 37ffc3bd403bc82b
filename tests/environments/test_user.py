"""A user who answers: by rules, or by the prompt's own rules."""

from __future__ import annotations

import asyncio
import tomllib
from functools import partial
from typing import Any

import pytest

from groupwise.environments import (
    Environment,
    EnvironmentSettings,
    Episode,
    environment_from_settings,
)
from groupwise.environments.registry import _put_around
from groupwise.environments.user import SimulatedUser, UserEpisode, UserSettings
from groupwise.errors import RecipeError
from groupwise.policies import load_policy
from groupwise.recipe import load_recipe
from groupwise.rollouts import collect
from groupwise.samplers import SamplingSettings, ScriptedSampler
from groupwise.types import Prompt, Rollout
from groupwise.verifiers import compose
from groupwise.waiting.calls import CallQueue


def talked(settings: dict[str, Any], replies: list[str], **columns: Any) -> Rollout:
    template = load_policy("tiny", device="cpu").template
    messages = ({"role": "user", "content": "Book a trip."},)
    prompt = Prompt("p", messages, answer="Rome", columns={"city": "Rome", **columns})
    environment = Environment("trips", compose([{"name": "exact"}]), {"train": [prompt]})
    environment.wrappers = (SimulatedUser(UserSettings.model_validate(settings), [prompt]),)
    (group,) = collect(
        environment,
        ScriptedSampler(template, replies),
        template,
        [(prompt, 0)],
        group_size=1,
        sampling=SamplingSettings(max_tokens=80),
        seed=0,
    )
    environment.close()
    return group.rollouts[0]


def said(rollout: Rollout) -> list[str]:
    messages = rollout.extras.messages
    return [message["content"] for message in messages if message["role"] == "user"]


def test_rules_answer_in_order_and_none_ends_it() -> None:
    rules = [
        {"when": "(?i)where", "say": "To {city}, please.", "once": True},
        {"when": "bye"},
        {"when": "[?]", "say": "Hm."},
    ]
    rollout = talked({"rules": rules}, ["Where?", "Where then?", "Rome"])
    assert said(rollout) == ["To Rome, please.", "Hm."]
    assert (rollout.reward, len(rollout.turns)) == (1.0, 3)
    assert rollout.extras.counts == {"user_answers": 2}
    assert said(talked({"rules": rules}, ["bye?"])) == []
    own = talked({"rules": rules}, ["Where?", "Rome"], user=[{"when": "Where", "say": "South"}])
    assert said(own) == ["South"]


def test_bad_settings_are_refused() -> None:
    for settings, words in (
        ({"rules": [{"when": "("}]}, "not a regular expression"),
        ({"url": "http://127.0.0.1:9", "model": "m"}, "url was removed; give rules"),
    ):
        with pytest.raises(ValueError, match=words):
            UserSettings.model_validate(settings)


def test_a_user_of_a_recipe_and_tools_together() -> None:
    table = {
        "name": "arithmetic",
        "tools": ["calculator"],
        "user": {"rules": [{"when": "x", "say": "y"}]},
    }
    settings = EnvironmentSettings.model_validate(table)
    again = EnvironmentSettings.model_validate(settings.model_dump(mode="json"))
    assert again == settings
    environment = environment_from_settings(settings)
    assert environment.answer_role == "tool"
    described = environment.describe()
    assert described["user"]["rules"][0]["say"] == "y"
    tables = {"model": {"name": "tiny"}, "algorithm": {"preset": "grpo"}, "environment": table}
    written = load_recipe(tables).to_toml()
    assert load_recipe(tomllib.loads(written)).environment == load_recipe(tables).environment


def trips(table: dict[str, Any] | None, *prompts: Prompt) -> Environment:
    """The environment of a recipe with that `[environment.user]`, its prompts looked at."""
    environment = Environment("trips", compose([{"name": "exact"}]), {"train": list(prompts)})
    settings = EnvironmentSettings.model_validate(
        {"name": "x", **({} if table is None else {"user": table})}
    )
    _put_around(environment, settings)
    template = load_policy("tiny", device="cpu").template
    for prompt in prompts:
        environment.prompt_ids(prompt, template)
    return environment


def chat(**columns: Any) -> Prompt:
    return Prompt("p", ({"role": "user", "content": "Book."},), answer="Rome", columns=columns)


@pytest.mark.parametrize(
    ("table", "prompt", "words"),
    [
        ({"rules": [{"say": "Yes."}]}, Prompt("p", text="Book.", answer="Rome"), "'p' is raw text"),
        ({"rules": [{"say": "{nope}"}]}, chat(city="Rome"),
         r"\{nope\} is not a column of prompt 'p'; it has answer, city"),
        ({}, chat(user=[{"when": "(", "say": "x"}]), "of prompt 'p': .*not a regular expression"),
        ({}, chat(user=[{"wen": "a"}]), "did you mean 'when'"),
        ({}, chat(user="hello"), "column `user` of prompt 'p' is 'hello'; give a list of rules"),
        ({}, chat(user=["hello"]), "'hello' is not a table"),
        ({}, chat(), "no rules, and no prompt with a column `user`"),
    ],
)  # fmt: skip
def test_a_user_who_could_not_answer_is_refused_before_the_run(
    table: dict[str, Any], prompt: Prompt, words: str
) -> None:
    with pytest.raises(RecipeError, match=words):
        trips(table, prompt)


def test_rules_of_rows_as_parquet_pads_them() -> None:
    rules = [{"when": "where", "say": "{city}", "once": None}, {"when": "bye", "say": None}]
    assert trips({}, chat(user=rules, city="Rome")).notes == []


def test_the_longest_message_is_what_the_recipe_says() -> None:
    environment = Environment("trips", compose([{"name": "exact"}]), {"train": [chat()]})
    assert environment.limits.characters == 20_000
    table = {"name": "x", "answer_characters": 5}
    _put_around(environment, EnvironmentSettings.model_validate(table))
    assert environment.limits.characters == 5
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        EnvironmentSettings.model_validate({**table, "answer_characters": 0})


class Elsewhere(Episode):
    """Notes whether it runs on an event loop, where it would hold up everyone who is slow."""

    def __init__(self, prompt: Prompt, given: Any) -> None:
        super().__init__(prompt)
        self.given = given

    def next(self, completion: str) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.counts["threads"] += 1
        self.rewards = [0.5]
        return self.given


def test_a_slow_environment_has_a_thread_behind_a_user() -> None:
    settings = UserSettings.model_validate({"rules": [{"say": "Hm."}]})
    waits = CallQueue()
    for given in ([{"role": "user", "content": "Go on."}], "no messages", 5):
        play = UserEpisode(Elsewhere(chat(), given), settings)
        assert waits.start(partial(play.next, "x"), 5.0).result() == given
        assert (play.counts, play.rewards) == ({"threads": 1}, [0.5])
    waits.close()
