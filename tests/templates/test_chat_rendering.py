"""The jinja2 environment: what model folders' templates expect, and what they may not do."""

from __future__ import annotations

from datetime import datetime

import pytest

from groupwise.errors import RecipeError
from groupwise.templates.chat import render_chat

NOW = datetime(2025, 3, 4, 5, 6)
MESSAGES = [{"role": "user", "content": "2 < 3"}, {"role": "assistant", "content": "yes"}]


def render(text: str, **variables: object) -> str:
    return render_chat(
        text,
        MESSAGES,
        now=NOW,
        special_tokens={"bos_token": "<s>", "eos_token": "</s>"},
        add_generation_prompt=True,
        **variables,
    )


def test_variables_and_whitespace_control() -> None:
    text = (
        "{{ bos_token }}\n"
        "{% for message in messages %}\n"
        "    {% if message['role'] == 'user' %}\n"
        "[{{ message.content }}]\n"
        "    {% endif %}\n"
        "{% endfor %}\n"
        "{% if add_generation_prompt %}>{% endif %}"
    )
    assert render(text) == "<s>\n[2 < 3]\n>"


def test_tojson_keeps_characters_as_they_are() -> None:
    text = "{{ messages[0] | tojson }}|{{ {'é': '<'} | tojson(indent=1) }}"
    assert render(text) == '{"role": "user", "content": "2 < 3"}|{\n "é": "<"\n}'


def test_the_date_is_fixed_by_the_template_object() -> None:
    assert render("{{ strftime_now('%d %b %Y') }}") == "04 Mar 2025"


def test_generation_marks_are_only_their_body() -> None:
    text = (
        "{% for m in messages %}{% if m.role == 'assistant' %}"
        "{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}{% endif %}{% endfor %}"
    )
    assert render(text) == "yes</s>"


def test_loop_controls_and_namespaces() -> None:
    text = (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% if m.role == 'assistant' %}"
        "{% break %}{% endif %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}"
    )
    assert render(text) == "1"


def test_tools_and_kwargs_reach_the_template() -> None:
    assert render("{{ tools is none }} {{ flag is defined }}") == "True False"
    assert render("{{ tools[0].name }} {{ flag }}", tools=[{"name": "t"}], flag=False) == "t False"


def test_a_templates_own_refusal_is_told() -> None:
    with pytest.raises(RecipeError, match=r"roles \['user', 'assistant'\]: only one message"):
        render("{% if messages|length > 1 %}{{ raise_exception('only one message') }}{% endif %}")


def test_broken_jinja_names_the_line() -> None:
    with pytest.raises(RecipeError, match="line 2 is not valid jinja"):
        render("ok\n{% if %}")


@pytest.mark.parametrize(
    "text",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
    ],
)
def test_templates_are_sandboxed(text: str) -> None:
    with pytest.raises(RecipeError, match="refuses"):
        render(text)
