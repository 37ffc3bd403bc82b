"""What is read from a model folder, and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.errors import RecipeError
from groupwise.templates import Template
from groupwise.types import Prompt
from toy_tokenizers import words

SPECIAL = ["<pad>", "<s>", "<eos>", "<end>", "<more>"]


def folder(tmp_path: Path, **files: Any) -> Path:
    words(SPECIAL, [*"abc"]).save(str(tmp_path / "tokenizer.json"))
    for name, content in files.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def test_all_stop_ids_and_the_pad_id_and_nothing_else(tmp_path: Path) -> None:
    template = Template.from_folder(
        folder(
            tmp_path,
            config={"eos_token_id": 2, "pad_token_id": 4},
            generation_config={
                "eos_token_id": [2, 3], "pad_token_id": 0, "temperature": 0.6, "top_p": 0.9
            },
            tokenizer_config={"eos_token": "<eos>", "bos_token": {"content": "<s>"}},
        )
    )  # fmt: skip
    assert template.stop_ids == {2, 3}
    assert template.pad_id == 0
    assert template.bos_id == 1
    assert not hasattr(template, "temperature")


def test_stop_ids_of_a_nested_text_config(tmp_path: Path) -> None:
    config = {"text_config": {"eos_token_id": [4], "pad_token_id": 0}, "pad_token_id": -1}
    assert Template.from_folder(folder(tmp_path, config=config)).stop_ids == {4}


def test_the_special_tokens_map_and_settings_together(tmp_path: Path) -> None:
    template = Template.from_folder(
        folder(
            tmp_path,
            special_tokens_map={"eos_token": "<end>", "bos_token": "<s>"},
            tokenizer_config={"eos_token": "<eos>", "add_bos_token": True, "pad_token": None},
        )
    )
    assert template.special_tokens == {"eos_token": "<eos>", "bos_token": "<s>"}


@pytest.mark.parametrize(("says", "expected"), [(True, (1, 5)), (False, (5,)), (None, (5,))])
def test_the_settings_say_whether_bos_is_put_in_front(
    tmp_path: Path, says: bool | None, expected: tuple[int, ...]
) -> None:
    settings = {"bos_token": "<s>", "add_bos_token": says}
    template = Template.from_folder(folder(tmp_path, tokenizer_config=settings))
    assert template.encode_prompt(Prompt("p", text="a")) == expected
    words(SPECIAL, [*"abc"], bos="<s>").save(str(tmp_path / "tokenizer.json"))
    template = Template.from_folder(tmp_path)
    assert template.encode_prompt(Prompt("p", text="a")) == ((5,) if says is False else (1, 5))


def test_the_chat_templates_file_goes_before_the_settings(tmp_path: Path) -> None:
    path = folder(tmp_path, tokenizer_config={"chat_template": "old"})
    assert Template.from_folder(path).chat_template == "old"
    (path / "chat_template.jinja").write_text("new")
    assert Template.from_folder(path).chat_template == "new"


def test_named_chat_templates(tmp_path: Path) -> None:
    named = [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]
    path = folder(tmp_path, tokenizer_config={"chat_template": named})
    assert Template.from_folder(path).chat_template == "d"
    named[1]["name"] = "rag"
    with pytest.raises(RecipeError, match=r"\['rag', 'tool'\] and no 'default'"):
        Template.from_folder(folder(tmp_path, tokenizer_config={"chat_template": named}))


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"has no tokenizer \(tokenizer.json\)"):
        Template.from_folder(tmp_path)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path = folder(tmp_path)
    (path / "config.json").write_text("{")
    with pytest.raises(RecipeError, match=r"config.json' is not valid JSON"):
        Template.from_folder(path)
    (path / "tokenizer.json").write_text("{}")
    with pytest.raises(RecipeError, match=r"cannot read .*tokenizer.json"):
        Template.from_folder(path)
