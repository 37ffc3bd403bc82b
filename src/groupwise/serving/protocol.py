"""The OpenAI API's requests in this project's words, and its answers and errors.

What a request may hold is the list here; anything else is refused by name, with the error that
clients of the API expect.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from groupwise.environments.chat_messages import message_fault
from groupwise.suggestions import nearest
from groupwise.templates import parsed_calls, tool_schemas
from groupwise.texts import from_json
from groupwise.types import LEAST_TEMPERATURE, Message

MOST_CHOICES = 128
"""Choices of one request at most."""


class ApiError(Exception):
    """A refused request: HTTP status, message, and the field and code that clients look at."""

    def __init__(
        self, message: str, *, status: int = 400, code: str = "invalid_value", param: str = ""
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param

    @property
    def body(self) -> dict[str, Any]:
        kinds = {401: "authentication_error", 500: "server_error"}
        return {
            "error": {
                "message": str(self),
                "type": kinds.get(self.status, "invalid_request_error"),
                "param": self.param or None,
                "code": self.code,
            }
        }


@dataclass(frozen=True, slots=True)
class History:
    """What a completion follows: messages of a chat with its tools, a text, or ids.

    >>> (History("ab") + "c").content
    'abc'
    """

    content: tuple[Message, ...] | str | tuple[int, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    is_chat: bool = False

    def __add__(self, more: Any) -> History:
        return History(self.content + more, self.tools, self.is_chat)

    def __len__(self) -> int:
        return len(self.content)

    def after(self, other: History) -> Any:
        """What follows `other`, of the content's type; None where this does not begin with it."""
        same = type(self.content) is type(other.content) and self.is_chat == other.is_chat
        begun = same and self.content[: len(other)] == other.content
        return self.content[len(other) :] if begun and self.tools == other.tools else None


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. `calls`: whether calls of its tools are read from the completion."""

    history: History
    model: str
    n: int = 1
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    calls: bool = False
    logprobs: bool = False
    stream: bool = False
    usage: bool = False

    @property
    def is_chat(self) -> bool:
        return self.history.is_chat


@dataclass(frozen=True, slots=True)
class Choice:
    """One sampled answer: a chat's message, or the text alone."""

    message: Message
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    tokens: tuple[tuple[str, float], ...] = ()
    """Texts and log-probabilities, where they were asked for."""


# --- requests ------------------------------------------------------------------------------------

_IGNORED: dict[str, type] = {
    "user": str,
    "metadata": dict,
    "safety_identifier": str,
    "prompt_cache_key": str,
    "stream_options": dict,
}
"""Fields that say nothing about the completion, with the type that each must have."""
_KINDS = {str: "a text", dict: "an object", list: "a list", bool: "true or false"}
_ONLY: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "store": (False,),
    "service_tier": ("auto", "default"),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "parallel_tool_calls": (True,),
    "response_format": ({"type": "text"},),
    "tool_choice": ("auto", "none"),
    "top_logprobs": (0,),
    "modalities": (["text"],),
}
"""Fields with the values that change nothing here; any other value is refused."""
_READ = (
    "model", "messages", "prompt", "tools", "n", "max_tokens", "max_completion_tokens", "stop",
    "temperature", "top_p", "seed", "logprobs", "stream",
)  # fmt: skip


def read_body(body: bytes) -> Any:
    """The JSON of a request's body. Raises ApiError; also for half of a surrogate pair anywhere in
    it, which neither a tokenizer nor an answer can hold."""
    try:
        value = from_json(body)
        if b"\\ud" in body.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise ApiError(f"the body holds {half!r}, half of a surrogate pair") from error
    except ValueError as error:
        raise ApiError(f"the body is not JSON: {error}", code="invalid_json") from error
    return value


