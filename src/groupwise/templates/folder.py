"""Reads a model folder's tokenizer, chat template, special tokens, stop and pad ids.

Only stop and pad ids are taken from the generation config, never its sampling defaults.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from groupwise.errors import RecipeError
from groupwise.texts import from_json


def read_tokenizer(folder: Path) -> Tokenizer:
    """A folder's `tokenizer.json`. Raises RecipeError where there is none or it is broken."""
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise RecipeError(
            f"model.name: the folder {str(folder)!r} has no tokenizer (tokenizer.json); "
            "save one into it with AutoTokenizer.save_pretrained"
        )
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:
        raise RecipeError(f"model.name: cannot read {str(file)!r}: {error}") from error


def read_ids(folder: Path) -> tuple[tuple[int, ...], int | None]:
    """All stop ids that a folder's configs name, and its pad id."""
    stop_ids: list[int] = []
    pad_id: int | None = None
    for name in ("generation_config.json", "config.json"):
        config = read_json(folder / name)
        for part in (config, config.get("text_config") or {}):
            stop_ids.extend(as_ids(part.get("eos_token_id")))
            if pad_id is None and isinstance(part.get("pad_token_id"), int):
                pad_id = part["pad_token_id"] if part["pad_token_id"] >= 0 else None
    return tuple(dict.fromkeys(stop_ids)), pad_id


def as_ids(value: Any) -> list[int]:
    """A config's id field, which may be absent, a number or a list, as a list."""
    if value is None or isinstance(value, bool):
        return []
    if isinstance(value, int):
        return [value]
    return [int(item) for item in value] if isinstance(value, Iterable) else []


def read_json(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        content = from_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RecipeError(f"model.name: {str(file)!r} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise RecipeError(f"model.name: {str(file)!r} must hold a JSON object")
    return content


def read_chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    """The default chat template; `chat_template.jinja` goes before the tokenizer's settings."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    named = settings.get("chat_template")
    if named is None:
        named = read_json(folder / "chat_template.json").get("chat_template")
    if isinstance(named, list):
        templates = {str(entry["name"]): str(entry["template"]) for entry in named}
        if "default" not in templates and len(templates) > 1:
            raise RecipeError(
                f"chat template: {str(folder)!r} has the templates {sorted(templates)} and no "
                "'default'; keep the one to use as chat_template.jinja"
            )
        return templates.get("default") or next(iter(templates.values()), None)
    return str(named) if named is not None else None


def read_special_tokens(folder: Path, settings: dict[str, Any]) -> dict[str, str]:
    """`bos_token`, `eos_token` and the like as text, those that are set."""
    tokens: dict[str, str] = {}
    for source in (read_json(folder / "special_tokens_map.json"), settings):
        for name, value in source.items():
            if not name.endswith("_token") or name.startswith("add_"):
                continue
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str):
                tokens[name] = text
    return tokens
