"""The HTTP side: routes, keys, server-sent events. Starlette and uvicorn, one event loop."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from groupwise.errors import GroupwiseError
from groupwise.serving.desk import Client, Desk
from groupwise.serving.protocol import (
    ApiError,
    answer,
    chunks,
    known_model,
    read_body,
    read_request,
)
from groupwise.waiting.calls import EventLoop

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

LOOPBACK = "127.0.0.1"
MOST_BYTES = 32 << 20
"""Bytes of a request's body at most."""
START_LIMIT = 20.0
"""Seconds within which the server must answer."""

ClientOf = Callable[[str], Client | None]


def application(desk: Desk, client_of: ClientOf, models: Sequence[str]) -> Starlette:
    """`/v1/models`, `/v1/chat/completions` and `/v1/completions` for the clients of a desk.

    `client_of` is asked with the key of every request. `models` are the names that it answers to;
    the first one is shown.
    """
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect
    from starlette.responses import JSONResponse, StreamingResponse
    from starlette.routing import Route

    def client(request: Request) -> Client:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        found = client_of(key.strip()) if scheme.lower() == "bearer" else None
        if found is None:
            what = "this key is not known" if key else "no key: send Authorization: Bearer KEY"
            raise ApiError(what, status=401, code="invalid_api_key")
        return found

    async def body(request: Request) -> Any:
        parts, size = [], 0
        try:
            async for part in request.stream():
                parts.append(part)
                size += len(part)
                if size > MOST_BYTES:
                    raise ApiError(f"the body has more than {MOST_BYTES} bytes", status=413)
        except ClientDisconnect as error:
            raise ApiError("the body is not whole: its client has gone") from error
        return read_body(b"".join(parts))

    def completions(chat: bool) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Response:
            own = client(request)
            asked = read_request(await body(request), models, chat=chat)
            choices = await asyncio.wrap_future(desk.put(own, asked))
            if asked.stream:
                return StreamingResponse(chunks(asked, choices), media_type="text/event-stream")
            return JSONResponse(answer(asked, choices))

        return respond

    async def list_models(request: Request) -> Response:
        client(request)
        return JSONResponse({"object": "list", "data": [entry(models[0])]})

    async def one_model(request: Request) -> Response:
        client(request)
        return JSONResponse(entry(known_model(request.path_params["name"], models)))

    def entry(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": 0, "owned_by": "groupwise"}

    def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, ApiError)
        return JSONResponse(error.body, error.status)

    def not_here(request: Request, error: Exception) -> Response:
        where = f"{request.method} {request.url.path} is not served; there is /v1/models, "
        found = ApiError(f"{where}/v1/chat/completions, /v1/completions", code="unknown_url")
        return JSONResponse(found.body, getattr(error, "status_code", 404))

    return Starlette(
        routes=[
            Route("/v1/models", list_models),
            Route("/v1/models/", list_models),
            Route("/v1/models/{name:path}", one_model),
            Route("/v1/chat/completions", completions(chat=True), methods=["POST"]),
            Route("/v1/completions", completions(chat=False), methods=["POST"]),
        ],
        exception_handlers={ApiError: refused, 404: not_here, 405: not_here},
    )


def uvicorn_server(app: Starlette) -> Any:
    """A server that is not yet running."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)


class Running:
    """The application served on a socket in a thread of its own, until `close`."""

    def __init__(self, app: Starlette, listening: socket.socket) -> None:
        self._server = uvicorn_server(app)
        self._listening = listening
        host, port, *_ = listening.getsockname()
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"
        self._loop = EventLoop()
        serving = self._server.serve(sockets=[listening])
        self._ended: Future[Any] = self._loop.start(serving, threading.TIMEOUT_MAX)
        limit = time.monotonic() + START_LIMIT
        while not self._server.started:
            if self._ended.done() or time.monotonic() > limit:
                raise GroupwiseError(f"the server at {self.address} did not start")
            time.sleep(0.01)

    def close(self) -> None:
        """Ends the server; open connections are closed."""
        self._server.should_exit = True
        self._ended.exception(timeout=START_LIMIT)
        self._loop.stop()
        self._listening.close()