def read_request(body: Any, models: Sequence[str], *, chat: bool) -> Asked:
    """A request's JSON as `Asked`. Raises ApiError for what is not supported, by name."""
    if not isinstance(body, Mapping):
        raise ApiError(f"the body is {body!r:.60}; give a JSON object")
    given = {name: value for name, value in body.items() if value is not None}
    _check_fields(given, "messages" if chat else "prompt")
    _of_kind(given.get("tools", []), list, "tools")
    model = known_model(given.get("model"), models)
    usage = given.get("stream_options", {}).get("include_usage")
    stop = given.get("stop", [])
    logprobs = given.get("logprobs", False)
    if not isinstance(logprobs, bool) if chat else logprobs is not False and not _is(logprobs, 0):
        legal = "true or false" if chat else "0, for those of the sampled tokens alone"
        raise ApiError(f"logprobs = {logprobs!r:.60}; give {legal}", param="logprobs")
    asked = Asked(
        history=_chat(given) if chat else _raw(given["prompt"]),
        model=model,
        n=_number(given, "n", int, 1, MOST_CHOICES) or 1,
        max_tokens=_number(given, "max_completion_tokens", int, 1, None)
        or _number(given, "max_tokens", int, 1, None),
        stop=tuple(stop) if isinstance(stop, list) else (stop,),
        temperature=_number(given, "temperature", float, 0.0, None),
        top_p=_number(given, "top_p", float, 0.0, 1.0),
        seed=_number(given, "seed", int, None, None),
        calls=bool(given.get("tools")) and given.get("tool_choice") != "none",
        logprobs=logprobs is not False,
        stream=_of_kind(given.get("stream", False), bool, "stream"),
        usage=usage is not None and _of_kind(usage, bool, "stream_options.include_usage"),
    )
    if not all(isinstance(each, str) and each for each in asked.stop):
        raise ApiError(f"stop = {stop!r:.60}; give texts of at least one character", param="stop")
    if asked.top_p == 0:
        raise ApiError("top_p = 0; give more, or temperature = 0", param="top_p")
    if asked.temperature is not None and 0 < asked.temperature < LEAST_TEMPERATURE:
        raise ApiError(
            f"temperature = {asked.temperature}; give 0, or {LEAST_TEMPERATURE} or more",
            param="temperature",
        )
    return asked


def known_model(name: Any, models: Sequence[str]) -> str:
    """The name, where it is one of the models'. Raises ApiError."""
    if name not in models:
        raise ApiError(
            f"model = {name!r:.60}: there is no such model; give {models[0]!r}",
            status=404,
            code="model_not_found",
            param="model",
        )
    return str(name)


def _check_fields(given: Mapping[str, Any], content: str) -> None:
    for name, value in given.items():
        if name in _IGNORED:
            _of_kind(value, _IGNORED[name], name)
        if name in (*_READ, *_IGNORED) or any(_is(value, each) for each in _ONLY.get(name, ())):
            continue
        if name in _ONLY:
            legal = " or ".join(json.dumps(each) for each in _ONLY[name])
            raise ApiError(
                f"{name} = {value!r:.60} is not supported; give {legal}, or leave it out",
                code="unsupported_value",
                param=name,
            )
        near = nearest(name, [*_READ, *_ONLY])
        hint = f"; did you mean {near!r}?" if near else ""
        raise ApiError(f"{name!r} is not supported{hint}", code="unsupported_parameter", param=name)
    if content not in given:
        raise ApiError(f"{content} is missing", code="missing_required_parameter", param=content)


def _is(value: Any, legal: Any) -> bool:
    """Equal, and not a number in place of true or false."""
    return bool(value == legal) and isinstance(value, bool) == isinstance(legal, bool)


def _of_kind(value: Any, kind: type, name: str) -> Any:
    if not isinstance(value, kind):
        raise ApiError(f"{name} = {value!r:.60}; give {_KINDS[kind]}", param=name)
    return value


def _number(
    given: Mapping[str, Any], name: str, kind: type, low: float | None, high: float | None
) -> Any:
    value = given.get(name)
    if value is None:
        return None
    right = isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)
    right = right and (kind is int or abs(value) <= sys.float_info.max)  # neither NaN nor infinite
    if not right or not (low is None or value >= low) or not (high is None or value <= high):
        bounds = f" from {low} on" if high is None else f" from {low} to {high}"
        word = "a whole number" if kind is int else "a number"
        raise ApiError(
            f"{name} = {value!r:.60}; give {word}{'' if low is None else bounds}", param=name
        )
    return value


def _chat(given: Mapping[str, Any]) -> History:
    messages = given["messages"]
    if not isinstance(messages, list) or not messages:
        raise ApiError(
            f"messages = {messages!r:.60}; give a list of at least one message", param="messages"
        )
    try:
        tools = tool_schemas(given.get("tools"))
    except ValueError as error:
        raise ApiError(f"tools {error}", param="tools") from error
    history = History(tuple(read_messages(messages)), tools, is_chat=True)
    if messages[-1].get("role") == "assistant":
        raise ApiError(
            "messages: the last one is the assistant's own; end with one of another role",
            param="messages",
        )
    return history


