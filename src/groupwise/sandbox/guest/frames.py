"""Frames on a pipe, seen from the child: four bytes of length, then JSON. Blocking."""

from __future__ import annotations

import json
import os
from typing import Any

COMMAND_FD, REPLY_FD = 3, 4
"""Where a child finds its pipes to and from the parent."""


def read_frame(descriptor: int = COMMAND_FD) -> Any:
    """The next frame; `EOFError` where the pipe ended."""
    length = int.from_bytes(_read(descriptor, 4), "big")
    return json.loads(_read(descriptor, length))


def _read(descriptor: int, count: int) -> bytes:
    chunks: list[bytes] = []
    while count:
        chunk = os.read(descriptor, min(count, 1 << 20))
        if not chunk:
            raise EOFError
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)


def write_frame(message: Any, descriptor: int = REPLY_FD) -> None:
    """Sends a frame, whole."""
    raw = json.dumps(message, separators=(",", ":")).encode()
    data = memoryview(len(raw).to_bytes(4, "big") + raw)
    while data:
        data = data[os.write(descriptor, data) :]
