"""The same page served live: loopback alone, behind a token that is made for each start."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from groupwise.dashboard.data import RunView, pair
from groupwise.dashboard.index import Wanted
from groupwise.dashboard.report import page, runs_of, safe_json, short_names
from groupwise.errors import GroupwiseError, RecipeError
from groupwise.texts import from_json

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

LOOPBACK = "127.0.0.1"
MOST_GROUPS = 50
"""Groups in one answer."""

_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_WANTED = tuple(Wanted.__dataclass_fields__)


class Pages:
    """The views of some folders' runs, and what they last said."""

    def __init__(self, folders: Sequence[str | Path]) -> None:
        self.folders = folders
        self.views: dict[Path, RunView] = {}
        self._made: tuple[tuple[int, ...], list[dict[str, Any]]] | None = None
        self._lock = Lock()

    def overviews(self) -> list[dict[str, Any]]:
        """The first screens; a record is read again only where it has changed."""
        runs = [run for folder in self.folders for run in runs_of(folder)]
        names = ("metrics.jsonl", "events.jsonl", "summary.json")
        files = [run.folder / name for run in runs for name in names]
        state = tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)
        with self._lock:
            if self._made is None or self._made[0] != state:
                for run in runs:
                    self.views.setdefault(run.folder, RunView(run))
                made = short_names([self.views[run.folder].overview() for run in runs])
                self._made = (state, made)
            for each, run in zip(self._made[1], runs, strict=True):
                each["seen"] = self.views[run.folder].seen()
            return self._made[1]

    def warm(self) -> None:
        """Read everything that the first pages need, so that they answer at once."""
        with suppress(GroupwiseError):  # a page will say it
            self.overviews()
            for view in list(self.views.values()):
                view.facets()

    def view(self, number: str) -> RunView:
        """The view of a run by its place in the page. Raises RecipeError for another."""
        if not self.views:
            self.overviews()
        views = list(self.views.values())
        if not number.isdecimal() or int(number) >= len(views):
            raise RecipeError(f"run = {number!r}: there are {len(views)}, counted from 0")
        return views[int(number)]

    def part(self, query: dict[str, str]) -> Any:
        """One part of a run's page, by its name."""
        view, name = self.view(query.get("run", "")), query.get("name", "")
        if name == "groups":
            offset, limit = (query.get(key, "") for key in ("offset", "limit"))
            if not (offset.isdecimal() and limit.isdecimal()):
                raise RecipeError(f"offset = {offset!r}, limit = {limit!r}: give whole numbers")
            wanted = Wanted(**{key: query[key] for key in _WANTED if key in query})
            return view.groups(wanted, int(offset), min(int(limit), MOST_GROUPS))
        if name == "pair":
            return pair(view.run, self.view(query.get("other", "")).run)
        if name == "visits":
            return view.visits(query.get("prompt_id", ""))
        simple = {"facets": view.facets, "distributions": view.distributions, "passes": view.passes}
        if name in simple:
            return simple[name]()
        raise RecipeError(f"name = {name!r}: groups, visits, pair, {', '.join(simple)}")


def application(folders: Sequence[str | Path], token: str) -> Starlette:
    """`/` the page, `/data` the first screens, `/part` one part, `/seen` keeps what was read.

    Everything else, and any other token, is refused. The host's name must be a loopback one, so
    that no other site's page can ask under its name.
    """
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import HTMLResponse, PlainTextResponse
    from starlette.responses import Response as Plain
    from starlette.routing import Route

    pages = Pages(folders)

    def as_json(value: Any) -> Response:
        return Plain(safe_json(value), media_type="application/json")

    async def html(request: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(lambda: page(pages.overviews())))

    async def data(request: Request) -> Response:
        return as_json(await run_in_threadpool(pages.overviews))

    async def part(request: Request) -> Response:
        return as_json(await run_in_threadpool(pages.part, dict(request.query_params)))

    async def seen(request: Request) -> Response:
        keys = from_json(await request.body())
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise RecipeError("seen: give a list of texts")
        pages.view(request.query_params.get("run", "")).add_seen(keys[:1000])
        return as_json(len(keys))

    def guarded(make: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            host = request.headers.get("host", "").rsplit(":", 1)[0]
            given = request.query_params.get("token", "")
            if host not in (LOOPBACK, "localhost") or not secrets.compare_digest(
                given.encode(), token.encode()
            ):
                return PlainTextResponse("open the address that the command printed", 403)
            try:
                response: Response = await make(request)
            except (GroupwiseError, OSError, ValueError) as error:
                response = PlainTextResponse(str(error), 400)
            response.headers.update(_HEADERS)
            return response

        return answer

    routes = [Route(f"/{each.__name__}", guarded(each)) for each in (data, part)]
    routes += [Route("/", guarded(html)), Route("/seen", guarded(seen), methods=["POST"])]
    made = Starlette(routes=routes)
    made.state.pages = pages
    return made


def view(
    folders: Sequence[str | Path], *, port: int = 0, say: Callable[[str], Any] = print
) -> None:
    """Serve the page of these runs until interrupted; `say` gets the address with its token.

    `port` 0 takes a free one. Raises RecipeError for a folder without a record or a port in use.
    """
    import socket

    import uvicorn

    for folder in folders:
        runs_of(folder)  # refused before anything is served
    token = secrets.token_urlsafe(24)
    served = application(folders, token)
    server = uvicorn.Server(uvicorn.Config(served, log_level="warning", access_log=False))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((LOOPBACK, port))
        except OSError as error:
            raise RecipeError(
                f"port = {port} cannot be used ({error.strerror}); 0 takes a free one"
            ) from error
        Thread(target=served.state.pages.warm, daemon=True).start()
        say(f"http://{LOOPBACK}:{listening.getsockname()[1]}/?token={token}")
        server.run(sockets=[listening])
