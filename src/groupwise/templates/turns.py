"""Extends a sampled completion by the next turn's ids, and detects templates that rewrite history.

History grows by concatenation: context ids + sampled ids + the ids from `follow_up`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from groupwise.errors import RecipeError
from groupwise.types import Message

if TYPE_CHECKING:
    from groupwise.templates.template import Template

STAND_IN = "groupwiseStandIn"
"""A word that stands for a text in a chat, to find where a template puts that text."""
_OPEN_THINK = re.compile(r"<(?!/)[^<>\s]*(?:think|thought|reason)[^<>\s/]*>\s*\Z", re.IGNORECASE)


def opened_tag(text: str) -> str:
    """The thinking tag that the end of a prompt opens, with the space behind it; else empty."""
    found = _OPEN_THINK.search(text)
    return found.group(0) if found else ""


def follow_up(
    template: Template,
    completion_ids: Sequence[int],
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool,
    **variables: Any,
) -> tuple[int, ...]:
    """The ids of `Template.continuation`."""
    if not messages:
        raise ValueError("a continuation needs at least one message")
    apart: dict[str, str] = {}
    shown: list[Message] = []
    for number, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, str) and any(marker in content for marker in template.markers):
            apart[name := f"{STAND_IN}{number}x"] = content
            message = {**message, "content": name}
        shown.append(message)
    # What a template writes behind an answer does not depend on what was said before it.
    chat = [{"role": "user", "content": "x"}, {"role": "assistant", "content": STAND_IN}]
    text = template.render(
        [*chat, *shown], add_generation_prompt=add_generation_prompt, **variables
    )
    behind = text.partition(STAND_IN)[2]
    _check_included(shown, behind)
    if completion_ids and completion_ids[-1] in template.stop_ids:
        closing = template.encode(behind.lstrip())
        if closing and closing[0] in (completion_ids[-1], template.turn_end_id):
            behind = behind.lstrip().removeprefix(template.decode(closing[:1]))
    return _encode_pieces(template, behind, apart)


def rewriting(template: Template, role: str, system: bool, **variables: Any) -> str | None:
    """What `Template.rewrites` says."""
    first: list[Message] = [{"role": "user", "content": "x"}]
    if system:
        first.insert(0, {"role": "system", "content": "z"})
    last: Message = {"role": role, "content": "ending", "name": "f", "tool_call_id": "call00000"}
    prompt = template.render(first, **variables)
    thinking = f"{STAND_IN}\n</think>\n\n{STAND_IN}"
    tried = (thinking,) if opened_tag(prompt) else (STAND_IN, f"<think>\n{thinking}")
    for completion in tried:
        answer: Message = {"role": "assistant", "content": completion}
        text = template.render([*first, answer, last], **variables)
        _check_included([last], text)
        if text.startswith(prompt + completion):
            continue
        if text.count(STAND_IN) == completion.count(STAND_IN):
            return "writes an earlier completion, or what stands before it, differently"
        return "drops the thinking of an earlier completion"
    return None


def _check_included(messages: Sequence[Message], text: str) -> None:
    """Raises RecipeError if a message is missing from the text: some templates skip roles."""
    for message in messages:
        content = message.get("content")
        if not isinstance(content, str):
            continue
        if content.strip() not in text and json.dumps(content)[1:-1] not in text:
            raise RecipeError(
                f"messages: the chat template skips a message with the role "
                f"{message.get('role')!r}; use a model whose template supports it"
            )


def _encode_pieces(template: Template, text: str, apart: Mapping[str, str]) -> tuple[int, ...]:
    """The ids of a text in which each key of `apart` stands for a text without markers.

    A tool may return a text that looks like an end marker; it must not end a turn.
    """
    for name, content in apart.items():
        before, found, after = text.partition(name)
        if found:
            rest = {key: value for key, value in apart.items() if key != name}
            plain = template.encode(content, markers=False)
            return template.encode(before) + plain + _encode_pieces(template, after, rest)
    return template.encode(text)
