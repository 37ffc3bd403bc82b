"""Which part of a completion is the program.

Policies, stated: only text after the last closed reasoning section counts. Of several fenced blocks
the last one that defines the wanted function counts, else the last one that names the language,
else the last unnamed one; an unclosed last fence runs to the end; without a fence the whole text is
the program. Every function is linear in the text.
"""

from __future__ import annotations

import re

from groupwise.verifiers.answers.extraction import after_reasoning

_PYTHON = {"python", "py", "python3"}
# Opened at a line's start, or behind words where a language follows; closed at a line's start or
# end, there not behind white space or the quotes of a string.
_FENCED = re.compile(
    r"(?:^(?P<indent>[ \t]*+)|(?<=[ \t])(?=`{3,}+\w))(?P<fence>`{3,}+|~{3,}+)[ \t]*+"
    r"(?P<language>[\w+-]*+)[^\n`]*+\n"
    r"(?P<body>.*?)(?:^[ \t]*(?P=fence)|(?<![\s`~\"'])(?P=fence)[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)


def fenced_blocks(text: str, languages: set[str]) -> list[str]:
    """The contents of fenced blocks in one of `languages` ("" = unnamed), in order.

    Without the white space that the fence stands behind, as in a list.

    >>> fenced_blocks("```python\\nx = 1\\n```\\n```sql\\nselect 1\\n```", {"python"})
    ['x = 1\\n']
    """
    found = []
    for match in _FENCED.finditer(text):
        if match["language"].lower() in languages:
            indent = rf"^[ \t]{{1,{len(match['indent'])}}}" if match["indent"] else r"\A\ufeff"
            found.append(re.sub(indent, "", match["body"], flags=re.MULTILINE))
    return found


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
