"""Which part of a completion is the program.

Policies, stated: only text after the last closed reasoning section counts. Of several fenced blocks
the last one that defines the wanted function counts, else the last one that names the language,
else the last unnamed one; an unclosed last fence runs to the end; without a fence the whole text is
the program. Every function is linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from groupwise.verifiers.answers.extraction import after_reasoning

_PYTHON = {"python", "py", "python3"}
_LANGUAGE = re.compile(r"[\w+-]*")


def fenced_blocks(text: str, languages: set[str]) -> list[str]:
    """The contents of fenced blocks in one of `languages` ("" = unnamed), in order.

    >>> fenced_blocks("```python\\nx = 1\\n```\\n```sql\\nselect 1\\n```", {"python"})
    ['x = 1\\n']
    """
    return [body for language, body in _blocks(text) if language in languages]


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and content of every fenced block, in order."""
    opened: tuple[str, str, int] | None = None
    body: list[str] = []
    *whole_lines, rest = text.split("\n")
    for line in [*(f"{each}\n" for each in whole_lines), rest]:
        if opened is None:
            opened = _opening(line)
            continue
        fence, language, columns = opened
        last = _before_closing(line, fence)
        if last is None:
            body.append(line)
            continue
        yield language, _outdented("".join([*body, last]), columns)
        body = []
        names_next = _LANGUAGE.fullmatch(line.strip().lstrip(fence[0]))
        opened = _opening(line) if names_next and names_next.group() else None
    if opened is not None:
        yield opened[1], _outdented("".join(body), opened[2])


def _opening(line: str) -> tuple[str, str, int] | None:
    """Fence, language and indentation of a line that opens a block.

    The fence begins the line, or stands behind other words where a language follows it.
    """
    indented = line.lstrip(" \t")
    mark = "~" if indented.startswith("~~~") else "`"
    before, _, after = line.rpartition(mark * 3)
    start = before.rstrip(mark)
    fence = line[len(start) : len(line) - len(after)]
    if not line.endswith("\n") or len(fence) < 3 or "`" in after:
        return None
    if start.strip(" \t"):
        behind_words = mark == "`" and start[-1].isspace() and _LANGUAGE.match(after)
        if not behind_words or not behind_words.group():
            return None
    named = _LANGUAGE.match(after.lstrip(" \t"))
    return fence, named.group().lower() if named else "", len(line) - len(indented)


def _before_closing(line: str, fence: str) -> str | None:
    """What of a line stands before the fence that closes a block; None where none does.

    It begins the line or ends it, there not behind white space or the quotes of a string.
    """
    if line.lstrip(" \t").startswith(fence):
        return ""
    end = line.rstrip()
    before = end.removesuffix(fence)
    if before == end or before.endswith((" ", "\t", "`", "~", '"""', "'''")):
        return None
    return before


def _outdented(body: str, columns: int) -> str:
    """Without the white space that its fence stands behind, as in a list."""
    body = body.removeprefix("\ufeff")
    return re.sub(rf"^[ \t]{{1,{columns}}}", "", body, flags=re.MULTILINE) if columns else body


def blocks_of(text: str, languages: set[str]) -> list[str]:
    """The blocks that name one of `languages`, or where none does the unnamed ones; no empty ones.

    >>> blocks_of("```sql\\nselect 1\\n```\\nIt gives:\\n```\\n1\\n```", {"sql"})
    ['select 1\\n']
    """
    named = [each for each in fenced_blocks(text, languages) if each.strip()]
    return named or [each for each in fenced_blocks(text, {""}) if each.strip()]


def defines(source: str, entry: str) -> bool:
    """Whether a `def` or `class` of that name, or its assignment, stands in the source."""
    name = re.escape(entry.partition(".")[0])
    made = rf"^[ \t]*(?:async[ \t]+def|def|class)[ \t]+{name}\b|^{name}[ \t]*(?::[^=\n]*)?=(?!=)"
    return re.search(made, source, re.MULTILINE) is not None


def python_source(text: str, entry: str | None = None, tag: str = "think") -> str | None:
    """The program of a completion; None where there is none.

    >>> python_source("Here:\\n```python\\ndef f(): return 1\\n```\\nUse:\\n```\\nf()\\n```", "f")
    'def f(): return 1\\n'
    """
    rest = after_reasoning(text, tag)
    if rest is None or not rest.strip():
        return None
    blocks = blocks_of(rest, _PYTHON)
    if not blocks:
        return None if "```" in rest else rest.removeprefix("\ufeff")
    every = fenced_blocks(rest, {"", *_PYTHON}) if entry else []
    wanted = [block for block in every if defines(block, entry or "")]
    return (wanted or blocks)[-1]
