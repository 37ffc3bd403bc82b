"""What makes two prompts the same: ids from content, hashes of whole sets, duplicates, overlap."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from groupwise.types import Message, Prompt


def prompt_id(
    messages: Sequence[Message] = (),
    text: str | None = None,
    answer: Any = None,
    tools: Sequence[Mapping[str, Any]] = (),
) -> str:
    """A stable id of a prompt and its gold answer: 16 hex digits of a content hash."""
    content: list[Any] = [[dict(message) for message in messages], text, answer]
    if tools:
        content.append(list(tools))
    return _digest(json.dumps(content, sort_keys=True, ensure_ascii=True, default=str))


def with_unique_ids(prompts: Iterable[Prompt]) -> tuple[list[Prompt], int]:
    """The prompts with a second `x` renamed `x#2`, and how many were duplicates."""
    seen: Counter[str] = Counter()
    unique: list[Prompt] = []
    for prompt in prompts:
        seen[prompt.id] += 1
        count = seen[prompt.id]
        unique.append(replace(prompt, id=f"{prompt.id}#{count}") if count > 1 else prompt)
    return unique, len(unique) - len(seen)


def normalised_text(prompt: Prompt) -> str:
    """All of the prompt's words: NFKC, lower case, white space collapsed."""
    if prompt.text is not None:
        text = prompt.text
    else:
        text = "\n".join(f"{m.get('role')}: {m.get('content')}" for m in prompt.messages)
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def data_hash(prompts: Iterable[Prompt]) -> str:
    """A hash of the prompts, their answers and columns, in order."""
    digest = hashlib.sha256()
    for prompt in prompts:
        content = [prompt.id, [dict(m) for m in prompt.messages], prompt.text, prompt.answer]
        line = json.dumps([*content, dict(prompt.columns)], sort_keys=True, default=_written)
        digest.update(line.encode())
        digest.update(b"\n")
    return digest.hexdigest()


def _written(value: Any) -> Any:
    """A value that JSON has no word for, the same in every process: without order or address."""
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    return re.sub(r" at 0x[0-9a-fA-F]+", "", str(value))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
