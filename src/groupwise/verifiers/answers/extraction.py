"""Where in a completion the answer stands: after the reasoning, in a box, in a tag.

The same functions serve training and evaluation. Policies, stated: only text after the last closed
reasoning section counts; a section that is opened and never closed leaves no answer; the last
balanced box or tag pair counts; an empty one is no answer. Every function is linear in the text.
"""

from __future__ import annotations

import re
from functools import lru_cache

MAX_NESTED_BOXES = 8
"""A box directly inside a box is unwrapped so many times."""

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
# A box without braces: around a number, or around a letter at the end of a formula.
_BARE_BOX = re.compile(
    r"\\(?:boxed|fbox)\s*+(-?\d+(?:[.,/]\d+)*(?![\w^])|[A-Za-z](?=\s*+(?:[$.,;)\]}]|\n|\\[)\]]|\Z)))"
)
# What is left of \frac, \boxed, \text, \times when a user's string was not raw.
_LOST_BACKSLASH = re.compile("\x0c(?=rac)|\x08(?=oxed)|\t(?=ext\\{|imes\\b)")
_LOST = {"\x0c": "\\f", "\x08": "\\b", "\t": "\\t"}


def repaired(text: str) -> str:
    r"""The text with `\frac`, `\boxed`, `\text` and `\times` whole where their escape was eaten.

    >>> repaired("\boxed{\frac12}") == r"\boxed{\frac12}"
    True
    """
    return _LOST_BACKSLASH.sub(lambda match: _LOST[match.group()], text)


def after_reasoning(text: str, tag: str = "think") -> str | None:
    """The text after the last closed reasoning section; None where one is opened and not closed.

    A closing tag alone counts: the opening one may stand in the prompt. Tags count in either case,
    so that an answer does not leave its reasoning by shouting.

    >>> after_reasoning("<think>maybe 5</think> 7"), after_reasoning("a</think>b")
    (' 7', 'b')
    >>> after_reasoning("<think>maybe 5") is None
    True
    """
    _, rest = at_reasoning_end(text, tag)
    return None if _reasoning_tag(tag, "").search(rest) else rest


def at_reasoning_end(text: str, tag: str = "think") -> tuple[str | None, str]:
    """The text before the last closing tag and the text behind it; None and all without one.

    >>> at_reasoning_end("a</THINK >b"), at_reasoning_end("ab")
    (('a', 'b'), (None, 'ab'))
    """
    last: re.Match[str] | None = None
    for match in _reasoning_tag(tag, "/").finditer(text):
        last = match
    return (None, text) if last is None else (text[: last.start()], text[last.end() :])


@lru_cache(maxsize=64)
def _reasoning_tag(tag: str, slash: str) -> re.Pattern[str]:
    return re.compile(rf"<{slash}{re.escape(tag)}\s*+>", re.IGNORECASE)


def boxes(text: str) -> list[str]:
    r"""The contents of all balanced boxes that are in no other box, in order.

    Around a number or a letter the braces may be left out.

    >>> boxes(r"\boxed{5} no, \boxed{\frac{1}{2}}"), boxes(r"\boxed{1"), boxes(r"$\boxed 7$")
    (['5', '\\frac{1}{2}'], [], ['7'])
    """
    opens = {match.end() - 1: match.end() for match in _BOX.finditer(text)}
    stack: list[int | None] = []
    found: list[tuple[int, int]] = []
    position = 0
    while position < len(text):
        character = text[position]
        if position in opens:
            stack.append(opens[position])
        elif character == "{":
            stack.append(None)
        elif character == "}" and stack:
            start = stack.pop()
            if start is not None:
                while found and found[-1][0] > start:
                    found.pop()
                found.append((start, position))
        elif character == "\\":
            bare = _BARE_BOX.match(text, position)
            if bare is not None:
                found.append(bare.span(1))
            position += 1  # `\{` is not a brace; of `\boxed{` only the letter b is passed over
        position += 1
    return [text[start:end] for start, end in found]


def last_box(text: str) -> str | None:
    r"""The content of the last balanced box, nested boxes unwrapped; None where empty or absent.

    >>> last_box(r"\boxed{\boxed{\{1,2\}}}"), last_box(r"\boxed{ }")
    ('\\{1,2\\}', None)
    """
    found = boxes(text)
    if not found:
        return None
    content = found[-1].strip()
    for _ in range(MAX_NESTED_BOXES):
        opening = _BOX.match(content)
        inner = boxes(content) if opening is not None else []
        if opening is None or f"{opening.group()}{inner[0] if inner else ''}}}" != content:
            break
        content = inner[0].strip()
    return content or None


def tagged_blocks(text: str, tag: str) -> list[str]:
    """The contents of all `<tag>...</tag>` pairs, each from the opening nearest to its closing.

    >>> tagged_blocks("<a>1</a> or <a>2<a>3</a>", "a")
    ['1', '3']
    """
    blocks: list[str] = []
    for piece in text.split(f"</{tag}>")[:-1]:
        _, opened, content = piece.rpartition(f"<{tag}>")
        if opened:
            blocks.append(content)
    return blocks


def last_tagged(text: str, tag: str) -> str | None:
    """The content of the last pair of tags, stripped; None where it is empty or absent."""
    blocks = tagged_blocks(text, tag)
    return (blocks[-1].strip() or None) if blocks else None
