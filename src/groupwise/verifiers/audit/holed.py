"""A verifier with a hole, on purpose: what the audit is shown on (docs/verifiers_audit.md).

It rewards the gold answer found anywhere in the completion, as first drafts of reward functions
often do. Listing every possible answer earns everything. Never train on it for anything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def answer_anywhere(
    completions: Sequence[Any], answer: Sequence[Any], **_keywords: Any
) -> list[float]:
    """1 where the answer stands somewhere in the completion, else 0."""
    texts = [each if isinstance(each, str) else each[0]["content"] for each in completions]
    return [float(str(gold) in text) for text, gold in zip(texts, answer, strict=True)]
