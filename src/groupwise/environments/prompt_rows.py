"""From a row's columns to a prompt: text or chat, its tools, the gold answer, the other columns."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from groupwise.environments.chat_messages import message_fault
from groupwise.environments.identity import prompt_id
from groupwise.environments.readers import Row
from groupwise.errors import RecipeError
from groupwise.templates import parsed_calls, tool_schemas
from groupwise.texts import from_json
from groupwise.types import Message, Prompt
from groupwise.verifiers import Verifier

if TYPE_CHECKING:
    from groupwise.environments.dataset import DatasetSettings

_ROLE = re.compile(r"""\\*["'](role|from|messages)\\*["']\s*:""")
_CHAT_FIRST = re.compile(
    r"""\s*"?\[?\s*\{\s*\\*["'](role|content|from|value|messages)\\*["']\s*:"""
)
"""The beginning of a chat that was stored as text."""


def prompt_of(row: Row, settings: DatasetSettings, verifier: Verifier) -> Prompt:
    """The prompt of a row that `settings.prepared` returned.

    Raises RecipeError naming row and column.
    """
    if settings.template is not None:
        content: Any = _filled(settings.template, row)
    else:
        content = _stored(_column(row, settings.prompt, "environment.prompt"), row, settings)
    answer = None
    if settings.answer in row.values or verifier.needs_answer or settings.answer != "answer":
        answer = _answer(row, settings)
    columns = {name: value for name, value in row.values.items() if name != settings.prompt}
    messages: tuple[Message, ...] = ()
    text: str | None = None
    if isinstance(content, str) and content.strip():
        if settings.chat or settings.system:
            messages = ({"role": "user", "content": content},)
        else:
            text = content
    else:
        messages = _messages(content, row, settings)
    if settings.system and messages[0].get("role") != "system":
        messages = ({"role": "system", "content": settings.system}, *messages)
    tools = _tools(row, settings)
    if tools and text is not None:
        raise RecipeError(
            f"{row.where}: column {settings.tools_column!r} offers tools, but the prompt is raw "
            'text, which has no place for them; set environment.chat = true, or tools_column = ""'
        )
    id_ = prompt_id(messages, text, answer, tools)
    return Prompt(id_, messages, answer, text, columns, tools)


def _stored(content: Any, row: Row, settings: DatasetSettings) -> Any:
    """The prompt column's value, with a chat that was stored as text turned into messages."""
    if not isinstance(content, str) or not _ROLE.search(content):
        return content
    found = _parsed(content)
    if isinstance(found, str):  # JSON text within JSON text
        found = _parsed(found)
    if found is None and _CHAT_FIRST.match(content):
        raise RecipeError(
            f"{row.where}: column {settings.prompt!r} looks like a chat but is not JSON: "
            f"{content!r:.80}; store messages as a list or as JSON text, or, for a text that only "
            f"looks like one, set environment.template = '{{{settings.prompt}}}'"
        )
    if isinstance(found, Mapping) and found.keys() == {"messages"}:
        return found["messages"]
    if isinstance(found, Mapping):
        found = [found]
    like_a_chat = isinstance(found, list) and all(
        isinstance(each, Mapping) and each.keys() & {"role", "from", "messages"} for each in found
    )
    return found if like_a_chat else content


def _parsed(text: str) -> Any:
    """JSON text, or the Python text that pandas writes into CSV; None if it is neither."""
    try:
        return from_json(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _messages(content: Any, row: Row, settings: DatasetSettings) -> tuple[Message, ...]:
    """A chat's messages. Raises RecipeError if the value is neither a text nor a chat."""
    good = (
        isinstance(content, list)
        and content
        and all(isinstance(each, Mapping) and "role" in each for each in content)
        and all("content" in each or each.get("tool_calls") for each in content)
    )
    if not good:
        raise RecipeError(
            f"{row.where}: column {settings.prompt!r} must be a text that is not empty, or a list "
            f"of messages with role and content; got {content!r:.80}"
        )
    for number, message in enumerate(content, start=1):
        fault = message_fault(message)
        if fault is not None:
            raise RecipeError(
                f"{row.where}: message {number} of column {settings.prompt!r} {fault}"
            )
    if content[-1]["role"] not in ("user", "tool"):
        raise RecipeError(
            f"{row.where}: the last message of column {settings.prompt!r} has the role "
            f"{content[-1]['role']!r}; a prompt ends where the policy is to answer, with a user's "
            "message or a tool's"
        )
    return tuple(parsed_calls(message) for message in content)


def _tools(row: Row, settings: DatasetSettings) -> tuple[Mapping[str, Any], ...]:
    """The schemas in the row's tools column, as the chat template takes them."""
    try:
        return tool_schemas(row.values.get(settings.tools_column))
    except ValueError as error:
        raise RecipeError(
            f"{row.where}: column {settings.tools_column!r} {error}; if it is something else, set "
            'environment.tools_column = ""'
        ) from error


def _column(row: Row, name: str, field: str) -> Any:
    if name not in row.values:
        # Quotes show spaces around a name, as in the header `prompt, answer`.
        shown = (name if name.strip() == name != "" else repr(name) for name in row.values)
        available = ", ".join(shown) or "none"
        raise RecipeError(f"{field} = {name!r}: {row.where} has no such column; it has {available}")
    return row.values[name]


def _answer(row: Row, settings: DatasetSettings) -> Any:
    answer = _column(row, settings.answer, "environment.answer")
    if settings.answer_pattern is None or answer is None:
        return answer
    match = re.search(settings.answer_pattern, str(answer))
    return None if match is None else match.group(1).strip()


def _filled(template: str, row: Row) -> str:
    try:
        return template.format(**row.values)
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        raise RecipeError(
            f"environment.template cannot be filled from {row.where} ({error!r}); columns are "
            f"{', '.join(row.values)}; write a literal brace twice"
        ) from error
