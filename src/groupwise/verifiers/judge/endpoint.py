"""One JSON request to an HTTP endpoint, with a deadline that holds.

asyncio streams and TLS from the standard library: a request that overruns is cancelled at once, its
socket closed, with no thread left waiting. One connection a request; no redirects, no proxies.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

MAX_REPLY = 4 << 20
"""Bytes of a reply; a longer one is an error."""

_RETRY = frozenset({408, 425, 429, 500, 502, 503, 504, 529})


class EndpointError(Exception):
    """The endpoint gave no usable reply. `retry`: whether asking again may help."""

    def __init__(self, message: str, *, retry: bool) -> None:
        super().__init__(message)
        self.retry = retry


async def post_json(
    url: str, payload: Mapping[str, Any], headers: Mapping[str, str], time_limit: float
) -> Any:
    """The decoded JSON body of the reply to a POST; `time_limit` is in seconds, for all of it.

    Raises TimeoutError, or EndpointError where there is no connection, the status is not 2xx, or
    the body is no JSON.
    """
    async with asyncio.timeout(time_limit):
        try:
            status, body = await _exchange(url, json.dumps(payload).encode(), headers)
        except (OSError, EOFError, ValueError, asyncio.IncompleteReadError) as error:
            if isinstance(error, TimeoutError):
                raise
            message = f"{url}: {type(error).__name__}: {error}"
            raise EndpointError(message, retry=True) from error
    text = body.decode("utf-8", errors="replace")
    if not 200 <= status < 300:
        message = f"{url} replied {status}: {' '.join(text.split())[:200]}"
        raise EndpointError(message, retry=status in _RETRY)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise EndpointError(f"{url} replied with no JSON: {text[:80]!r}", retry=True) from error


async def _exchange(url: str, content: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    context = ssl.create_default_context() if secure else None
    reader, writer = await asyncio.open_connection(
        parts.hostname, port, ssl=context, limit=MAX_REPLY
    )
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [
            f"POST {path} HTTP/1.1",
            f"Host: {parts.netloc.rpartition('@')[2]}",
            "Content-Type: application/json",
            "Accept: application/json",
            f"Content-Length: {len(content)}",
            "Connection: close",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
        await writer.drain()
        return await _reply(reader)
    finally:
        writer.close()


async def _reply(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ", 2)[1])
    fields = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in head[1:] if line)
    }
    if fields.get("transfer-encoding", "").lower() == "chunked":
        return status, await _chunks(reader)
    if "content-length" in fields:
        length = int(fields["content-length"])
        if length > MAX_REPLY:
            raise ValueError(f"a reply of {length} bytes, above {MAX_REPLY}")
        return status, await reader.readexactly(length)
    return status, await _until_closed(reader)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        if size == 0:
            return bytes(body)
        if len(body) + size > MAX_REPLY:
            raise ValueError(f"a reply above {MAX_REPLY} bytes")
        body += await reader.readexactly(size)
        await reader.readexactly(2)


async def _until_closed(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while chunk := await reader.read(1 << 16):
        body += chunk
        if len(body) > MAX_REPLY:
            raise ValueError(f"a reply above {MAX_REPLY} bytes")
    return bytes(body)