def read_messages(messages: Sequence[Any]) -> Iterator[Message]:
    """Messages as chat templates take them, equal however a client writes them. Raises ApiError.

    >>> text = [{"type": "text", "text": "7"}]
    >>> list(read_messages([{"role": "assistant", "content": text, "refusal": None}]))
    [{'role': 'assistant', 'content': '7'}]
    """
    names: dict[str, str] = {}
    for number, message in enumerate(messages, start=1):
        where = f"messages: message {number}"
        if not isinstance(message, Mapping):
            raise ApiError(f"{where} is {message!r:.60}; give an object", param="messages")
        role = "system" if message.get("role") == "developer" else message.get("role")
        content = _text(message.get("content"), where)
        found: dict[str, Any] = {"role": role, "content": content}
        try:
            calls = parsed_calls({"tool_calls": message.get("tool_calls")}).get("tool_calls")
        except ValueError as error:
            raise ApiError(f"{where} {error}", param="messages") from error
        if role == "assistant":
            found["content"] = content.strip()  # clients strip it; it is the same message
        if calls:
            found["tool_calls"] = [_call(call) for call in calls]
            names.update((call["id"], call["function"]["name"]) for call in found["tool_calls"])
        if role == "tool":
            call_id = str(message.get("tool_call_id", ""))
            found |= {"tool_call_id": call_id, "name": names.get(call_id, message.get("name", ""))}
        fault = message_fault(found)
        if fault is not None:
            raise ApiError(f"{where} {fault}", param="messages")
        yield found


def _text(content: Any, where: str) -> str:
    """The content as one text."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    if not all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in parts):
        raise ApiError(
            f"{where} has the content {content!r:.60}; give a text, or parts of the type text",
            param="messages",
        )
    return "".join(part["text"] for part in parts)


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    inner = call.get("function", call)
    function = {"name": inner["name"], "arguments": inner["arguments"]}
    return {"type": "function", "id": str(call.get("id", "")), "function": function}


def _raw(prompt: Any) -> History:
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    is_ids = isinstance(prompt, list) and all(type(each) is int and each >= 0 for each in prompt)
    if not prompt or not (isinstance(prompt, str) or is_ids):
        raise ApiError(
            f"prompt = {prompt!r:.60}; give one text, or one list of token ids", param="prompt"
        )
    return History(prompt if isinstance(prompt, str) else tuple(prompt))


# --- answers -------------------------------------------------------------------------------------


def answer(asked: Asked, choices: Sequence[Choice]) -> dict[str, Any]:
    """The JSON of a whole answer."""
    kind = "chat.completion" if asked.is_chat else "text_completion"
    return {
        **_head(asked, kind),
        "choices": [
            {
                "index": index,
                **({"message": _sent(c)} if asked.is_chat else {"text": c.message["content"]}),
                "finish_reason": c.finish_reason,
                "logprobs": _logprobs(asked, c),
            }
            for index, c in enumerate(choices)
        ],
        "usage": _usage(choices),
    }


def chunks(asked: Asked, choices: Sequence[Choice]) -> Iterator[str]:
    """The answer as server-sent events: every choice whole, then its finish reason."""
    head = _head(asked, "chat.completion.chunk" if asked.is_chat else "text_completion")

    def event(index: int, delta: Mapping[str, Any], **more: Any) -> str:
        inner = {"delta": delta} if asked.is_chat else {"text": delta.get("content", "")}
        choice = {"index": index, **inner, "finish_reason": None, "logprobs": None, **more}
        return _event({**head, "choices": [choice]})

    for index, each in enumerate(choices):
        delta = _sent(each)
        for number, call in enumerate(delta.get("tool_calls", ())):
            call["index"] = number
        yield event(index, delta, logprobs=_logprobs(asked, each))
        yield event(index, {}, finish_reason=each.finish_reason)
    if asked.usage:
        yield _event({**head, "choices": [], "usage": _usage(choices)})
    yield "data: [DONE]\n\n"


def _event(value: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def _head(asked: Asked, kind: str) -> dict[str, Any]:
    name = "chatcmpl" if asked.is_chat else "cmpl"
    stamp = {"id": f"{name}-{uuid.uuid4().hex}", "created": int(datetime.now(UTC).timestamp())}
    return {**stamp, "object": kind, "model": asked.model}


def _sent(choice: Choice) -> dict[str, Any]:
    """The message with its calls' arguments as JSON text."""
    message = dict(choice.message)
    if "tool_calls" in message:
        message["content"] = message["content"] or None
        message["tool_calls"] = [
            {**call, "function": {**call["function"],
                                  "arguments": json.dumps(call["function"]["arguments"])}}
            for call in message["tool_calls"]
        ]  # fmt: skip
    return message


def _logprobs(asked: Asked, choice: Choice) -> dict[str, Any] | None:
    if not asked.logprobs:
        return None
    if not asked.is_chat:
        return {"tokens": [token for token, _ in choice.tokens], "top_logprobs": None,
                "token_logprobs": [value for _, value in choice.tokens]}  # fmt: skip
    return {
        "content": [
            {"token": token, "logprob": value, "bytes": list(token.encode()), "top_logprobs": []}
            for token, value in choice.tokens
        ]
    }


def _usage(choices: Sequence[Choice]) -> dict[str, int]:
    prompt = choices[0].prompt_tokens
    completion = sum(choice.completion_tokens for choice in choices)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
