"""Tool calls in a completion's text, by model family: found, parsed, or reported as malformed.

A model that describes its own messages (transformers' `response_template`) is read by that; the
styles here are for the families that do not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from groupwise.errors import RecipeError
from groupwise.texts import from_json
from groupwise.types import Message

if TYPE_CHECKING:
    from groupwise.templates.template import Template

FamilyStyle = Literal["hermes", "llama", "mistral", "deepseek", "plain"]
"""How a family writes calls: `<tool_call>` JSON (Hermes, Qwen), one JSON object or
`<|python_tag|>` (Llama 3), `[TOOL_CALLS]` (Mistral), `<｜tool▁call▁begin｜>` (DeepSeek), or, where
a template knows no tools, `<tool_call>` JSON or a fenced JSON object."""
ResponseParser = Callable[[str, Sequence[Mapping[str, Any]]], Mapping[str, Any]]
"""A completion's text and the tools to a message with `content` and `tool_calls`; raises ValueError
or KeyError where the text cannot be read."""
ToolStyle = FamilyStyle | Callable[[str], Mapping[str, Any]]
"""A family's style, or a model's own parser that knows the tools."""

_DECODER = json.JSONDecoder()
_HERMES = re.compile(r"<tool_call>(.*?)(</tool_call>|\Z)", re.DOTALL)
_FENCED = re.compile(r"```(?:json|tool_call)\s*\n(.*?)(```|\Z)", re.DOTALL)
_MISTRAL_NAMED = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\][\w-]*)?\s*(?:\[ARGS\])?\s*(?=\{)")
_DEEPSEEK = re.compile(
    r"<｜tool▁call▁begin｜>(.*?)<｜tool▁sep｜>(.*?)(<｜tool▁call▁end｜>|\Z)", re.DOTALL
)
_WRAPPED = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "[TOOL_CALLS]", "<|python_tag|>")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call. `id` is the model's own, or `call00000` and so on by its place."""

    name: str
    arguments: dict[str, Any]
    id: str = "call00000"


@dataclass(frozen=True, slots=True)
class ParsedCalls:
    """What a completion asks for: whole calls in order, what is wrong with the others, the rest.

    `text` is what stands outside the calls, thinking included, white space stripped.
    """

    calls: tuple[ToolCall, ...] = ()
    errors: tuple[str, ...] = ()
    text: str = ""


class _MalformedError(ValueError):
    """A call that cannot be read; says why."""


def tool_style(template: Template, tools: Sequence[Mapping[str, Any]] = ()) -> ToolStyle:
    """How a model writes calls: its own parser (which needs `tools` to convert arguments), else a
    style chosen by the markers in its chat template or vocabulary."""
    if template.response_parser is not None:
        parser = template.response_parser
        return lambda text: parser(text, tools)
    text = (template.chat_template or "") + "\n".join(template.markers)
    signs: dict[str, FamilyStyle] = {
        "<｜tool▁call▁begin｜>": "deepseek",
        "[TOOL_CALLS]": "mistral",
        "<tool_call>": "hermes",
        "<|python_tag|>": "llama",
    }
    return next((style for sign, style in signs.items() if sign in text), "plain")


def parse_tool_calls(text: str, style: ToolStyle = "plain") -> ParsedCalls:
    """The tool calls in a completion's text. Never raises for what a policy wrote.

    Calls inside a `<think>` section are ignored. A call that was cut off, is not JSON, or has no
    name or no object of arguments becomes an error that can be shown to the policy.

    >>> parse_tool_calls('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>').calls
    (ToolCall(name='add', arguments={'a': 1}, id='call00000'),)
    """
    if callable(style):
        try:
            message = style(text)
        except (ValueError, KeyError, RecursionError) as error:
            return ParsedCalls(errors=(f"tool calls: {error}",), text=text.strip())
        found = list(message.get("tool_calls") or ())
        thinking = "".join(
            f"{value}\n"
            for key, value in message.items()
            if isinstance(value, str) and key not in ("role", "content")
        )
        rest = str(message.get("content") or "")
    elif style in _FINDERS:
        thinking, answer = _apart(text)
        found, rest = _FINDERS[style](answer)
    else:
        raise RecipeError(f"tool style {style!r} is not one of {', '.join(_FINDERS)}")
    calls: list[ToolCall] = []
    errors: list[str] = []
    for number, item in enumerate(found, start=1):
        try:
            calls.append(_call(item, len(calls)))
        except _MalformedError as error:
            errors.append(f"tool call {number}: {error}")
    return ParsedCalls(tuple(calls), tuple(errors), (thinking + rest).strip())


def tool_message(call: ToolCall, content: str) -> Message:
    """A tool's result as a message that every family's template takes."""
    return {"role": "tool", "name": call.name, "tool_call_id": call.id, "content": content}


