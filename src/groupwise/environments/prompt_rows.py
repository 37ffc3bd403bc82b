"""From a row's columns to a prompt: text or chat, gold answer, everything else kept aligned.

Left out: where rows come from (readers.py) and what is checked over all of them (dataset.py).
"""

from __future__ import annotations

import re
from typing import Any

from groupwise.environments.chat_messages import message_fault
from groupwise.environments.dataset_settings import DatasetSettings
from groupwise.environments.identity import prompt_id
from groupwise.environments.readers import Row
from groupwise.errors import RecipeError
from groupwise.types import Message, Prompt
from groupwise.verifiers import Verifier


def prompt_of(row: Row, settings: DatasetSettings, verifier: Verifier) -> Prompt:
    """The prompt of a row that `settings.prepared` gave; `RecipeError` naming row and column."""
    if settings.template is not None:
        content: Any = _filled(settings.template, row)
    else:
        content = _column(row, settings.prompt, "environment.prompt")
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
    return Prompt(prompt_id(messages, text, answer), messages, answer, text, columns)


def _messages(content: Any, row: Row, settings: DatasetSettings) -> tuple[Message, ...]:
    """A chat's messages; `RecipeError` where the value is neither a text nor a chat."""
    good = (
        isinstance(content, list)
        and content
        and all(isinstance(each, dict) and {"role", "content"} <= each.keys() for each in content)
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
    return tuple(dict(message) for message in content)


def _column(row: Row, name: str, field: str) -> Any:
    if name not in row.values:
        # Spaces around a name, as a header `prompt, answer` has them, are to be seen.
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
            f"{', '.join(row.values)}; a brace that stays is written twice"
        ) from error
