"""Checks chat messages: of a data row, of a user-defined prompt, of an episode's answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from groupwise.templates import parsed_calls
from groupwise.types import Message

ROLES = ("system", "user", "assistant", "tool")
"""The roles a chat's messages may have."""
_EXAMPLE = '[{"role": "user", "content": "Go on."}]'


def message_fault(message: Any) -> str | None:
    """What is wrong with a message and a legal value, as `has the role 'bot'; ...`; None if valid.

    >>> message_fault({"role": "bot", "content": "Hi."})
    "has the role 'bot'; legal: system, user, assistant, tool"
    """
    if not isinstance(message, Mapping):
        return f"is {message!r:.60}, a {type(message).__name__}; give a dict with role and content"
    if "role" not in message:
        names = ", ".join(map(str, message)) or "nothing"
        return f"has no role, only {names:.80}; legal: {', '.join(ROLES)}"
    if message["role"] not in ROLES:
        return f"has the role {message['role']!r:.60}; legal: {', '.join(ROLES)}"
    try:
        parsed_calls(message)
    except ValueError as error:
        return str(error)
    content = message.get("content")
    if isinstance(content, str) or (content is None and message.get("tool_calls")):
        return None
    if "content" not in message:
        return "has no content; give a text"
    return f"has the content {content!r:.60}; give a text"


def answer_messages(answer: Any) -> list[Message]:
    """The messages that `Episode.next` returned. Raises ValueError if they are not valid."""
    if not isinstance(answer, list | tuple) or not answer:
        empty = isinstance(answer, list | tuple)
        given = "an empty list" if empty else f"{answer!r:.60}, a {type(answer).__name__}"
        raise ValueError(
            f"`next` returned {given}; give a list of messages, as {_EXAMPLE}, or None to end the "
            "rollout"
        )
    for number, message in enumerate(answer, start=1):
        fault = message_fault(message)
        if fault is not None:
            raise ValueError(f"message {number} that `next` returned {fault}")
    return [dict(message) for message in answer]
