"""The tool `search`: finds passages in local documents by BM25, in pure Python.

BM25 as in Robertson and Zaragoza 2009, with k1 = 1.5 and b = 0.75, and the idf that is never
negative: log(1 + (N - n + 0.5) / (n + 0.5)). Left out: embeddings, and keeping an index on disk.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import Field

from groupwise.environments.readers import Row, Source, iter_rows, open_text
from groupwise.errors import RecipeError
from groupwise.texts import whole_text
from groupwise.verifiers.core.names import Arguments

K1, B = 1.5, 0.75
_WORD = re.compile(r"\w+")


class Passage(NamedTuple):
    """A piece of a document, and where it is from."""

    source: str
    text: str


class Index:
    """Passages, ranked against a query.

    >>> index = Index([Passage("a", "the red fox"), Passage("b", "a blue whale swims")])
    >>> [passage.source for passage, _ in index.search("whale", 2)]
    ['b']
    """

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = tuple(passages)
        counts = [Counter(words(passage.text)) for passage in self.passages]
        lengths = [each.total() for each in counts]
        mean = sum(lengths) / max(len(lengths), 1) or 1.0
        self._norms = [K1 * (1 - B + B * length / mean) for length in lengths]
        self._holding: dict[str, list[tuple[int, int]]] = {}
        for number, each in enumerate(counts):
            for word, count in each.items():
                self._holding.setdefault(word, []).append((number, count))

    def search(self, query: str, top: int) -> list[tuple[Passage, float]]:
        """The `top` passages with the highest scores above 0; equal scores in their own order."""
        scores: dict[int, float] = {}
        for word in dict.fromkeys(words(query)):
            holding = self._holding.get(word, ())
            rarity = math.log(1 + (len(self.passages) - len(holding) + 0.5) / (len(holding) + 0.5))
            for number, count in holding:
                gain = rarity * count * (K1 + 1) / (count + self._norms[number])
                scores[number] = scores.get(number, 0.0) + gain
        best = sorted(scores, key=lambda number: (-scores[number], number))[:top]
        return [(self.passages[number], scores[number]) for number in best]


def words(text: str) -> list[str]:
    """Words as the index knows them: letters and digits, case folded."""
    return _WORD.findall(text.casefold())


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
    index = Index(read_passages(Path(arguments.path).expanduser(), arguments.words_a_passage))

    def search(query: str) -> str:
        """Searches the documents and gives back the passages that fit best.

        Args:
            query: words to look for
        """
        found = index.search(query, arguments.top)
        if not found:
            return "nothing was found"
        return "\n\n".join(f"[{passage.source}] {passage.text}" for passage, _ in found)

    every = "".join(f"{each.source}\0{each.text}\0" for each in index.passages)
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
                    passages += _joined(name, text.read(), words_a_passage)
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
    return Passage(whole_text(row.where if title is None else title), whole_text(text))


def _joined(name: str, text: str, size: int) -> Iterator[Passage]:
    current: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        current += paragraph.split()
        if len(current) >= size:
            yield Passage(name, " ".join(current))
            current = []
    if current:
        yield Passage(name, " ".join(current))
