"""Tool calls by family: as the templates write them, parsed back; malformed ones named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from families import FAMILIES, TOOL, template_of
from transformers import LlamaConfig, LlamaForCausalLM

from groupwise.errors import RecipeError
from groupwise.policies import load_policy
from groupwise.templates import (
    ParsedCalls,
    Template,
    ToolCall,
    parse_tool_calls,
    renders_tools,
    tool_instructions,
    tool_message,
    tool_style,
)

MULTIPLY = ToolCall("multiply", {"a": 17, "b": 23})
STYLES = {
    "smollm2": "plain",
    "llama3": "llama",
    "llama3_1": "llama",
    "llama3_2": "llama",
    "hermes_3": "hermes",
    "mistral_nemo": "mistral",
    "qwen2_5": "hermes",
    "qwen3": "hermes",
    "gemma": "plain",
    "phi3_5": "plain",
    "deepseek_r1_distill": "deepseek",
}


def test_styles_and_whether_tools_are_written() -> None:
    assert {name: tool_style(template_of(name)) for name in FAMILIES} == STYLES
    written = {name for name in FAMILIES if renders_tools(template_of(name), [TOOL])}
    assert written == {name for name, family in FAMILIES.items() if family.tools}
    assert not renders_tools(template_of("gemma"), [TOOL])
    assert '"name": "multiply"' in tool_instructions([TOOL])


@pytest.mark.parametrize("name", [n for n in FAMILIES if FAMILIES[n].tools])
def test_what_a_template_writes_as_a_call_is_parsed_back(name: str) -> None:
    template = template_of(name)
    function = {"name": "multiply", "arguments": {"a": 17, "b": 23}}
    call = {"type": "function", "id": "call00000", "function": function}
    user = {"role": "user", "content": "What is 17 times 23?"}
    answer: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [call]}
    prompt = template.render([user])
    text = template.render([user, answer], add_generation_prompt=False)
    start = len(prompt.rstrip()) if name == "hermes_3" else len(prompt)
    if name == "qwen3":
        assert text[start:].startswith("<think>\n\n</think>\n\n")
    written = template.decode_completion(template.encode(text[start:]))
    parsed = parse_tool_calls(written, tool_style(template))
    assert (parsed.calls, parsed.errors) == ((MULTIPLY,), ())


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("hermes", '<tool_call>{"arguments": {"a": 17, "b": 23}, "name": "multiply"}</tool_call>'),
        ("hermes", '<tool_call>{"name": "multiply", "arguments": "{\\"a\\": 17, \\"b\\": 23}"}'),
        ("llama", '{"name": "multiply", "parameters": {"a": 17, "b": 23}}'),
        ("llama", '<|python_tag|>{"name": "multiply", "parameters": {"a": 17, "b": 23}}'),
        ("mistral", '[TOOL_CALLS] [{"name": "multiply", "arguments": {"a": 17, "b": 23}}]'),
        ("mistral", '[TOOL_CALLS]multiply[ARGS]{"a": 17, "b": 23}'),
        ("mistral", '[TOOL_CALLS]multiply{"a": 17, "b": 23}'),
        (
            "deepseek",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>multiply\n```json\n"
            '{"a": 17, "b": 23}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        ),
        (
            "deepseek",
            '<｜tool▁call▁begin｜>multiply<｜tool▁sep｜>{"a": 17, "b": 23}<｜tool▁call▁end｜>',
        ),
        ("plain", 'See.\n```json\n{"name": "multiply", "arguments": {"a": 17, "b": 23}}\n```'),
        ("plain", '<tool_call>{"name": "multiply", "arguments": {"a": 17, "b": 23}}</tool_call>'),
        ("plain", '{"type": "function", "function": {"name": "multiply", '
                  '"arguments": {"a": 17, "b": 23}}}'),
    ],
)  # fmt: skip
def test_every_form_of_a_call(style: Any, text: str) -> None:
    parsed = parse_tool_calls(text, style)
    assert parsed.calls == (MULTIPLY,)
    assert parsed.errors == ()
    assert "multiply" not in parsed.text


def test_several_calls_keep_their_order_and_the_text_around_them() -> None:
    text = 'One.<tool_call>{"name": "f"}</tool_call>Two.<tool_call>{"name": "g"}</tool_call>'
    parsed = parse_tool_calls(text, "hermes")
    assert parsed.calls == (ToolCall("f", {}, "call00000"), ToolCall("g", {}, "call00001"))
    assert parsed.text == "One.Two."
    two = parse_tool_calls('{"name": "f"}; {"name": "g"}', "llama").calls
    assert [call.name for call in two] == ["f", "g"]
    own = '[TOOL_CALLS][{"name": "f", "arguments": {}, "id": "abcdefghi"}]'
    assert parse_tool_calls(own, "mistral").calls == (ToolCall("f", {}, "abcdefghi"),)
    assert tool_message(two[1], "8") == {
        "role": "tool",
        "name": "g",
        "tool_call_id": "call00001",
        "content": "8",
    }


@pytest.mark.parametrize(
    ("text", "style", "error"),
    [
        ('<tool_call>{"name": "f", "argum', "hermes", "it is not closed"),
        ("<tool_call>{name: f}</tool_call>", "hermes", "not JSON"),
        ('<tool_call>{"arguments": {}}</tool_call>', "hermes", 'it has no "name"'),
        ('<tool_call>["f"]</tool_call>', "hermes", "is not an object with a name"),
        (
            '<tool_call>{"name": "f", "arguments": 3}</tool_call>',
            "hermes",
            "must be an object, not 3",
        ),
        ('{"name": "f", "parameters": {', "llama", "not JSON"),
        ("<|python_tag|>f.call(a=3)", "llama", "not JSON"),
        ('[TOOL_CALLS] [{"name": "f"', "mistral", "not JSON"),
        ("<｜tool▁call▁begin｜>f<｜tool▁sep｜>{", "deepseek", "it is not closed"),
    ],
)
def test_a_malformed_call_is_named(text: str, style: Any, error: str) -> None:
    parsed = parse_tool_calls(text, style)
    assert parsed.calls == ()
    assert len(parsed.errors) == 1
    assert parsed.errors[0].startswith("tool call 1: ")
    assert error in parsed.errors[0]


def test_a_good_call_beside_a_bad_one() -> None:
    parsed = parse_tool_calls('<tool_call>x</tool_call><tool_call>{"name": "f"}</tool_call>')
    assert [call.name for call in parsed.calls] == ["f"]
    assert [error.split(":")[0] for error in parsed.errors] == ["tool call 1"]


@pytest.mark.parametrize("style", ["hermes", "llama", "mistral", "deepseek", "plain"])
def test_an_answer_without_calls(style: Any) -> None:
    for text in ("The result is 391.", "", 'A set: {1, 2}. {"x": 1}'):
        assert parse_tool_calls(text, style) == ParsedCalls(text=text)


def test_what_is_only_thought_is_no_call() -> None:
    call = '<tool_call>{"name": "f"}</tool_call>'
    assert parse_tool_calls(f"<think>{call}</think>So.").calls == ()
    assert parse_tool_calls(f"{call}</think>So.").calls == ()
    assert parse_tool_calls(f"<think>{call}").calls == ()
    assert parse_tool_calls(f"<think>hm</think>{call}").calls == (ToolCall("f", {}),)
    assert parse_tool_calls(f"<think>hm</think>a{call}").text == "<think>hm</think>a"


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(RecipeError, match="tool style 'x' is not one of hermes, llama"):
        parse_tool_calls("", "x")  # type: ignore[arg-type]


XML_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>", "content": "text"},
        "tool_calls": {
            "open_pattern": r"\s*<call>\s*<function=(?P<name>[^>]+)>",
            "close_pattern": r"</function>\s*</call>",
            "repeats": True,
            "content": "xml-inline",
            "content_args": {"tag_pattern": "<parameter=(?P<key>[^>]+)>(?P<value>.*?)</parameter>"},
            "transform": {
                "type": "function",
                "function": {"name": "{name}", "arguments": "{content}"},
            },
        },
        "content": {"content": "text"},
    },
}


@pytest.fixture
def described(tmp_path: Path) -> Template:
    """The template of a loaded model that describes its own messages, as XML."""
    template = template_of("qwen3")
    folder = tmp_path / "described"
    folder.mkdir()
    template.tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"chat_template": template.chat_template, "response_template": XML_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = LlamaConfig(
        vocab_size=template.vocab_size, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=1,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return load_policy(str(folder)).template


def test_a_model_that_describes_its_messages_is_read_by_that(described: Template) -> None:
    style = tool_style(described, [TOOL])
    call = "<call><function=multiply><parameter=a>17</parameter></function></call>"
    parsed = parse_tool_calls(f"<think>hm</think>So: {call} {call}", style)
    assert parsed.calls == (
        ToolCall("multiply", {"a": 17}, "call00000"),
        ToolCall("multiply", {"a": 17}, "call00001"),
    )
    assert (parsed.errors, parsed.text) == ((), "hm\nSo:")
    untyped = parse_tool_calls(call, tool_style(described)).calls
    assert untyped == (ToolCall("multiply", {"a": "17"}),)
    assert parse_tool_calls(f"<think>{call}", style).calls == ()
    assert parse_tool_calls("just text", style) == ParsedCalls(text="just text")
    again = described.with_variables({"enable_thinking": False})
    assert parse_tool_calls(call, tool_style(again, [TOOL])).calls[0].arguments == {"a": 17}


def test_what_that_description_cannot_read_is_an_error(described: Template) -> None:
    def style(text: str) -> dict[str, Any]:
        raise ValueError(f"no JSON: {text}")

    assert parse_tool_calls("x", style) == ParsedCalls((), ("tool calls: no JSON: x",), "x")
    message = {"content": "x", "tool_calls": [{"function": {"name": 3}}]}
    assert parse_tool_calls("x", lambda _: message).errors == ('tool call 1: it has no "name"',)


def test_a_wrong_description_is_refused(described: Template, tmp_path: Path) -> None:
    file = tmp_path / "described" / "tokenizer_config.json"
    file.write_text(json.dumps({"response_template": {"fields": {}}}))
    with pytest.raises(RecipeError, match=r"response_template in tokenizer_config\.json: .*fields"):
        load_policy(str(file.parent))
