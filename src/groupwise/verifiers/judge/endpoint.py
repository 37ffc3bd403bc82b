"""One JSON request to an HTTP endpoint, with a deadline that holds (httpx2)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any

from groupwise.errors import RecipeError
from groupwise.texts import from_json

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
        return from_json(text)
    except ValueError as error:
        raise EndpointError(f"{url}: the reply is not JSON: {text[:80]!r}", retry=True) from error


def key_headers(variable: str | None, where: str) -> dict[str, str]:
    """The header with the key in an environment variable; RecipeError if that is not set."""
    if variable is None:
        return {}
    if not os.environ.get(variable):
        raise RecipeError(f"{where}: the variable {variable} is not set")
    return {"Authorization": f"Bearer {os.environ[variable]}"}


async def chat_reply(
    url: str, payload: Mapping[str, Any], headers: Mapping[str, str], time_limit: float, tries: int
) -> str:
    """The text of a chat completion of an OpenAI-compatible endpoint.

    `time_limit` is in seconds, for each of the `tries`. Raises TimeoutError or EndpointError after
    the last one, and at once if another cannot help.
    """
    url = f"{url.rstrip('/')}/chat/completions"
    for number in range(1, tries + 1):
        try:
            reply = await post_json(url, payload, headers, time_limit)
            return str(reply["choices"][0]["message"]["content"] or "")
        except (KeyError, IndexError, TypeError) as error:
            found = EndpointError(f"{url}: a reply without a message", retry=True)
            found.__cause__ = error
        except EndpointError as error:
            if not error.retry:
                raise
            found = error
        except TimeoutError:
            if number == tries:
                raise
            continue
        if number < tries:
            await asyncio.sleep(0.2 * 2**number)
    raise EndpointError(f"{found} (try {tries} of {tries})", retry=True) from found
