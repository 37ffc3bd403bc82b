"""Fetching a pinned file from a registry: an HTTP server that lists, resumes, breaks and lies."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from groupwise.errors import GroupwiseError
from groupwise.policies import fetch as fetching
from groupwise.policies.fetch import PinnedFile, fetch, index_urls

CONTENT = bytes(range(256)) * 12_000
PINNED = PinnedFile("pack-age", "1.0", "pack_age-1.0.whl", hashlib.sha256(CONTENT).hexdigest())


@dataclass
class Registry:
    """What the server does, and what it was asked."""

    url: str = ""
    content: bytes = CONTENT
    as_json: bool = False
    ranges: bool = True
    break_after: list[int] = field(default_factory=list)
    login: str | None = None
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    state = Registry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            state.asked.append((self.path, self.headers.get("Range")))
            expected = state.login and "Basic " + base64.b64encode(state.login.encode()).decode()
            if expected and self.headers.get("Authorization") != expected:
                self.send_error(401)
            elif self.path == "/simple/pack-age/":
                self.page()
            elif self.path == f"/files/{PINNED.filename}":
                self.file()
            else:
                self.send_error(404)

        def page(self) -> None:
            if state.as_json:
                assert "json" in self.headers["Accept"]
                files = [{"filename": "x", "url": "x"}, {"filename": PINNED.filename,
                         "url": f"/files/{PINNED.filename}"}]  # fmt: skip
                body = json.dumps({"files": files})
            else:
                body = (
                    "<html><a href='x.whl'>x</a>\n<a class=a href=\"../../files/"
                    f'{PINNED.filename}#sha256=00">{PINNED.filename}</a></html>'
                )
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def file(self) -> None:
            start = 0
            asked = self.headers.get("Range")
            if asked and state.ranges:
                start = int(asked.removeprefix("bytes=").rstrip("-"))
                if start >= len(state.content):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(state.content)}")
                    self.end_headers()
                    return
            body = state.content[start:]
            self.send_response(206 if asked and state.ranges else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: state.break_after.pop(0)] if state.break_after else body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/simple"
    monkeypatch.setenv("PIP_INDEX_URL", state.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(fetching, "_pause", 0.0)
    monkeypatch.setattr(fetching, "_pip_setting", lambda name: [])
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def files_asked(registry: Registry) -> list[str | None]:
    return [asked for path, asked in registry.asked if path.startswith("/files")]


@pytest.mark.parametrize("as_json", [True, False])
def test_found_in_either_kind_of_index_and_checked(
    registry: Registry, tmp_path: Path, as_json: bool
) -> None:
    registry.as_json = as_json
    seen: list[tuple[int, int | None]] = []
    file = fetch(PINNED, tmp_path / "new", lambda *done: seen.append(done))
    assert file.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert files_asked(registry) == [None]
    fetch(PINNED, tmp_path / "new")
    assert files_asked(registry) == [None]  # there already: nothing is fetched


def test_a_lost_connection_is_resumed(registry: Registry, tmp_path: Path) -> None:
    registry.break_after = [1_000_000, 500_000]
    assert fetch(PINNED, tmp_path).read_bytes() == CONTENT
    assert files_asked(registry) == [None, "bytes=1000000-", "bytes=1500000-"]


def test_an_interrupted_fetch_goes_on_in_the_next_process(
    registry: Registry, tmp_path: Path
) -> None:
    registry.break_after = [300_000] + [0] * 10
    with pytest.raises(GroupwiseError, match=r"failed after 300000 bytes .* goes on from there"):
        fetch(PINNED, tmp_path)
    registry.break_after.clear()
    registry.asked.clear()
    assert fetch(PINNED, tmp_path).read_bytes() == CONTENT
    assert files_asked(registry) == ["bytes=300000-"]
    assert not list(tmp_path.glob("*.part"))


def test_a_server_without_ranges_starts_again(registry: Registry, tmp_path: Path) -> None:
    registry.ranges = False
    (tmp_path / f"{PINNED.filename}.part").write_bytes(CONTENT[:1000])
    assert fetch(PINNED, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("part", [CONTENT, CONTENT + b"too long", b"wrong" + CONTENT[5:9000]])
def test_whatever_an_earlier_fetch_left(registry: Registry, tmp_path: Path, part: bytes) -> None:
    (tmp_path / f"{PINNED.filename}.part").write_bytes(part)
    assert fetch(PINNED, tmp_path).read_bytes() == CONTENT


def test_a_file_that_is_not_the_pinned_one_is_thrown_away(
    registry: Registry, tmp_path: Path
) -> None:
    registry.content = b"something else"
    with pytest.raises(GroupwiseError, match=r"not the file that was pinned \(sha256 "):
        fetch(PINNED, tmp_path)
    assert sorted(p.suffix for p in tmp_path.iterdir()) in ([], [".lock"])


def test_an_unreachable_registry_is_told_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(fetching, "_pip_setting", lambda name: [])
    with pytest.raises(GroupwiseError) as caught:
        fetch(PINNED, tmp_path)
    message = str(caught.value)
    assert (
        "no package registry gave pack_age-1.0.whl (http://127.0.0.1:9/simple/pack-age/:" in message
    )
    assert "pip download --no-deps pack-age==1.0" in message
    assert str(tmp_path) in message
    assert "secret" not in message


def test_a_registry_without_the_file_is_followed_by_the_next(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = registry.url.removesuffix("/simple")
    monkeypatch.setenv("PIP_INDEX_URL", f"{host}/other")
    with pytest.raises(GroupwiseError, match=r"/other/pack-age/: Not Found"):
        fetch(PINNED, tmp_path)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{registry.url}/")
    assert fetch(PINNED, tmp_path).read_bytes() == CONTENT


def test_a_login_in_the_index_url_is_sent(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.login = "me:p@ss"
    monkeypatch.setenv("PIP_INDEX_URL", registry.url.replace("//", "//me:p%40ss@"))
    assert fetch(PINNED, tmp_path).read_bytes() == CONTENT


def test_the_order_of_registries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    settings = {"global.index-url": ["https://a/simple/"], "global.extra-index-url": ["https://b"]}
    monkeypatch.setattr(fetching, "_pip_setting", lambda name: settings.get(name, []))
    assert index_urls() == ["https://a/simple", "https://b"]
    monkeypatch.setenv("PIP_INDEX_URL", "https://c/simple")
    assert index_urls() == ["https://c/simple", "https://b"]
    settings.clear()
    monkeypatch.delenv("PIP_INDEX_URL")
    assert index_urls() == ["https://pypi.org/simple"]
