"""Renders chat templates in the sandboxed jinja2 environment that model folders expect."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
import jinja2.meta
import jinja2.nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from groupwise.errors import RecipeError
from groupwise.templates.stored_calls import (
    parsed_calls,
    takes_text_arguments,
    with_text_arguments,
)
from groupwise.types import Message


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks assistant text for masks; here it is its body.

    Masks come from sampled ids, so the marks are not needed, but the templates that hold them are.
    """

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance variable

    def parse(self, parser: Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # jinja2's own filter escapes HTML characters, which models never saw in training.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


RESERVED = ("messages", "tools", "documents", "add_generation_prompt")
"""The variables that every chat template gets, besides the special tokens' texts."""


def chat_variables(text: str) -> frozenset[str]:
    """The names of the variables that a chat template reads. RecipeError as `compile_chat`."""
    compile_chat(text, datetime.min)
    environment = _environment(datetime.min)
    known = {*environment.globals, "raise_exception", "strftime_now"}
    return frozenset(jinja2.meta.find_undeclared_variables(environment.parse(text)) - known)


@lru_cache(maxsize=64)
def compile_chat(text: str, now: datetime) -> Callable[..., str]:
    """A chat template's text as a function of its variables.

    `now` is what `strftime_now` formats. Raises RecipeError where the text is not a template.
    """
    try:
        return _environment(now).from_string(text).render
    except jinja2.TemplateSyntaxError as error:
        raise RecipeError(
            f"chat template: line {error.lineno} is not valid jinja ({error.message}); "
            "give a template that jinja2 can read"
        ) from error


def _environment(now: datetime) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_GenerationTag, "jinja2.ext.loopcontrols"],
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = now.strftime
    return environment


def render_chat(
    text: str,
    messages: Sequence[Message],
    *,
    now: datetime,
    special_tokens: dict[str, str],
    add_generation_prompt: bool,
    **variables: Any,
) -> str:
    """The chat as text. `special_tokens` maps `bos_token`, `eos_token`, ... to their text.

    Raises RecipeError with the template's own words where it refuses the messages.
    """
    render = compile_chat(text, now)
    values: dict[str, Any] = {"tools": None, "documents": None, **special_tokens, **variables}
    try:
        chat = [parsed_calls(message) for message in messages]
    except ValueError as error:
        raise RecipeError(f"messages: a message {error}") from error
    has_calls = any(message.get("tool_calls") for message in chat)
    if has_calls and _takes_text_arguments(text, tuple(special_tokens.items())):
        chat = [with_text_arguments(message) for message in chat]
    try:
        return render(messages=chat, add_generation_prompt=add_generation_prompt, **values)
    except (jinja2.TemplateError, TypeError, KeyError, AttributeError) as error:
        roles = [message.get("role") for message in messages]
        raise RecipeError(
            f"messages: the chat template refuses a chat with the roles {roles}: {error}"
        ) from error


@lru_cache(maxsize=64)
def _takes_text_arguments(text: str, special_tokens: tuple[tuple[str, str], ...]) -> bool:
    render = compile_chat(text, datetime.min)
    values: dict[str, Any] = {"tools": None, "documents": None, **dict(special_tokens)}
    return takes_text_arguments(
        lambda chat: render(messages=chat, add_generation_prompt=False, **values)
    )
