"""Prompts to ids and completions to text: BOS, special tokens, stop ids, prefill, hash."""

from __future__ import annotations

from datetime import datetime

import pytest

from groupwise.errors import RecipeError
from groupwise.templates import Template, TemplateSettings
from groupwise.types import Prompt
from toy_tokenizers import merging, words

CHAT = Prompt("p", messages=({"role": "user", "content": "hi"},))
RAW = Prompt("p", text="hi")
LETTERS = [*"hixyabc ."]
PLAIN_CHAT = "{% for m in messages %}<u>{{ m['content'] }}<e>{% endfor %}<a>"


@pytest.mark.parametrize("template_writes", [True, False])
@pytest.mark.parametrize("tokenizer_adds", [True, False])
@pytest.mark.parametrize("prompt", [CHAT, RAW], ids=["chat", "raw"])
def test_exactly_one_bos_where_tokenizer_or_template_defines_it(
    template_writes: bool, tokenizer_adds: bool, prompt: Prompt
) -> None:
    tokenizer = words(["<s>", "<e>", "<u>", "<a>"], LETTERS, bos="<s>" if tokenizer_adds else None)
    text = ("{{ bos_token }}" if template_writes else "") + PLAIN_CHAT
    template = Template(tokenizer, text, special_tokens={"bos_token": "<s>", "eos_token": "<e>"})
    ids = template.encode_prompt(prompt)
    expected = 1 if template_writes or tokenizer_adds else 0
    assert ids.count(0) == expected
    body = (2, 4, 5, 1, 3) if prompt is CHAT else (4, 5)
    assert ids == (0,) * expected + body


@pytest.mark.parametrize("tokenizer_adds", [True, False])
def test_bos_written_out_by_the_user_is_not_doubled(tokenizer_adds: bool) -> None:
    tokenizer = words(["<s>", "<e>"], LETTERS, bos="<s>" if tokenizer_adds else None)
    template = Template(tokenizer, None, special_tokens={"bos_token": "<s>"})
    assert template.encode_prompt(Prompt("p", text="<s>hi")) == (0, 2, 3)


def test_a_marker_that_shares_its_token_with_bos_is_not_a_bos() -> None:
    # SmolLM2: bos_token is <|im_start|>, which begins every message and is never added by itself.
    tokenizer = words(["<s>", "<e>"], LETTERS)
    template = Template(tokenizer, "<s>{{ messages[0]['content'] }}<e><s>a", special_tokens={
        "bos_token": "<s>", "eos_token": "<e>"
    })  # fmt: skip
    assert template.encode_prompt(RAW) == (2, 3)
    assert template.encode_prompt(CHAT) == (0, 2, 3, 1, 0, 6)


def test_a_tokenizers_longer_prefix_is_kept() -> None:
    from tokenizers import processors

    tokenizer = words(["[g]", "<s>", "<e>"], LETTERS)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[g] <s> $A", special_tokens=[("[g]", 0), ("<s>", 1)]
    )
    template = Template(tokenizer, None, special_tokens={"bos_token": "<s>"})
    assert template.encode_prompt(RAW) == (0, 1, 3, 4)


def test_decoding_drops_pad_bos_eos_and_stop_ids_and_keeps_every_other_tag() -> None:
    special = ["<pad>", "<bos>", "<eos>", "<end>", "<think>", "</think>", "<tool>"]
    template = Template(
        words(special, LETTERS),
        None,
        special_tokens={"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"},
        stop_ids=(3,),
    )
    x, y = template.encode("x")[0], template.encode("y")[0]
    assert template.decode_completion([4, x, 5, y, 2, 0]) == "<think>x</think>y"
    assert template.decode_completion([6, x, 3]) == "<tool>x"
    assert template.decode([4, x, 2, 0]) == "<think>x<eos><pad>"


def test_pad_equal_to_eos_changes_nothing_in_a_prompt() -> None:
    tokenizer = words(["<u>", "<a>", "<e>"], LETTERS)
    template = Template(
        tokenizer, PLAIN_CHAT, special_tokens={"eos_token": "<e>", "pad_token": "<e>"}
    )
    assert template.pad_id == 2
    assert template.stop_ids == {2}
    chat = Prompt("p", messages=CHAT.messages * 2)
    assert template.encode_prompt(chat) == (0, 3, 4, 2, 0, 3, 4, 2, 1)


