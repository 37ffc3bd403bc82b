"""One JSON request to an HTTP endpoint, with a deadline that holds (httpx2)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

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

    No redirects, no proxies. Raises TimeoutError, or EndpointError if there is no connection, the
    status is not 2xx, the reply is too long, or its body is not JSON.
    """
    import httpx2

    content = json.dumps(payload).encode()  # escaped, so that half of a surrogate pair passes
    headers = {"Content-Type": "application/json", **headers}
    body = bytearray()
    # Over plain HTTP no certificates are loaded, which would take longer than the request.
    client = httpx2.AsyncClient(timeout=None, trust_env=False, verify=url.startswith("https:"))
    async with asyncio.timeout(time_limit):
        try:
            async with (
                client,
                client.stream("POST", url, content=content, headers=headers) as reply,
            ):
                async for part in reply.aiter_bytes():
                    body += part
                    if len(body) > MAX_REPLY:
                        raise EndpointError(f"{url}: a reply above {MAX_REPLY} bytes", retry=True)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            message = f"{url}: {type(error).__name__}: {error}"
            raise EndpointError(message, retry=True) from error
    text = body.decode("utf-8", errors="replace")
    if not 200 <= reply.status_code < 300:
        message = f"{url} replied {reply.status_code}: {' '.join(text.split())[:200]}"
        raise EndpointError(message, retry=reply.status_code in _RETRY)
    try:
        return json.loads(text)
    except ValueError as error:
        raise EndpointError(f"{url}: the reply is not JSON: {text[:80]!r}", retry=True) from error
