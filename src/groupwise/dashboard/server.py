"""The same page served live: loopback alone, behind a token that is made for each start."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.dashboard.data import GROUPS
from groupwise.dashboard.report import page, pages_data, runs_of, safe_json
from groupwise.errors import GroupwiseError, RecipeError

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

LOOPBACK = "127.0.0.1"

_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def application(folders: Sequence[str | Path], token: str, groups: int = GROUPS) -> Starlette:
    """`/` the page, `/data` its data as JSON; everything else, and any other token, is refused.

    The host's name must be a loopback one, so that no other site's page can ask under its name.
    """
    from starlette.applications import Starlette
    from starlette.responses import HTMLResponse, PlainTextResponse
    from starlette.responses import Response as Plain
    from starlette.routing import Route

    def answered(make: Callable[[], Response]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            host = request.headers.get("host", "").rsplit(":", 1)[0]
            given = request.query_params.get("token", "")
            if host not in (LOOPBACK, "localhost") or not secrets.compare_digest(
                given.encode(), token.encode()
            ):
                return PlainTextResponse("open the address that the command printed", 403)
            response = make()
            response.headers.update(_HEADERS)
            return response

        return answer

    @lru_cache(maxsize=1)
    def made(state: tuple[int, ...]) -> list[dict[str, Any]]:
        return pages_data(folders, groups)

    def html() -> Response:
        return HTMLResponse(page(made(_state(folders))))

    def data() -> Response:
        return Plain(safe_json(made(_state(folders))), media_type="application/json")

    return Starlette(routes=[Route("/", answered(html)), Route("/data", answered(data))])


def _state(folders: Sequence[str | Path]) -> tuple[int, ...]:
    """Changes where a record has: a page asks every few seconds, and reading one takes long."""
    names = ("metrics.jsonl", "events.jsonl", "summary.json")
    files = [run.folder / name for folder in folders for run in runs_of(folder) for name in names]
    return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)


def view(
    folders: Sequence[str | Path],
    *,
    port: int = 0,
    groups: int = GROUPS,
    say: Callable[[str], Any] = print,
) -> None:
    """Serve the page of these runs until interrupted; `say` gets the address with its token.

    `port` 0 takes a free one. Raises RecipeError for a folder without a record or a port in use,
    GroupwiseError where starlette and uvicorn are not installed.
    """
    try:
        import uvicorn
    except ImportError as error:
        raise GroupwiseError("groupwise view needs: pip install 'groupwise[view]'") from error
    import socket

    for folder in folders:
        runs_of(folder)  # refused before anything is served
    token = secrets.token_urlsafe(24)
    server = uvicorn.Server(
        uvicorn.Config(application(folders, token, groups), log_level="warning", access_log=False)
    )
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((LOOPBACK, port))
        except OSError as error:
            raise RecipeError(
                f"port = {port} cannot be used ({error.strerror}); 0 takes a free one"
            ) from error
        say(f"http://{LOOPBACK}:{listening.getsockname()[1]}/?token={token}")
        server.run(sockets=[listening])
