"""Adapters to other libraries without those libraries: found, and clear on what is missing.

What they do with the real packages: `real_openenv.py` and `real_verifiers.py`.
"""

import importlib.metadata
import subprocess
import sys
from types import SimpleNamespace

import pytest

from groupwise.compat.openenv import OpenEnvEpisode, OpenEnvSettings, seen
from groupwise.environments import load_environment
from groupwise.environments.registry import offered
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.types import Prompt


def test_they_are_found_by_their_entry_points():
    assert offered()["openenv"] == "groupwise.compat.openenv:make_openenv"
    assert offered()["verifiers_v1"] == "groupwise.compat.verifiers_v1:make_verifiers_v1"


@pytest.mark.parametrize(
    ("name", "arguments", "package", "extra"),
    [
        ("openenv", {"url": "http://127.0.0.1:1"}, "openenv", "groupwise[openenv]"),
        ("verifiers_v1", {"taskset": "gsm8k"}, "verifiers", "groupwise[verifiers-v1]"),
    ],
)
def test_a_package_that_is_not_installed_is_one_clear_message(name, arguments, package, extra):
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version(package)
    with pytest.raises(RecipeError) as error:
        load_environment(name, **arguments)
    assert f"package {package}, which is not installed" in str(error.value)
    assert extra in str(error.value)


def test_unknown_arguments_are_refused_before_anything_is_imported():
    with pytest.raises(RecipeError, match="did you mean 'url'"):
        load_environment("openenv", ulr="http://127.0.0.1:1")


def test_nothing_below_imports_them():
    code = (
        "import sys, groupwise.environments, groupwise.environments.registry\n"
        "sys.exit(any(name.startswith('groupwise.compat') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def result(observation, reward=None, done=False):
    return SimpleNamespace(observation=observation, reward=reward, done=done)


SETTINGS = OpenEnvSettings(url="http://127.0.0.1:1", observation="text")


def test_observations_are_read():
    found = seen(result({"text": "go", "board": [1]}, reward=True, done=True), SETTINGS)
    assert (found.text, found.reward, found.done) == ("go", 1.0, True)
    whole = seen(result({"b": 1, "a": "ü"}), OpenEnvSettings(url="x"))
    assert whole.text == '{"a": "ü", "b": 1}'
    assert whole.reward is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (result("text"), "not a table"),
        (result({"text": ""}, reward=float("nan")), "not a finite number"),
        (result({"text": ""}, reward="1"), "not a finite number"),
        (result({"text": ""}, done=None), "done = None"),
        (result({"board": ""}), "it has board"),
    ],
)
def test_what_is_no_observation_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        seen(given, SETTINGS)


class Scripted:
    """A session that answers from a list."""

    def __init__(self, opening, *steps):
        self.opening, self.steps, self.closed = opening, list(steps), False

    def reset(self, seed):
        return seen(result({"text": self.opening}), SETTINGS)

    def step(self, completion):
        return seen(self.steps.pop(0), SETTINGS)

    def close(self):
        self.closed = True


def play(monkeypatch, session):
    monkeypatch.setattr("groupwise.compat.openenv.Session", lambda settings: session)
    columns = {"seed": 3, "observation": "go"}
    return OpenEnvEpisode(Prompt("p", text="go", columns=columns), SETTINGS)


def test_rewards_of_turns_add_up(monkeypatch):
    session = Scripted(
        "go", result({"text": "on"}, reward=0.25), result({"text": "end"}, reward=0.5, done=True)
    )
    game = play(monkeypatch, session)
    assert game.next("a") == ({"role": "user", "content": "on"},)
    assert game.next("b") is None
    assert game.rewards == [0.25, 0.5]
    assert (game.result().value, game.result().outcome) == (0.75, "partial")
    game.close()
    assert session.closed


def test_a_server_that_never_rewards_gives_no_verdict(monkeypatch):
    game = play(monkeypatch, Scripted("go", result({"text": "end"}, done=True)))
    assert game.next("a") is None
    assert game.result() is None


def test_a_server_that_is_no_function_of_the_seed_marks_the_play(monkeypatch):
    game = play(monkeypatch, Scripted("something else"))
    with pytest.raises(GroupwiseError, match="another first observation"):
        game.next("a")
