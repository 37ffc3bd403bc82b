"""The errors a user meets, each with the exit code the command line gives it."""

from __future__ import annotations

LINE, LINES = 2000, 20
"""Characters of a message's line, and lines of a message: a wrong value may be a whole table."""


class GroupwiseError(Exception):
    """A failure with one clear message. Exit code 1."""

    exit_code = 1

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(bounded(each) if isinstance(each, str) else each for each in arguments))

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


def bounded(message: str) -> str:
    """The message, with the middle of a long line and the lines after `LINES` left out.

    >>> len(bounded("x" * 10_000)), bounded("model.name is missing")
    (2000, 'model.name is missing')
    """
    lines = message.split("\n")
    left_out = [f"... ({len(lines) - LINES} lines more)"] if len(lines) > LINES else []
    return "\n".join([*map(_bounded_line, lines[:LINES]), *left_out])


def _bounded_line(line: str) -> str:
    if len(line) <= LINE:
        return line
    left_out = f" ... ({len(line)} characters in all) ... "
    rest = LINE - len(left_out)
    return line[: rest - rest // 3] + left_out + line[len(line) - rest // 3 :]


class RecipeError(GroupwiseError, ValueError):
    """Bad input, refused early: field, value, a legal one. Exit code 2."""

    exit_code = 2


class VerifierError(GroupwiseError):
    """A verifier raised or broke its contract: names the verifier, the row and the error."""


class NonFiniteError(GroupwiseError):
    """A NaN or an infinity where a number must be: names the step and the tensor."""
