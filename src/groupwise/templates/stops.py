"""Finds stop strings across token boundaries, without re-encoding ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from groupwise.errors import RecipeError

# Tokens of slack in front of the window: decoders treat a text's first token differently (leading
# spaces, halves of a character), and a stop string must not begin there.
_SLACK = 4


class StopStrings:
    """Says whether the newest token completed a stop string.

    >>> stops = StopStrings(("</a>",), lambda ids: "".join("x</ a> y".split(" ")[i] for i in ids))
    >>> [stops.ended(ids) for ids in ([0], [0, 1], [0, 2])]
    [False, False, False]
    >>> stops.cut("x</a>y")
    'x</a>'
    """

    def __init__(self, strings: Sequence[str], decode: Callable[[Sequence[int]], str]) -> None:
        """`decode` turns a completion's ids into its text (`Template.decode_completion`)."""
        for string in strings:
            if not string:
                raise RecipeError("stop: a stop string is empty; give at least one character")
        self.strings = tuple(strings)
        self._decode = decode
        longest = max((len(string.encode()) for string in self.strings), default=0)
        self._window = longest + _SLACK

    def __bool__(self) -> bool:
        return bool(self.strings)

    def ended(self, ids: Sequence[int]) -> bool:
        """True where the text of `ids` (a completion so far) holds a stop string near its end.

        Call it after every token: only the last tokens are decoded, as many as the longest stop
        string has bytes, for a token has at least one.
        """
        if not self.strings:
            return False
        tail = self._decode(ids[-self._window :])
        return any(string in tail for string in self.strings)

    def cut(self, text: str) -> str:
        """`text` up to the end of the stop string that ends first, or all of it without one.

        The last token may extend past the stop string. Its id stays (ids are never re-encoded), but
        the extra characters are not part of the completion's text.
        """
        ends = [at + len(string) for string in self.strings if (at := text.find(string)) >= 0]
        return text[: min(ends)] if ends else text
