"""The errors a user meets, each with the exit code the command line gives it."""

from __future__ import annotations


class GroupwiseError(Exception):
    """A failure with one clear message. Exit code 1."""

    exit_code = 1

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows in place of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class RecipeError(GroupwiseError, ValueError):
    """Bad input, refused early: field, value, a legal one. Exit code 2."""

    exit_code = 2


class VerifierError(GroupwiseError):
    """A verifier raised or broke its contract: names the verifier, the row and the error."""


class NonFiniteError(GroupwiseError):
    """A NaN or an infinity where a number must be: names the step and the tensor."""
