"""Frames on a pipe, four bytes of length and then JSON; and the child's end, which blocks."""

from __future__ import annotations

import json
import os
from typing import Any

COMMAND_FD, REPLY_FD = 3, 4
"""Where a child finds its pipes to and from the parent."""

NAME = 16
"""Characters of the random name by which the parent knows a child, at the start of a request."""

decode = json.JSONDecoder().decode
_encode = json.JSONEncoder(separators=(",", ":")).encode


def packed(message: Any) -> memoryview:
    """A frame."""
    raw = _encode(message).encode()
    return memoryview(len(raw).to_bytes(4, "big") + raw)


def read_frame() -> Any:
    """The parent's next frame; `EOFError` where the pipe ended."""
    length = int.from_bytes(_take(4), "big")
    return decode(_take(length).decode())


def _take(count: int) -> bytearray:
    """So many bytes and no more: what came after them must not show in this process's memory."""
    taken = bytearray(count)
    missing = memoryview(taken)
    while missing:
        number = os.readv(COMMAND_FD, [missing])
        if not number:
            raise EOFError
        missing = missing[number:]
    return taken


def write_frame(message: Any, descriptor: int = REPLY_FD) -> None:
    """Sends a frame, whole."""
    data = packed(message)
    while data:
        data = data[os.write(descriptor, data) :]
