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

_TEST_COLUMNS = ("tests", "test", "test_list", "input_output")
_LITERAL = re.compile(r"\"([^\"\n]*)\"|'([^'\n]*)'|(?<![\w.])(\d+(?:\.\d+)?)")

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
    """Whether a program holds most values of its own tests, inputs and outputs.

    Without tests in the record: whether it returns for three inputs of its own.
    """
    try:
        columns = from_json(row.get("columns") or "{}")
    except ValueError:
        columns = {}
    known = _literals(" ".join(str(columns[name]) for name in _TEST_COLUMNS if name in columns))
    if not known:
        return len(re.findall(r"(?:==|in)[^:\n]{1,60}:\s*return\b", row["text"])) >= 3
    return len(known) > 1 and len(known & _literals(row["text"])) >= 0.75 * len(known)


def _literals(text: str) -> set[str]:
    """The numbers and the texts in quotes that are written in a source; 0, 1 and "" left out."""
    found = {"".join(groups) for groups in _LITERAL.findall(text)}
    return found - {"", "0", "1"}
