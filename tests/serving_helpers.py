"""A chat template on a tokenizer whose texts have many encodings, and samplers that use another
one than `encode` would: whoever encodes sampled text again gets other ids."""

from __future__ import annotations

from typing import Any

from groupwise.examples.tiny_models import TOOLS_TEMPLATE
from groupwise.templates import Template
from groupwise.types import Message, Request
from toy_tokenizers import byte_bpe

SPECIAL = ("<|bos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
CALL = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
ADD = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {}}},
}


def make_template() -> Template:
    """Text is merged into long tokens by `encode`."""
    texts = ["the answer is seven " * 4, CALL * 4, "go on 12 34 <|user|>"]
    tokenizer = byte_bpe(texts, merges=60, special=SPECIAL)
    tokens = {"bos_token": "<|bos|>", "eos_token": "<|end|>"}
    return Template(tokenizer, TOOLS_TEMPLATE, special_tokens=tokens)


def letters(template: Template, text: str, *, ends: bool = True) -> tuple[int, ...]:
    """The ids of a text letter by letter, and the end of the turn."""
    ids = [i for letter in text for i in template.encode(letter)]
    return (*ids, *(template.encode("<|end|>") if ends else ()))


class Lettered:
    """A script of replies in turn, written letter by letter; keeps the requests."""

    def __init__(self, template: Template, *replies: str) -> None:
        self.template, self.replies = template, replies
        self.requests: list[Request] = []

    def __call__(self, request: Request, place: int) -> tuple[int, ...]:
        self.requests.append(request)
        reply = self.replies[(len(self.requests) - 1) % len(self.replies)]
        return letters(self.template, reply)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def chat(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": "policy", "messages": list(messages), **more}