def renders_tools(template: Template, tools: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the chat template writes `tools` into a prompt; many know no tools at all."""
    if template.chat_template is None:
        return False
    text = template.render([{"role": "user", "content": "x"}], tools=list(tools))
    return all(str(tool.get("function", tool).get("name")) in text for tool in tools)


def tool_instructions(tools: Sequence[Mapping[str, Any]]) -> str:
    """Words for a system message that offer `tools`, where a chat template cannot write them."""
    lines = [json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools]
    return (
        "You can call these tools:\n"
        + "\n".join(lines)
        + '\nTo call one, write <tool_call>{"name": ..., "arguments": {...}}</tool_call> and stop; '
        "its result comes next."
    )


def _apart(text: str) -> tuple[str, str]:
    """Thinking, and what follows it; a section that was never closed is all thinking."""
    end = text.rfind("</think>")
    if end >= 0:
        end += len("</think>")
        return text[:end], text[end:]
    start = text.find("<think>")
    return (text[start:], text[:start]) if start >= 0 else ("", text)


def _hermes(text: str) -> tuple[list[Any], str]:
    found = list(_HERMES.finditer(text))
    return [_loads(each[1], each[2]) for each in found], _HERMES.sub("", text)


def _plain(text: str) -> tuple[list[Any], str]:
    if "<tool_call>" in text:
        return _hermes(text)
    found = [each for each in _FENCED.finditer(text) if '"name"' in each[1]]
    if found:
        rest = text
        for each in found:
            rest = rest.replace(each[0], "")
        return [_loads(each[1], each[2]) for each in found], rest
    return _whole(text)


def _llama(text: str) -> tuple[list[Any], str]:
    before, marked, after = text.partition("<|python_tag|>")
    if not marked:
        return _whole(text)
    items, _ = _objects(after)
    return items or [_loads(after)], before


def _whole(text: str) -> tuple[list[Any], str]:
    """A text that is nothing but JSON objects with a name, `;` or new lines between them."""
    if not re.match(r"\s*\{\s*\"(?:name|type|function)\"", text):
        return [], text
    items, rest = _objects(text)
    return (items, "") if items and not rest else ([_loads(text)], "")


def _mistral(text: str) -> tuple[list[Any], str]:
    before, *parts = text.split("[TOOL_CALLS]")
    items: list[Any] = []
    for part in parts:
        named = _MISTRAL_NAMED.match(part)
        if named:
            items.append(_with_name(named[1], _loads(part[named.end() :])))
            continue
        value = _loads(part)
        items.extend(value if isinstance(value, list) else [value])
    return items, before


def _deepseek(text: str) -> tuple[list[Any], str]:
    items: list[Any] = []
    for kind, body, closed in _DEEPSEEK.findall(text):
        name, fenced, rest = body.partition("```json")
        if not fenced:  # the newer form: the name before the separator, bare JSON behind it
            name, rest = kind, body
        items.append(_with_name(name.strip(), _loads(rest.replace("```", ""), closed)))
    rest = _DEEPSEEK.sub("", text)
    for mark in _WRAPPED:
        rest = rest.replace(mark, "")
    return items, rest


# A text to its calls, each as JSON or as the error why it cannot be read, and the rest of it.
_FINDERS: dict[str, Callable[[str], tuple[list[Any], str]]] = {
    "hermes": _hermes,
    "llama": _llama,
    "mistral": _mistral,
    "deepseek": _deepseek,
    "plain": _plain,
}


def _with_name(name: str, arguments: Any) -> Any:
    wrong = isinstance(arguments, _MalformedError)
    return arguments if wrong else {"name": name, "arguments": arguments}


def _loads(text: str, closed: str = "x") -> Any:
    """The JSON in a text, or the error why not; `closed` is the closing mark, empty without it."""
    try:
        return from_json(text)
    except ValueError as error:
        if not closed:
            return _MalformedError("it is not closed: the completion ended inside it")
        return _MalformedError(f"not JSON ({error})")
    except RecursionError:
        return _MalformedError("JSON nested too deeply")


def _objects(text: str) -> tuple[list[Any], str]:
    """The JSON objects at the front of a text, and what is left behind them."""
    items: list[Any] = []
    rest = text.strip()
    while rest.startswith("{"):
        try:
            value, end = _DECODER.raw_decode(rest)
        except ValueError:
            break
        items.append(value)
        rest = rest[end:].lstrip(" \n\t;")
    return items, rest


def _call(value: Any, place: int) -> ToolCall:
    """A call from its JSON, with or without OpenAI's `function` around it."""
    if isinstance(value, _MalformedError):
        raise value
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = {**value["function"], "id": value.get("id")}
    if not isinstance(value, dict):
        raise _MalformedError(f"{value!r:.40} is not an object with a name and arguments")
    name = value.get("name", value.get("function"))
    if not isinstance(name, str) or not name:
        raise _MalformedError('it has no "name"')
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _loads(arguments)
    if isinstance(arguments, _MalformedError):
        raise arguments
    if not isinstance(arguments, dict):
        raise _MalformedError(f'"arguments" of {name!r} must be an object, not {arguments!r:.40}')
    own = value.get("id")
    return ToolCall(name, arguments, own if isinstance(own, str) and own else f"call{place:05d}")
