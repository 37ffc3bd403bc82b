"""Where the steps of a completion end: one rule for labels, process reward models and search."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

SEPARATOR = "\n\n"
"""What ends a step where nothing else is said."""


def step_ends(text: str, separator: str, turn_ends: Sequence[int] = ()) -> list[int]:
    """The character counts at which the steps of a text end, rising; the last is the text's length.

    A step ends behind `separator` (a newline, an empty line, a closing tag; "" is none) and where a
    turn ends. A blank step belongs to the step before it, at the beginning to the one behind it.

    >>> step_ends("a\\n\\nb\\n \\nc", "\\n"), step_ends("<s>a</s><s>b</s>\\n", "</s>")
    ([3, 7, 8], [8, 17])
    >>> step_ends("a\\nb", "", turn_ends=(2, 3)), step_ends(" \\n", "\\n")
    ([2, 3], [])
    """
    marks = {end for end in turn_ends if 0 < end <= len(text)}
    at = text.find(separator) if separator else -1
    while at >= 0:
        marks.add(at + len(separator))
        at = text.find(separator, at + len(separator))
    ends: list[int] = []
    for start, end in pairwise([0, *sorted(marks | {len(text)})]):
        if text[start:end].strip():
            ends.append(end)
        elif ends:
            ends[-1] = end
    return ends


def pieces(text: str, ends: Sequence[int]) -> list[str]:
    """The text between the ends.

    >>> pieces("a\\nb", [2, 3])
    ['a\\n', 'b']
    """
    return [text[start:end] for start, end in pairwise([0, *ends])]


def token_places(
    text: str, ends: Sequence[int], offsets: Sequence[tuple[int, int]]
) -> list[int | None]:
    """For each end of a step the token that completes it, from the tokens' characters (start, end).

    None where that token reaches into the next step (other than by white space), or completes the
    next step too: such a step has no token of its own.

    >>> token_places("a b\\nc", [4, 5], [(0, 2), (2, 4), (4, 5)])
    [1, 2]
    >>> token_places("a b\\nc", [4, 5], [(0, 2), (2, 5)])
    [None, 1]
    """
    places: list[int | None] = []
    place = -1
    for end in ends:
        while place + 1 < len(offsets) and offsets[place + 1][0] < end:
            place += 1
        reached = offsets[place][1] if place >= 0 else 0
        places.append(None if place < 0 or text[end:reached].strip() else place)
    return [
        None if place is not None and place in places[number + 1 :] else place
        for number, place in enumerate(places)
    ]
