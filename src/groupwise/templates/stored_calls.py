"""Tool calls in stored chats, and the tools of a prompt, as chat templates expect them.

Data sets store a call's arguments as an object or as JSON text; most templates write an object as
JSON, a few (DeepSeek) join text. Each template gets the form that it writes once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from groupwise.texts import from_json
from groupwise.types import Message


def parsed_calls(message: Message) -> dict[str, Any]:
    """The message with the arguments of its tool calls as objects.

    Raises ValueError, to be read after "message 3", for calls that are not valid.
    """
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    if not isinstance(calls, list | tuple):
        raise ValueError(f"has the tool_calls {calls!r:.60}; give a list of calls")
    return {**message, "tool_calls": [_with_object(call) for call in calls]}


def _with_object(call: Any) -> dict[str, Any]:
    inner = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
        raise ValueError(
            f"has the tool call {call!r:.80}; give an object as "
            '{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}'
        )
    arguments = inner.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = from_json(arguments or "{}")
        except ValueError as error:
            raise ValueError(
                f"calls {inner['name']!r} with arguments that are not JSON: {arguments!r:.60}"
            ) from error
    if not isinstance(arguments, Mapping | None):
        raise ValueError(
            f"calls {inner['name']!r} with the arguments {arguments!r:.60}; give an object, as "
            '{"a": 1}'
        )
    return _replaced(call, {} if arguments is None else dict(arguments))


def _replaced(call: Mapping[str, Any], arguments: Any) -> dict[str, Any]:
    if "function" in call:
        return {**call, "function": {**call["function"], "arguments": arguments}}
    return {**call, "arguments": arguments}


def with_text_arguments(message: Message) -> dict[str, Any]:
    """The message of `parsed_calls` with arguments as JSON text."""
    calls = [
        _replaced(call, json.dumps(call.get("function", call)["arguments"], ensure_ascii=False))
        for call in message.get("tool_calls") or ()
    ]
    return {**message, "tool_calls": calls} if calls else dict(message)


def takes_text_arguments(render: Callable[[list[dict[str, Any]]], str]) -> bool:
    """Whether a chat template writes arguments correctly only if they are JSON text.

    `render` renders messages and may raise anything. Found by trying.
    """
    for content in ("", None):  # some templates write calls only if there is no content
        call = {"name": "probe", "arguments": {"probed": 1}}
        whole = {"type": "function", "id": "call00000", "function": call}
        answer = {"role": "assistant", "content": content, "tool_calls": [whole]}
        chat: list[dict[str, Any]] = [{"role": "user", "content": "x"}, answer]
        result = {"role": "tool", "name": "probe", "tool_call_id": "call00000", "content": "1"}
        for messages in (chat, [*chat, result]):
            if _writes(render, messages):
                return False
            if _writes(render, [with_text_arguments(each) for each in messages]):
                return True
    return False


def _writes(render: Callable[[list[dict[str, Any]]], str], messages: list[dict[str, Any]]) -> bool:
    try:
        return '"probed"' in render(messages)
    except Exception:  # noqa: BLE001 (a template may raise anything for a form it does not take)
        return False


def tool_schemas(value: Any) -> tuple[Mapping[str, Any], ...]:
    """The tools of a data row, as JSON schemas that chat templates take.

    `value`: a list of schemas, or its JSON text, or None. A bare `{"name", "parameters"}` gets the
    `{"type": "function", "function": ...}` around it. Raises ValueError for anything else.
    """
    found = _loaded(value)
    if found is None or found == []:
        return ()
    if isinstance(found, Mapping):
        found = [found]
    if not isinstance(found, list | tuple):
        raise ValueError(f"is {value!r:.60}, not a list of tools")
    return tuple(_schema(_loaded(each)) for each in found)


def _loaded(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return from_json(value)
    except ValueError as error:
        raise ValueError(f"is {value!r:.60}, which is not JSON") from error


def _schema(tool: Any) -> Mapping[str, Any]:
    inner = tool.get("function", tool) if isinstance(tool, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
        raise ValueError(
            f"holds {tool!r:.80}; a tool is an object as "
            '{"type": "function", "function": {"name": "add", "parameters": {...}}}'
        )
    return tool if "function" in tool else {"type": "function", "function": dict(inner)}


def offered(messages: Sequence[Message], words: str) -> tuple[Message, ...]:
    """The chat with further words in its system message, which is added if there is none."""
    first, *rest = messages
    if first.get("role") == "system":
        return ({**first, "content": f"{first['content']}\n\n{words}"}, *rest)
    return ({"role": "system", "content": words}, first, *rest)
