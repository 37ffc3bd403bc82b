"""Tools: schemas from functions, calls with arguments checked, results and errors as messages."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from groupwise.environments import Environment, Episode, load_environment
from groupwise.environments.tools import (
    Tool,
    Toolbox,
    ToolEpisode,
    ToolError,
    ToolSettings,
    ToolUnavailable,
    load_tools,
)
from groupwise.environments.tools.calculator import calculator
from groupwise.environments.tools.schema import function_schema, type_schema
from groupwise.errors import RecipeError
from groupwise.policies import load_policy
from groupwise.rollouts import collect
from groupwise.samplers import SamplingSettings, ScriptedSampler
from groupwise.sandbox import tiers
from groupwise.templates import tool_style
from groupwise.types import Group, Prompt
from groupwise.verifiers import compose


def weather(city: str, days: int = 1, unit: Literal["C", "F"] = "C") -> str:
    """Says the weather.

    Of a city, for some days.

    Args:
        city: where, with
            its country
        days (int): how many
    """
    return f"{city}: {days} days of sun in {unit}"


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def test_a_schema_from_signature_and_docstring() -> None:
    assert function_schema(weather, "weather") == {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Says the weather. Of a city, for some days.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "where, with its country"},
                    "days": {"type": "integer", "description": "how many"},
                    "unit": {"enum": ["C", "F"], "type": "string"},
                },
                "required": ["city"],
            },
        },
    }
    assert type_schema(list[float] | None, "x") == {
        "anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "null"}]
    }


def test_a_function_that_says_too_little_is_refused() -> None:
    def silent(x: int) -> int:
        return x

    def untyped(x):
        """Does."""

    def starred(*x: int) -> None:
        """Does."""

    for function, words in ((silent, "no docstring"), (untyped, "no type"), (starred, "name")):
        with pytest.raises(RecipeError, match=words):
            Tool.of(function)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "needs the argument 'city'"),
        ({"city": 3}, "'city': 3 is not of type \"string\""),
        ({"city": "x", "days": "2"}, "'days': \"2\" is not of type"),
        ({"city": "x", "days": True}, "'days': true is not of type"),
        ({"city": "x", "unit": "K"}, '"K" is not one of "C" or "F"'),
        ({"town": "x"}, "no argument 'town'; it takes city, days, unit"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ToolError, match=words):
        Tool.of(weather).call(arguments)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("3+4*2", "11"), ("(3 + 4) * 12", "84"), ("-2**2", "-4"), ("2**-1", "0.5"), ("1/3", "0.333"
         "333333333"), ("10/4", "2.5"), ("1,234 × 10", "12340"), ("2^10", "1024"), ("0.1+0.2",
         "0.3"), ("1e3", "1000"), ("2**3**2", "512"), ("7 / 7", "1"),
        ("(1/3)**1000", "7.5638913231e-478"),
        ("-(1/2)**1000/2**1000", "-8.70980981622e-603"), ("2-1,234,567", "-1234565"),
        ("1/4,000", "0.00025"), ("1,234.5*2", "2469"), ("1_000+1", "1001"),
    ],
)  # fmt: skip
def test_the_calculator(expression: str, value: str) -> None:
    assert calculator(expression) == value


@pytest.mark.parametrize(
    "expression",
    ["", "1/0", "0**-1", "3+", "(3", "3)", "3 4", "x+1", "__import__('os')", "9**9**9", "2**0.5",
     "1" * 201, "(" * 200, "9**999*9**999*9**999", "1,5+1", "1,23", "1,2345", "0,123", "1.5,000"],
)  # fmt: skip
def test_the_calculator_refuses(expression: str) -> None:
    with pytest.raises(ToolError):
        calculator(expression)


# Plays.


def played(
    tools: Sequence[Tool], replies: Sequence[str], *, seconds: float = 5.0, characters: int = 4000,
    size: int = 1,
) -> Group:  # fmt: skip
    template = load_policy("tiny", device="cpu").template
    prompt = Prompt("p", messages=({"role": "user", "content": "12*12="},), answer="144")
    environment = Environment("sums", compose([{"name": "number"}]), {"train": [prompt]})
    environment.wrappers = (Toolbox(tools, seconds=seconds, characters=characters),)
    (group,) = collect(
        environment,
        ScriptedSampler(template, list(replies)),
        template,
        [(prompt, 0)],
        group_size=size,
        sampling=SamplingSettings(max_tokens=1000, group_size=max(size, 2)),
        seed=0,
    )
    environment.close()
    return group


def told(group: Group) -> list[str]:
    messages = group.rollouts[0].extras.messages
    return [message["content"] for message in messages if message["role"] == "tool"]


def test_a_call_is_answered_and_the_last_turn_is_judged() -> None:
    group = played([Tool.of(calculator)], [call("calculator", expression="12*12"), "144"])
    rollout = group.rollouts[0]
    assert (rollout.reward, told(group), len(rollout.turns)) == (1.0, ["144"], 2)
    assert rollout.extras.counts == {"tools/calls": 1, "tools/calls/calculator": 1}
    assert "144" not in rollout.turns[0].completion.text
    system = load_policy("tiny", device="cpu").template.decode(rollout.prompt_ids)
    assert system.startswith("<|bos|><|system|>You can call these tools:")


def test_the_answer_in_a_tools_text_earns_nothing() -> None:
    group = played([Tool.of(calculator)], [call("calculator", expression="12*12"), "done"])
    assert group.rollouts[0].score.outcome == "no_answer"
    group = played([Tool.of(calculator)], [call("calculator", expression="144"), "no number"])
    assert group.rollouts[0].reward == 0.0


def broken() -> str:
    """Fails."""
    raise KeyError("lost")


def gone() -> str:
    """Is not there."""
    raise ToolUnavailable("the index is gone")


async def later(seconds: float) -> str:
    """Waits."""
    await asyncio.sleep(seconds)
    return "waited"


def slow(seconds: float) -> str:
    """Waits in Python."""
    time.sleep(seconds)
    return "waited"


def long() -> list[int]:
    """Talks."""
    return list(range(100))


def test_errors_of_tools_are_told_and_counted() -> None:
    tools = [Tool.of(each) for each in (broken, later, slow, long, calculator)]
    first = "\n".join(
        [
            call("broken"),
            call("later", seconds=0.01),
            call("slow", seconds=2.0),
            call("later", seconds=2.0),
            call("long"),
            call("missing"),
            call("calculator", expression="1/0"),
            '<tool_call>{"name": "slow"',
        ]
    )
    group = played(tools, [first, "144"], seconds=0.2, characters=20)
    assert told(group)[0] == "error: KeyError: 'lo... (3 characters more)"
    assert told(group)[4] == "[0, 1, 2, 3, 4, 5, 6... (370 characters more)"
    assert [each.startswith("error: ") for each in told(group)] == [
        True, False, True, True, False, True, True, True,
    ]  # fmt: skip
    counts = group.rollouts[0].extras.counts
    assert (counts["tools/calls"], counts["tools/errors"], counts["tools/timeouts"]) == (7, 6, 2)
    assert group.rollouts[0].reward == 1.0


def test_a_tool_that_is_not_there_fails_the_rollout() -> None:
    group = played([Tool.of(gone)], [call("gone"), "144"], size=2)
    failed, right = group.rollouts
    assert (failed.finish_reason, failed.score.outcome) == ("error", "infrastructure_error")
    assert "ToolUnavailable: the index is gone" in failed.score.reason
    assert right.reward == 1.0


def test_at_most_eight_calls_at_a_time_are_run() -> None:
    group = played([Tool.of(calculator)], [call("calculator", expression="1+1") * 10, "144"])
    assert told(group) == ["2"] * 8 + ["error: only 8 calls at a time are run"] * 2


# From a recipe.


def test_tools_of_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_tools.py").write_text(
        "def shout(text: str) -> str:\n    '''Shouts.'''\n    return text.upper()\n\n\n"
        "def make(mark: str):\n    def end(text: str) -> str:\n        '''Ends.'''\n"
        "        return text + mark\n    return end\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    tools = load_tools(
        [
            ToolSettings.model_validate("calculator"),
            ToolSettings.model_validate("own_tools:shout"),
            ToolSettings(name="own_tools:make", arguments={"mark": "!"}),
        ]
    )
    assert [tool.name for tool in tools] == ["calculator", "shout", "end"]
    assert tools[2].call({"text": "hm"}) == "hm!"
    for name, words in (
        ("calculater", "did you mean 'calculator'"),
        ("own_tools:shuot", "did you mean 'shout'"),
    ):
        with pytest.raises(RecipeError, match=words):
            load_tools([ToolSettings(name=name)])
    with pytest.raises(RecipeError, match="takes no arguments"):
        load_tools([ToolSettings(name="calculator", arguments={"x": 1})])
    with pytest.raises(RecipeError, match=r"two tools are called 'calculator'"):
        Toolbox([tools[0], tools[0]])


def test_any_environment_can_have_tools() -> None:
    from groupwise.environments import EnvironmentSettings, environment_from_settings

    settings = EnvironmentSettings.model_validate(
        {"name": "arithmetic", "tools": ["calculator"], "max_turns": 3, "judged": "all"}
    )
    environment = environment_from_settings(settings)
    template = load_policy("tiny", device="cpu").template
    play = environment.open(environment.prompts(1)[0], template)
    assert isinstance(play, ToolEpisode)
    assert (environment.limits.turns, environment.judged) == (3, "all")
    assert environment.answer_role == "tool"
    assert environment.describe()["tools"][0]["name"] == "calculator"
    assert load_environment("arithmetic").answer_role is None


def test_raw_text_has_no_tools() -> None:
    template = load_policy("tiny", device="cpu").template
    with pytest.raises(RecipeError, match="'raw' is raw text, and tools need a chat"):
        Toolbox([Tool.of(calculator)]).prompt(Prompt("raw", text="3+4="), template)


# Programs.


def test_python_runs_in_the_sandbox() -> None:
    (tool,) = load_tools([ToolSettings(name="python", arguments={"time_limit": 2.0})])
    assert tool.call({"code": "x = 6\nprint('six')\nx * 7"}) == "six\n42\n"
    assert tool.call({"code": "x = 1"}) == "(nothing was printed)"
    for code, words in (
        ("print(1)\n1/0", "1\nZeroDivisionError: division by zero"),
        ("def", "SyntaxError"),
        ("while True: pass", "timeout"),
        ("open('/etc/shadow').read()", "Error"),
    ):
        with pytest.raises(ToolError, match=words):
            tool.call({"code": code})


def test_halves_of_characters_that_a_program_prints(tmp_path: Path) -> None:
    def half(text: str) -> str:
        """Gives half a character, or raises with one."""
        if text == "raise":
            raise ValueError("\ud83d")
        return "\ud83d"

    group = played([Tool.of(half)], [call("half", text="x"), call("half", text="raise"), "144"])
    told = [m["content"] for m in group.rollouts[0].extras.messages if m["role"] == "tool"]
    assert told == ["\ufffd", "error: ValueError: \ufffd"]
    asked = '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>'
    (message, *_) = played([Tool.of(half)], [asked, "144"]).rollouts[0].extras.messages[1:]
    assert message["name"] == "\ufffd"
    assert "there is no tool" in message["content"]


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("python", {"packages": "numpy"}, r"packages = 'numpy'.*as \[\"numpy\"\]"),
        ("python", {"packages": ["nope"]}, "package 'nope' is not installed"),
        ("python", {"packages": ["nope.inner"]}, "package 'nope.inner' is not installed"),
        ("python", {"tier": "x"}, "tier = 'x'.*'auto'"),
        ("python", {"time_limit": "x"}, r"time_limit = 'x'.*as 5\.0"),
        ("python", {"time_limit": 0}, "time_limit = 0.*must be above 0"),
        ("python", {"time_limit": float("inf")}, "time_limit = inf"),
        ("search", {"path": "."}, "was removed; give a function of your own"),
        ("calculator", {"digits": 3}, "takes no arguments"),
    ],
)  # fmt: skip
def test_arguments_of_built_in_tools_are_checked_when_they_are_built(
    name: str, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(RecipeError, match=words):
        load_tools([ToolSettings(name=name, arguments=arguments)])


class Adder:
    """Adds to a number."""

    def __init__(self, more: int) -> None:
        self.more = more

    def __call__(self, number: int) -> int:
        return number + self.more


def test_a_callable_object_is_a_tool() -> None:
    tool = Tool.of(Adder(3))
    assert tool.name == "Adder"
    assert tool.schema["function"]["description"] == "Adds to a number."
    assert tool.schema["function"]["parameters"]["properties"] == {"number": {"type": "integer"}}
    assert tool.call({"number": 4}) == 7
    assert Tool.of(partial(partial(weather), days=3)).name == "weather"
    tool = Tool.of(partial(weather, days=3), name="forecast")
    assert tool.call({"city": "Rome"}) == "Rome: 3 days of sun in C"
    assert tool.schema["function"]["parameters"]["required"] == ["city"]


def seven(x: int) -> int:
    """Gives no function."""
    return 7


def test_a_class_of_a_recipe_is_made_and_what_is_no_function_is_refused() -> None:
    (tool,) = load_tools([ToolSettings(name="test_tools:Adder", arguments={"more": 2})])
    assert tool.call({"number": 4}) == 6
    with pytest.raises(
        RecipeError, match=r"test_tools:Adder' .*: missing a required argument: 'more'"
    ):
        load_tools([ToolSettings(name="test_tools:Adder")])
    with pytest.raises(RecipeError, match="test_tools:seven' returned 7; return a function"):
        load_tools([ToolSettings(name="test_tools:seven", arguments={"x": 1})])


class Scoring(Episode):
    """Counts in a table of its own, made when the play ends."""

    counted: Any = None

    def next(self, completion: str) -> None:
        self.counts = self.counted


@pytest.mark.parametrize("counted", [{"score": 0.5}, {"tools/calls": 7}, "nothing"])
def test_counts_of_a_play_within_tools(monkeypatch: pytest.MonkeyPatch, counted: Any) -> None:
    monkeypatch.setattr(Scoring, "counted", counted)
    inner = Scoring(Prompt("p", text="x"))
    play = ToolEpisode(
        inner, Toolbox([Tool.of(Adder(3))]), tool_style(load_policy("tiny").template)
    )
    assert play.next(call("Adder", number=1))[0]["content"] == "4"
    assert play.counts == {"tools/calls": 1, "tools/calls/Adder": 1}
    assert play.next("144") is None
    if counted == "nothing":
        assert play.counts == "nothing"
    else:
        calls = 1 + counted.get("tools/calls", 0)
        assert play.counts == {**counted, "tools/calls": calls, "tools/calls/Adder": 1}


def test_a_sandbox_that_cannot_start_is_refused_when_the_tool_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tiers, "find_bubblewrap", lambda: None)
    with pytest.raises(RecipeError, match=r"tool 'python': .*bubblewrap is not installed"):
        load_tools([ToolSettings(name="python", arguments={"tier": "A", "packages": ["json"]})])
