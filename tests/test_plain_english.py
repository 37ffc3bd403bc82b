"""The glossary: names and phrasings that were replaced do not come back.

Each entry is a pattern that a native engineer would not write in a code review, with what to write
instead. Only what is clearly wrong everywhere stands here; judgement stays with the reviewer.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

NAMES = {
    "hear": "on_completion",
    "told": "reported",
    "doomed": "to_delete",
    "is_theirs": "is_user_error",
    "Beside": "BackgroundCall",
    "Around": "EnvironmentWrapper",
    "Evidence": "FixedLogprobs",
    "Play": "Episode",
}
"""Identifiers, as whole words in code."""

FILES = {
    "own.py": "splits.py or wrappers.py",
    "around.py": "wrappers.py",
    "waits.py": "deadlines.py",
    "finals.py": "final_answer.py",
    "moments.py": "dates.py",
    "misread.py": "a noun that says what is inside",
    "verified.py": "a noun that says what is inside",
}

PHRASES = {
    r"\b(?:is|are|was|were) no (?:[a-z]+ )?[a-z]+ (?:of|that|from)\b": '"is not a ..."',
    r"\bof somebody's own\b": '"user-defined"',
    r"\bsomebody's\b": '"the user\'s"',
    r"\bof (?:theirs|ours)\b": "say whose",
    r"\bgoes on (?:after|with|where|from)\b": '"resumes at", "continues"',
    r"\bgo on with (?:--resume|it|the run)\b": '"resume with", "continue with"',
    r", too\b[.;:,)]": '"also", or leave it out',
    r"\bis everyone's\b": '"is shared"',
    r"\b(?:never|not) gives? in\b": '"does not return"',
    r"\bwhat people use today\b": "name the alternatives",
    r"\bat an? (?:own|other's)\b": "say whose",
    r"\bworth (?:a|the) (?:look|reading)\b": "say why",
}
"""Phrasings, in text of any kind. The value says what to write instead."""

SOURCES = sorted(ROOT.glob("src/**/*.py"))
TEXTS = [
    *SOURCES,
    *sorted(ROOT.glob("docs/*.md")),
    ROOT / "README.md",
    *ROOT.glob("recipes/*.toml"),
]


def found(pattern: str, paths: list[Path]) -> list[str]:
    compiled = re.compile(pattern)
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:90]}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if compiled.search(line)
    ]


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_replaced_name_is_gone(name: str) -> None:
    # A deprecated alias is one assignment in quotes, `"Play": ...`, which the pattern lets through.
    hits = found(rf'(?<!["\'\w]){name}(?!["\'\w])(?=\s*[(.,:)\]=]|$)', SOURCES)
    hits = [hit for hit in hits if not re.search(rf"\b(?:the|a|is|was|are) {name}\b", hit)]
    assert not hits, f"write {NAMES[name]}:\n" + "\n".join(hits)


def test_a_replaced_file_name_is_gone() -> None:
    hits = [str(path.relative_to(ROOT)) for path in SOURCES if path.name in FILES]
    assert not hits


@pytest.mark.parametrize("phrase", sorted(PHRASES))
def test_a_replaced_phrasing_is_gone(phrase: str) -> None:
    hits = found(phrase, TEXTS)
    assert not hits, f"write {PHRASES[phrase]}:\n" + "\n".join(hits)
