"""The working directory, which names of models and folders are relative to, kept as it was.

A reward function that is tried on the data before the run may change it. Left out: what runs later,
when every path is absolute (`start.py`, `environments/stream.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_directory() -> Iterator[None]:
    """Go back, at the end, to where the process works now."""
    try:
        before = os.getcwd()
    except OSError:  # it was deleted: nothing is relative to it
        yield
        return
    try:
        yield
    finally:
        os.chdir(before)
