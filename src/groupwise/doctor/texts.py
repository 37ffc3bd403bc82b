"""What can be seen in a completion's text: repetition, scripts, answers, copied tests, marks."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache

from groupwise.doctor.facts import Row
from groupwise.texts import from_json, repeated_share
from groupwise.verifiers.answers.extraction import boxes, tagged_blocks

TEMPLATE_MARKS = re.compile(
    r"<\|(?:im_start|im_end|endoftext|eot_id|start_header_id|end_header_id|user|assistant|system)\|>"
    r"|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|<｜[^｜]{1,30}｜>"
)

STYLES = {
    "exclamation marks": re.compile(r"!"),
    "bold text": re.compile(r"\*\*\S"),
    "headings": re.compile(r"^#{1,6} ", re.MULTILINE),
    "bullet points": re.compile(r"^\s*(?:[-*•]|\d+\.) ", re.MULTILINE),
    "emoji": re.compile("[\U0001f300-\U0001faff\u2600-\u27bf]"),
}
"""Marks of style that a learned reward is known to like."""


def repetition(row: Row) -> float:
    """The share of a completion's stretches of four tokens (words without ids) that recur."""
    return repeated_share(row["completion_ids"] or row["text"].split())


@cache
def _script(letter: str) -> str:
    return unicodedata.name(letter, "?").split(" ", 1)[0]


def scripts(text: str) -> set[str]:
    """The scripts of a text's letters, each of at least two letters: LATIN, CJK, CYRILLIC, ..."""
    counts = Counter(_script(letter) for letter in text[:4000] if letter.isalpha())
    return {name for name, number in counts.items() if number >= 2 and name != "MODIFIER"}


def mixes_scripts(row: Row) -> bool:
    """Whether the text has a script besides Latin or the prompt's own (formulas use Greek)."""
    known = scripts(row["prompt"]) | {"LATIN", "GREEK"}
    return bool(scripts(row["text"]) - known)


def answers(text: str) -> list[str]:
    """Every answer in a box or a tag, of the first form that the text uses."""
    return [each.strip() for each in boxes(text) or tagged_blocks(text, "answer")]


def hedges(text: str) -> bool:
    """Whether the text gives several different answers, or offers one against another."""
    found = answers(text)
    if len(set(found)) > 1:
        return True
    last = found[-1] if found else text.strip().rsplit("\n", 1)[-1]
    return re.search(r"\S\s+or\s+\S", last) is not None and len(last) < 80


def whole_answer_verifier(texts: Sequence[str]) -> str:
    """The verifier that reads one whole answer in the form that most of the texts use."""
    boxed = sum(bool(boxes(text)) for text in texts)
    tagged = sum(bool(tagged_blocks(text, "answer")) for text in texts)
    if max(boxed, tagged) * 2 < len(texts):
        return "exact"
    return "boxed" if boxed >= tagged else "tagged"


def final_answer(text: str) -> str:
    """The last answer in a box or a tag, else the last line."""
    found = answers(text)
    return found[-1] if found else text.strip().rsplit("\n", 1)[-1]


def copies_tests(row: Row) -> bool:
    """Whether a program compares its input with values of its own tests and returns theirs."""
    text = row["text"]
    returned = re.findall(r"(?:==|in)\s*(.{1,60}?)\s*:\s*(?:\n\s*)?return\s+(.{1,60})", text)
    table = re.findall(r"[\{,]\s*(.{1,40}?)\s*:\s*([^,{}]{1,40})(?=[,}])", text)
    known = _test_values(row)
    if not known:
        return len(returned) >= 3
    literal = {value for pair in (*returned, *table) for value in map(str.strip, pair)}
    return len([value for value in known if value in literal]) >= 2


def _test_values(row: Row) -> set[str]:
    """The values of the row's visible tests, as Python writes them; trivial ones left out."""
    try:
        columns = from_json(row.get("columns") or "{}")
    except ValueError:
        return set()
    found: set[str] = set()

    def collect(value: object) -> None:
        if isinstance(value, dict):
            for item in value.values():
                collect(item)
        elif isinstance(value, list):
            for item in value:
                collect(item)
        elif value is not None:
            found.add(repr(value))

    collect(columns)
    return {value for value in found if value not in ("0", "1", "True", "False", "''")}