def test_the_chats_end_marker_is_a_stop_id() -> None:
    tokenizer = words(["<eos>", "<u>", "<a>", "<e>"], LETTERS)
    template = Template(tokenizer, PLAIN_CHAT, special_tokens={"eos_token": "<eos>"})
    assert template.stop_ids == {0, 3}


def test_ids_are_the_truth_because_encoding_again_changes_them() -> None:
    template = Template(merging(), None, special_tokens={"eos_token": "<e>"})
    assert template.decode_completion([0, 1, 3]) == "ab"
    assert template.encode("ab") == (2,)


@pytest.mark.parametrize(
    ("ending", "prefill"),
    [
        ("<think>\n", "<think>\n"),
        ("<reasoning>", "<reasoning>"),
        ("assistant\n", ""),
        ("<answer>", ""),
        ("</think>", ""),
        ("<think></think>", ""),
    ],
)
def test_a_think_tag_opened_by_the_template_is_reported(ending: str, prefill: str) -> None:
    text = "{{ messages[0]['content'] }}{% if add_generation_prompt %}" + ending + "{% endif %}"
    # A trailing newline in front of a jinja block would be trimmed; written as an expression.
    text = text.replace("\n", "{{ '\\n' }}")
    template = Template(words(["<e>"], LETTERS), text, special_tokens={"eos_token": "<e>"})
    assert template.prefill == prefill


def test_hash_follows_what_decides_ids_and_text() -> None:
    def template(text: str | None = PLAIN_CHAT, letters: str = "hixy", stop: int = 1) -> Template:
        return Template(
            words(["<s>", "<e>", "<u>", "<a>"], [*letters]),
            text,
            special_tokens={"bos_token": "<s>"},
            stop_ids=(stop,),
            now=datetime(2025, 1, stop),
        )

    assert template().hash == template().hash
    others = {template(None).hash, template(letters="hixz").hash, template(stop=2).hash}
    assert len(others | {template().hash}) == 4
    assert len(template().hash) == 64


def test_a_chat_without_a_chat_template_is_refused() -> None:
    template = Template(words(["<e>"], LETTERS), None, special_tokens={"eos_token": "<e>"})
    with pytest.raises(RecipeError, match="chat template: the model has none"):
        template.encode_prompt(CHAT)


def test_an_empty_text_is_refused_by_name() -> None:
    template = Template(words(["<e>"], LETTERS), None, special_tokens={"eos_token": "<e>"})
    with pytest.raises(RecipeError, match="prompt 'nothing': is empty"):
        template.encode_prompt(Prompt("nothing", text=""))


def test_variables_are_given_to_every_chat_and_are_part_of_the_hash() -> None:
    text = PLAIN_CHAT + "{% if loud %}{{ loud }}{% endif %}{{ strftime_now('%d') if day else '' }}"
    tokenizer = words(["<e>", "<u>", "<a>"], [*LETTERS, "0", "4", "5"])
    plain = Template(tokenizer, text, special_tokens={"eos_token": "<e>"}, now=datetime(2025, 1, 4))
    loud = plain.with_variables({"loud": "x"})
    assert loud.render(CHAT.messages) == "<u>hi<e><a>x"
    assert loud.render(CHAT.messages, loud="y") == "<u>hi<e><a>y"
    assert plain.render(CHAT.messages) == "<u>hi<e><a>"
    assert loud.stop_ids == plain.stop_ids
    later = plain.with_variables({"day": True}, now=datetime(2025, 1, 5))
    assert later.render(CHAT.messages).endswith("05")
    assert plain.reads_clock
    assert len({plain.hash, loud.hash, later.hash}) == 3
    with pytest.raises(RecipeError, match=r"does not read 'lod'; did you mean 'loud'\?"):
        plain.with_variables({"lod": "x"})
    for name in ("messages", "tools", "eos_token", "add_generation_prompt"):
        with pytest.raises(RecipeError, match="does not read"):
            plain.with_variables({name: "x"})


def test_the_settings_of_a_recipe_fix_the_date() -> None:
    text = PLAIN_CHAT + "{{ strftime_now('%Y-%m-%d') }}"
    template = Template(words(["<e>", "<u>", "<a>"], LETTERS), text)
    assert TemplateSettings().applied(template).render(CHAT.messages).endswith("2025-01-01")
    set_ = TemplateSettings.model_validate({"date": "2026-02-03"})
    assert set_.applied(template).render(CHAT.messages).endswith("2026-02-03")
    with pytest.raises(RecipeError, match=r"template.chat_template_kwargs: .* reads none"):
        TemplateSettings(chat_template_kwargs={"x": 1}).applied(template)
