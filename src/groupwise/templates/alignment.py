"""Maps character positions in a completion's text to its tokens, without encoding anything.

Prefixes of the sampled ids are decoded until they match the text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence


def token_ends(
    ids: Sequence[int], text: str, ends: Sequence[int], decode: Callable[[Sequence[int]], str]
) -> tuple[int, ...]:
    """For each of the rising character counts `ends`, the position of the token that completes it.

    Args:
        ids: the completion's ids, stop id included.
        text: `decode(ids)`.
        ends: 1 to the length of the text; the whole text ends with the last id, the stop id.
        decode: ids to text, as the completion was decoded.
    Raises:
        ValueError: an end outside the text.

    >>> words = ["a ", "bc", " d", ""]
    >>> token_ends([0, 1, 2, 3], "a bc d", [1, 3, 4, 6], lambda ids: "".join(words[i] for i in ids))
    (0, 1, 1, 3)
    """
    known: dict[int, str] = {}

    def prefix(count: int) -> str:
        if count not in known:
            known[count] = decode(ids[:count])
        return known[count]

    found: list[int] = []
    count = 1
    for end in ends:
        if not 1 <= end <= len(text) or not ids:
            raise ValueError(f"a step ends after {end} of the {len(text)} characters of its text")
        if end == len(text):
            count = len(ids)
        counts = range(count, len(ids))  # the fewest ids whose text has `end` characters or more
        count += bisect_left(counts, end, key=lambda each: len(prefix(each)))
        # A prefix may end within a character, and then decodes to something else in its place.
        while count < len(ids) and prefix(count)[:end] != text[:end]:
            count += 1
        found.append(count - 1)
    return tuple(found)
