"""The `groupwise` command. Exit codes: 0, 1 a failed run, 2 bad input, 130 and 143 interrupted."""

from groupwise.cli.app import main

__all__ = ["main"]
