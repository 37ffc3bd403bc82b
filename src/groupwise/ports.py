"""Ports of this machine."""

from __future__ import annotations

import socket


def free_port(host: str) -> int:
    """A port of that address that is free now; another process may take it before its use."""
    with socket.socket() as found:
        found.bind((host, 0))
        return int(found.getsockname()[1])
