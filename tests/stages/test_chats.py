"""Chats as token ids: what trains is what the policy would have sampled, in every template."""

from __future__ import annotations

import json
from typing import Any

import pytest

from groupwise.environments.readers import Row
from groupwise.errors import RecipeError
from groupwise.stages.chats import ChatData, TokenExample, chat_examples
from groupwise.types import Prompt
from templates.families import DROPS, FAMILIES, TOOL, template_of

QUESTION = {"role": "user", "content": "What is 17 times 23?"}
ANSWER = {"role": "assistant", "content": "The result is 391."}
AGAIN = {"role": "user", "content": "And 18 times 2?"}
SECOND = {"role": "assistant", "content": "36"}
THOUGHT = {"role": "assistant", "content": "<think>\nhm, 391\n</think>\n\nThe result is 391."}
EMPTY = "<think>\n\n</think>\n\n"
NAMES = sorted(FAMILIES)


def said(template: Any, message: dict[str, str]) -> dict[str, str]:
    """The message, with an empty thought where the template opens one for the model."""
    before = EMPTY if template.prefill else ""
    return {**message, "content": before + message["content"]}


def trained(template: Any, example: TokenExample) -> list[str]:
    """The texts of the runs of tokens that train."""
    runs: list[list[int]] = []
    before = False
    for token, trains in zip(example.completion_ids, example.mask, strict=True):
        if trains and not before:
            runs.append([])
        if trains:
            runs[-1].append(token)
        before = trains
    return [template.decode(run) for run in runs]


@pytest.mark.parametrize("name", NAMES)
def test_one_turn_trains_the_answer_and_its_end_and_nothing_else(name: str) -> None:
    template, family = template_of(name), FAMILIES[name]
    answer = said(template, ANSWER)
    (example,) = chat_examples(template, [QUESTION, answer])
    assert example.prompt_ids == template.encode_prompt(Prompt("p", (QUESTION,)))
    (text,) = trained(template, example)
    assert text.strip().startswith(("The result is 391.", "<think>", "</think>"))
    assert text.endswith(f"The result is 391.{family.end}")
    assert all(example.mask)
    assert example.completion_ids[-1] in template.stop_ids
    if not template.prefill:
        whole = template.render([QUESTION, ANSWER], add_generation_prompt=False)
        assert template.decode((*example.prompt_ids, *example.completion_ids)) in whole


@pytest.mark.parametrize("name", NAMES)
def test_every_turn_or_the_last_one(name: str) -> None:
    template, family = template_of(name), FAMILIES[name]
    chat = [QUESTION, said(template, ANSWER), AGAIN, said(template, SECOND)]
    every = chat_examples(template, chat, "every")
    texts = [text.strip() for each in every for text in trained(template, each)]
    assert [text.removesuffix(family.end)[-4:].strip() for text in texts] == ["391.", "36"]
    (last,) = chat_examples(template, chat, "last")
    assert [text.strip() for text in trained(template, last)] == texts[1:]
    assert last.prompt_ids == template.encode_prompt(Prompt("p", tuple(chat[:3])))
    assert len(every) == (2 if family.after_user == DROPS else 1)
    if len(every) == 1:
        ids = (*every[0].prompt_ids, *every[0].completion_ids)
        assert template.decode(ids) in template.render(chat, add_generation_prompt=False)


@pytest.mark.parametrize("name", [name for name in NAMES if FAMILIES[name].after_user == DROPS])
def test_a_template_that_drops_thinking_gives_every_turn_its_own_example(name: str) -> None:
    template = template_of(name)
    first, second = chat_examples(template, [QUESTION, THOUGHT, AGAIN, said(template, SECOND)])
    (text,) = trained(template, first)
    assert "hm, 391" in text
    assert text.endswith("The result is 391." + FAMILIES[name].end)
    assert "hm, 391" not in template.decode(second.prompt_ids)
    assert "36" in template.decode(second.completion_ids)


def test_a_thinking_tag_that_the_prompt_opens_is_not_trained_twice() -> None:
    template = template_of("deepseek_r1_distill")
    (example,) = chat_examples(template, [QUESTION, THOUGHT])
    whole = template.decode((*example.prompt_ids, *example.completion_ids))
    assert whole.count("<think>") == 1
    assert whole.count("</think>") == 1
    if template.prefill:
        with pytest.raises(ValueError, match="does not close the <think>"):
            chat_examples(template, [QUESTION, {"role": "assistant", "content": "no thought"}])


def test_tools_and_calls_reach_the_template() -> None:
    template = template_of("qwen2_5")
    call = {"function": {"name": "multiply", "arguments": {"a": 17, "b": 23}}}
    chat = [
        QUESTION,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "name": "multiply", "content": "391"},
        ANSWER,
    ]
    (example,) = chat_examples(template, chat, values={"tools": [TOOL]})
    assert chat_examples(template, chat, values={"tools": json.dumps([TOOL])}) == [example]
    first, second = trained(template, example)
    assert '"name": "multiply"' in first
    assert "391" not in first
    assert second == "The result is 391.<|im_end|>"
    assert "Multiplies two numbers" in template.decode(example.prompt_ids)


@pytest.mark.parametrize(
    ("settings", "values", "text"),
    [
        ({}, {"prompt": "2+2?", "completion": "4"}, "4<|im_end|>"),
        ({}, {"prompt": [QUESTION], "completion": [ANSWER]}, "The result is 391.<|im_end|>"),
        ({"chat": False}, {"prompt": "2+2=", "completion": "4"}, "4<|im_end|>"),
        ({"messages": "chat"}, {"chat": [QUESTION, SECOND]}, "36<|im_end|>"),
    ],
)
def test_the_shapes_of_rows(settings: Any, values: Any, text: str) -> None:
    template = template_of("qwen2_5")
    data = ChatData(path="x.jsonl", **settings)
    (example,) = data.examples(Row("x, line 1", values), template, "every")
    assert trained(template, example) == [text]
    if settings.get("chat") is False:
        assert template.decode(example.prompt_ids) == "2+2="


def test_only_the_completion_of_a_row_trains() -> None:
    """A prompt that holds an assistant's turn is context."""
    template = template_of("smollm2")
    values = {"prompt": [QUESTION, ANSWER, AGAIN], "completion": "36"}
    (example,) = ChatData(path="x").examples(Row("x", values), template, "every")
    assert trained(template, example) == ["36<|im_end|>"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"question": "x"}, "has neither 'messages' nor 'prompt' and 'completion'"),
        ({"messages": []}, "give a list of messages"),
        ({"messages": [QUESTION]}, "has no message of the assistant"),
        ({"messages": [ANSWER]}, "begins with the assistant"),
        ({"messages": [QUESTION, {"role": "bot", "content": "x"}]}, "message 2 has the role 'bot'"),
        ({"prompt": "x", "completion": " "}, "has an empty message of the assistant"),
        ({"messages": [QUESTION, ANSWER], "tools": "x"}, "'tools' is 'x', which is not JSON"),
        ({"messages": [QUESTION, ANSWER], "tools": [1]}, "has tools that cannot be read"),
        ({"prompt": 3, "completion": "x"}, "has the prompt 3; give a text or messages"),
    ],
)
def test_rows_that_cannot_be_learned_from(values: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ChatData(path="x").examples(Row("x", values), template_of("smollm2"), "every")


def test_a_template_that_refuses_the_chat_says_so() -> None:
    chat = [QUESTION, {"role": "tool", "content": "x"}, ANSWER]
    with pytest.raises(RecipeError, match="the chat template"):
        chat_examples(template_of("gemma"), chat)
