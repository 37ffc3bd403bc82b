"""Texts that nobody checked: recipes, completions, gold answers, tool calls, chat messages."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from fuzzing import COMPLETIONS, NESTED, SCALARS, TEXTS, changed, damaged, refused_or_done, run
from hypothesis import strategies as st

from groupwise.environments.chat_messages import answer_messages, message_fault
from groupwise.policies import get_model
from groupwise.recipe import field_table, load_recipe
from groupwise.stages import is_pipeline, load_pipeline
from groupwise.stages.recipe import stage_fields
from groupwise.templates import Template, tool_schemas
from groupwise.templates.tool_calls import ParsedCalls, parse_tool_calls
from groupwise.types import Prompt, Score
from groupwise.verifiers import Case, load_verifier, score_cases, verifier_class
from groupwise.verifiers.core.registry import BUILTIN
from groupwise.verifiers.judge.judging import final_object, rank_values, score_value

ROOT = Path(__file__).parents[2]
SHIPPED = {path.stem: path.read_text("utf-8") for path in sorted((ROOT / "recipes").glob("*.toml"))}


def read_recipe(text: str, folder: Path) -> None:
    path = folder / "recipe.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))

    def load() -> None:
        if is_pipeline(path):
            load_pipeline(path)
        else:
            recipe = load_recipe(path)
            assert load_recipe(tomllib.loads(recipe.to_toml())) == recipe

    refused_or_done(load)


FIELDS = [row[0] for row in field_table()] + [f"small.{row[0]}" for row in field_table()[:9]]
STAGE_FIELDS = [row[0] for row in stage_fields()]


@st.composite
def recipes(draw: Any) -> str:
    """A shipped recipe with its bytes damaged, a value changed, or a field set to anything."""
    text = SHIPPED[draw(st.sampled_from(sorted(SHIPPED)))]
    how = draw(st.sampled_from(["bytes", "value", "field"]))
    if how == "bytes":
        return str(draw(damaged(text.encode())).decode("utf-8", "replace"))
    table = tomllib.loads(text)
    if how == "value":
        table = draw(changed(table))
    else:
        *parents, last = draw(st.sampled_from(FIELDS + STAGE_FIELDS)).split(".")
        node: Any = table
        for name in parents:
            node = node.setdefault(name, {}) if isinstance(node, dict) else node[0]
        if isinstance(node, dict):
            node[last] = draw(NESTED)
    try:
        return tomli_w.dumps(table)
    except (TypeError, AttributeError, UnicodeEncodeError):  # TOML cannot hold it
        return text


@st.composite
def settings_of_fields(draw: Any) -> dict[str, Any]:
    """Overrides as a command gives them: any fields, any values, some of them texts to parse."""
    names = st.one_of(st.sampled_from(FIELDS), TEXTS)
    return dict(draw(st.dictionaries(names, NESTED, min_size=1, max_size=3)))


def override(overrides: dict[str, Any]) -> None:
    refused_or_done(lambda: load_recipe(ROOT / "recipes/tiny_arithmetic.toml", overrides))


# --- completions, gold answers, arguments -------------------------------------------------------

ARGUMENTS: dict[str, dict[str, Any]] = {
    "regex": {"pattern": r"answer is (?P<answer>(\w+\s?)+)$", "time_limit": 0.2},
    "length": {"max_tokens": 3},
    "target": {"target": "7"},
    "json_schema": {"json_schema": {"type": "object"}},
    "language": {"language": "en"},
    "instructions": {"ids": ["startend:quotation", "punctuation:no_comma"]},
    "code": {"time_limit": 0.5, "total_time_limit": 1.0},
    "sql": {"time_limit": 0.5},
    "math": {"time_limit": 0.5, "workers": 1},
}
COLUMNS: dict[str, Any] = {
    "numbers": [3, 4], "target": 7, "tests": [[[2], 4]], "entry": "f", "choices": ["a", "b"],
    "setup": "create table t(a); insert into t values (1)",
}  # fmt: skip
ASKED = {name: ARGUMENTS.get(name, {}) for name in BUILTIN} | {
    f"format of {kind}": {"kind": kind} for kind in ("tagged", "think", "think_answer")
}
ELSEWHERE = ("judge", "rubric", "reasoning_gym")
"""What asks a server or a package; replies of a judge are a target of their own."""
JUDGES = [name for name in ASKED if name not in ELSEWHERE]


@cache
def verifier(name: str) -> Any:
    return load_verifier(name.partition(" ")[0], **ASKED[name])


def judge(case: tuple[str, str, Any]) -> None:
    """Every text has a score, whatever it is; no text raises."""
    name, text, answer = case
    prompt = Prompt("p", text="3+4=", answer=answer, columns=COLUMNS)
    (score,) = score_cases(verifier(name), [Case(prompt, text, completion_ids=(1, 2))])
    assert isinstance(score, Score)
    score.reason.encode()
    assert len(score.reason) < 2000


GOOD = {"sql": "select a from t", "math": "\\sqrt2", "choice": "B"}
COMPLETED = st.tuples(st.sampled_from(JUDGES), COMPLETIONS).map(
    lambda pair: (*pair, GOOD.get(pair[0], "7"))
)


@st.composite
def golds(draw: Any) -> tuple[str, Prompt]:
    """A row of data that nobody checked: any answer, any value in the columns that are read."""
    name = draw(st.sampled_from(JUDGES))
    needed = sorted({*verifier(name).required_columns, *COLUMNS, "kwargs", "instruction_id_list"})
    columns = COLUMNS | draw(st.dictionaries(st.sampled_from(needed), NESTED, max_size=2))
    answer = draw(st.one_of(NESTED, COMPLETIONS))
    return name, Prompt("p", text=draw(COMPLETIONS), answer=answer, columns=columns)


def check_gold(case: tuple[str, Prompt]) -> None:
    name, prompt = case

    def check() -> None:
        (reason,) = verifier(name).check_answers([prompt])
        assert reason is None or (isinstance(reason, str) and len(reason) < 2000)
        (score,) = score_cases(verifier(name), [Case(prompt, "\\boxed{7}", completion_ids=(1,))])
        assert isinstance(score, Score)

    refused_or_done(check)


@st.composite
def arguments(draw: Any) -> tuple[str, dict[str, Any]]:
    name = draw(st.sampled_from([each for each in BUILTIN if each != "judge"]))
    fields = st.sampled_from(sorted(verifier_class(name).model_fields))
    own = draw(st.dictionaries(fields, NESTED, max_size=3))
    return name, {**ARGUMENTS.get(name, {}), **own}


def load_with(case: tuple[str, dict[str, Any]]) -> None:
    name, given = case
    refused_or_done(lambda: load_verifier(name, **given))


def judge_reply(reply: str) -> None:
    for text in (reply, f"{reply}\n" + '{"score_1": ' + reply + "}"):
        found = final_object(text, "score_1")
        if found is not None:
            value = score_value(found[0]["score_1"], 0, 10)
            assert value is None or 0 <= value <= 1
            ranks = rank_values(found[0]["score_1"], ("A", "B"))
            assert ranks is None or len(ranks) == 2


# --- tool calls and chats ------------------------------------------------------------------------

STYLES: list[Any] = ["hermes", "llama", "mistral", "deepseek", "plain"]
WRITTEN = (
    '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>',
    '<|python_tag|>{"name": "add", "parameters": {"a": 1}}; {"name": "b"}',
    '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}]',
    "[TOOL_CALLS]add[ARGS]" + '{"a": 1}',
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n"
    '{"a": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    '```json\n{"name": "add", "arguments": "{\\"a\\": 1}"}\n```',
)
CALLS = st.one_of(
    COMPLETIONS,
    st.sampled_from(WRITTEN).flatmap(lambda text: damaged(text.encode())).map(
        lambda raw: raw.decode("utf-8", "replace")
    ),
)  # fmt: skip


def parse_calls(case: tuple[Any, str]) -> None:
    parsed = parse_tool_calls(case[1], case[0])
    assert isinstance(parsed, ParsedCalls)
    for call in parsed.calls:
        assert call.name
        assert isinstance(call.arguments, dict)
    assert all(len(error) < 500 for error in parsed.errors)


CALL = st.fixed_dictionaries(
    {}, optional={"function": NESTED, "name": SCALARS, "arguments": NESTED, "id": SCALARS}
)
MESSAGES = st.one_of(
    NESTED,
    st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["system", "user", "assistant", "tool"]) | SCALARS,
            "content": TEXTS | NESTED,
            "tool_calls": st.lists(CALL | NESTED, max_size=2) | SCALARS,
            "name": SCALARS,
        },
    ),
)
CHATS = st.lists(MESSAGES, max_size=4)


@cache
def template() -> Template:
    entry = get_model("tiny")
    assert entry is not None
    return Template.from_folder(entry.get())


def said(action: Callable[[], Any]) -> str:
    """The message of the ValueError that `action` raises."""
    try:
        action()
    except ValueError as error:
        return str(error)
    return ""


def read_chat(messages: list[Any]) -> None:
    """A message has no fault, or a short one; a chat without faults is rendered or refused."""
    faults = [message_fault(each) for each in messages]
    assert all(fault is None or len(fault) < 500 for fault in faults)
    assert len(said(lambda: answer_messages(messages))) < 700
    if messages and not any(faults):
        prompt = Prompt("p", messages=tuple(messages))
        refused_or_done(lambda: template().encode_prompt(prompt))


def read_tools(value: Any) -> None:
    assert len(said(lambda: tool_schemas(value))) < 500


TARGETS: dict[str, tuple[Callable[[Any], None], st.SearchStrategy[Any], int]] = {
    "overrides": (override, settings_of_fields(), 1000),
    "completions": (judge, COMPLETED, 2500),
    "gold answers": (check_gold, golds(), 1000),
    "arguments of verifiers": (load_with, arguments(), 800),
    "replies of judges": (judge_reply, COMPLETIONS | st.text(max_size=9), 500),
    "tool calls": (parse_calls, st.tuples(st.sampled_from(STYLES), CALLS), 1500),
    "chats": (read_chat, CHATS, 800),
    "tools of a row": (read_tools, NESTED | COMPLETIONS, 400),
}
"""What reads, what it reads, and how many cases the slow test tries."""


@pytest.mark.parametrize("target", TARGETS)
def test_a_few_texts(target: str) -> None:
    check, cases, _ = TARGETS[target]
    run(check, cases, 25)


def test_a_few_recipes(tmp_path: Path) -> None:
    run(lambda text: read_recipe(text, tmp_path), recipes(), 25)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", TARGETS)
def test_many_texts(target: str) -> None:
    run(*TARGETS[target])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_recipes(tmp_path: Path) -> None:
    run(lambda text: read_recipe(text, tmp_path), recipes(), 1500)
