"""The tool `search`: finds passages in local documents by BM25, with SQLite's full-text index."""

from __future__ import annotations

import hashlib
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import Field

from groupwise.environments.readers import Row, Source, iter_rows, open_text
from groupwise.errors import RecipeError
from groupwise.texts import whole_text
from groupwise.verifiers.core.names import Arguments

Passage = tuple[str, str]
"""Where a piece of a document is from, and its text."""


class SearchArguments(Arguments, strict=True):
    """The arguments of the tool `search`."""

    path: str = Field(min_length=1, description='A file or a folder, as "documents/".')
    top: int = Field(default=3, ge=1, description="Passages of one answer at most, as 3.")
    words_a_passage: int = Field(default=120, ge=1, description="Words of a passage, as 120.")


def make_search(arguments: SearchArguments) -> tuple[Callable[[str], str], str]:
    """The tool's function over a file or folder of .txt, .md and .jsonl (a `text` each line), and a
    hash of the passages for the record.

    Raises RecipeError where there is nothing to read.
    """
    passages = read_passages(Path(arguments.path).expanduser(), arguments.words_a_passage)
    index = sqlite3.connect(":memory:", check_same_thread=False)
    index.execute("CREATE VIRTUAL TABLE passages USING fts5(source UNINDEXED, text)")
    index.executemany("INSERT INTO passages VALUES (?, ?)", passages)
    lock = threading.Lock()

    def search(query: str) -> str:
        """Searches the documents and gives back the passages that fit best.

        Args:
            query: words to look for
        """
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", query))
        asked = "SELECT * FROM passages WHERE passages MATCH ? ORDER BY rank, rowid LIMIT ?"
        with lock:
            found = index.execute(asked, (words or '""', arguments.top)).fetchall()
        return "\n\n".join(f"[{source}] {text}" for source, text in found) or "nothing was found"

    every = "".join(f"{source}\0{text}\0" for source, text in passages)
    return search, hashlib.sha256(every.encode()).hexdigest()


def read_passages(path: Path, words_a_passage: int) -> list[Passage]:
    """Paragraphs, joined up to about `words_a_passage` words; a JSON line is a passage.

    Raises RecipeError naming the file and line that cannot be read.
    """
    passages: list[Passage] = []
    try:
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            name = file.name if path.is_file() else file.relative_to(path).as_posix()
            if file.suffix == ".jsonl":
                passages += map(_passage, iter_rows(Source(str(file))))
            elif file.suffix in (".txt", ".md"):
                with open_text(file) as text:
                    passages += [(name, each) for each in _joined(text.read(), words_a_passage)]
    except RecipeError as error:
        raise RecipeError(f"tool 'search': {error}") from error
    if not passages:
        raise RecipeError(
            f"tool 'search': path = {str(path)!r} holds no text; give a file or a folder with "
            ".txt, .md, .jsonl files"
        )
    return passages


def _passage(row: Row) -> Passage:
    text, title = row.values.get("text"), row.values.get("title")
    if not isinstance(text, str) or not isinstance(title, str | None):
        raise RecipeError(
            f"{row.where}: {row.values!r:.60}; give a JSON object with texts, as "
            '{"text": "...", "title": "..."}, the title where there is one'
        )
    return whole_text(row.where if title is None else title), whole_text(text)


def _joined(text: str, size: int) -> Iterator[str]:
    current: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        current += paragraph.split()
        if len(current) >= size:
            yield " ".join(current)
            current = []
    if current:
        yield " ".join(current)
