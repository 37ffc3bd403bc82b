"""One pinned file of a Python package registry: found, fetched with resume, checked.

The registry is the one that pip is configured with, spoken to over its simple index (PEP 503 and
691), with the proxies and certificates of the environment. Left out: what the file is for.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import unescape
from http.client import HTTPException
from pathlib import Path
from typing import Any

from groupwise.errors import GroupwiseError

DEFAULT_INDEX = "https://pypi.org/simple"
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_BLOCK = 1 << 20
_ATTEMPTS = 5
_TIMEOUT = 60.0

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """A file of a package, known by its hash."""

    project: str
    version: str
    filename: str
    sha256: str


class _RestartError(Exception):
    """The bytes so far cannot be continued; begin again."""


def fetch(pinned: PinnedFile, folder: Path, progress: Progress | None = None) -> Path:
    """The file in `folder`, fetched when it is not there. One process at a time.

    What an interrupted fetch left (`<filename>.part`) is continued. Raises GroupwiseError where no
    registry gives the file, or it is not the pinned one.
    """
    from filelock import FileLock

    target = folder / pinned.filename
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{pinned.filename}.lock")
        with lock:
            if target.is_file() and _sha256(target) == pinned.sha256:
                return target
            part = folder / f"{pinned.filename}.part"
            _download(find_url(pinned, folder), part, pinned, progress)
            part.replace(target)
    except OSError as error:
        raise GroupwiseError(
            f"{pinned.filename} could not be fetched into {str(folder)!r}: {error}"
        ) from error
    return target


def index_urls() -> list[str]:
    """The registries to ask, in order: pip's (environment, then its configuration), uv's, PyPI."""
    urls: list[str] = []
    for name in ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        urls.extend(os.environ.get(name, "").split())
    if not urls:
        urls.extend(_pip_setting("global.index-url"))
    if not urls:
        urls.append(DEFAULT_INDEX)
    urls.extend(os.environ.get("PIP_EXTRA_INDEX_URL", "").split())
    urls.extend(_pip_setting("global.extra-index-url"))
    return list(dict.fromkeys(url.rstrip("/") for url in urls))


def _pip_setting(name: str) -> list[str]:
    """A value of pip's configuration; empty where pip or the value is not there."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "config", "get", name],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split() if done.returncode == 0 else []


def find_url(pinned: PinnedFile, folder: Path) -> str:
    """Where the file is, from the first registry that lists it.

    Raises GroupwiseError naming every registry asked and what each said.
    """
    said: list[str] = []
    for index in index_urls():
        page = f"{index}/{pinned.project}/"
        try:
            with _open(page, {"Accept": _ACCEPT}) as response:
                body = response.read().decode("utf-8", "replace")
                base = response.geturl()
        except (OSError, HTTPException) as error:
            said.append(f"{_shown(page)}: {getattr(error, 'reason', None) or error}")
            continue
        for name, url in _links(body, base):
            if name == pinned.filename:
                return _with_login(url, page)
        said.append(f"{_shown(page)}: does not list {pinned.filename}")
    raise GroupwiseError(
        f"no package registry gave {pinned.filename} ({'; '.join(said)}). Check the network, proxy "
        "or PIP_INDEX_URL; or get it on another machine with `pip download --no-deps "
        f"{pinned.project}=={pinned.version}` and put it into {str(folder)!r}"
    )


def _links(body: str, base: str) -> Iterator[tuple[str, str]]:
    """(file name, absolute url) of a simple index page, JSON or HTML."""
    if body.lstrip().startswith("{"):
        for entry in json.loads(body).get("files", []):
            yield entry["filename"], urllib.parse.urljoin(base, entry["url"])
        return
    for href in re.findall(r"<a\b[^>]*?\bhref\s*=\s*[\"']([^\"']+)", body, re.IGNORECASE):
        url = urllib.parse.urldefrag(urllib.parse.urljoin(base, unescape(href))).url
        yield urllib.parse.unquote(url.rsplit("/", 1)[-1]), url


def _download(url: str, part: Path, pinned: PinnedFile, progress: Progress | None) -> None:
    """Fill `part` from `url` until its hash is the pinned one; lost connections are resumed."""
    wrong = 0
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            _continue(url, part, progress)
        except _RestartError:
            part.unlink(missing_ok=True)
            continue
        except (OSError, HTTPException) as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if attempt == _ATTEMPTS or refused:
                size = part.stat().st_size if part.is_file() else 0
                raise GroupwiseError(
                    f"fetching {_shown(url)} failed after {size} bytes ({error}); they are kept, "
                    "and the next try goes on from there"
                ) from error
            time.sleep(min(2.0**attempt, 10.0) * _pause)
            continue
        if _sha256(part) == pinned.sha256:
            return
        part.unlink()
        wrong += 1
        if wrong == 2:
            break
    raise GroupwiseError(
        f"{_shown(url)} is not the file that was pinned (sha256 {pinned.sha256}); it was thrown "
        "away. Check what the registry or proxy serves"
    )


_pause = 1.0


def _continue(url: str, part: Path, progress: Progress | None) -> None:
    """Append to `part` what is missing of `url`."""
    have = part.stat().st_size if part.is_file() else 0
    headers = {"Range": f"bytes={have}-"} if have else {}
    try:
        response = _open(url, headers)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:
            total = _total(error.headers.get("Content-Range"))
            if total == have:
                return
            raise _RestartError from error
        raise
    with response:
        resumed = getattr(response, "status", None) == 206
        left = response.headers.get("Content-Length")
        start = have if resumed else 0
        total = start + int(left) if left else None
        done = start
        with part.open("ab" if resumed else "wb") as file:
            while block := response.read(_BLOCK):
                file.write(block)
                done += len(block)
                if progress is not None:
                    progress(done, total)
            file.flush()
            os.fsync(file.fileno())
    if total is not None and done < total:
        raise OSError(f"the connection ended {total - done} bytes early")


def _total(content_range: str | None) -> int | None:
    found = re.search(r"/(\d+)$", content_range or "")
    return int(found.group(1)) if found else None


def _open(url: str, headers: dict[str, str]) -> Any:
    """Open a url with the environment's proxies and certificates; a login in it is sent."""
    parts = urllib.parse.urlsplit(url)
    sent = {"User-Agent": "groupwise", **headers}
    if parts.username is not None:
        login = (
            f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        )
        sent["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
        url = _shown(url)
    request = urllib.request.Request(url, headers=sent)
    return urllib.request.urlopen(request, timeout=_TIMEOUT, context=_certificates())


def _certificates() -> ssl.SSLContext:
    context = ssl.create_default_context()
    for name in ("PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        file = os.environ.get(name)
        if file and os.path.isfile(file):
            context.load_verify_locations(file)
    return context


def _with_login(url: str, page: str) -> str:
    """A file on the registry's own host is asked for with the registry's login."""
    file, index = urllib.parse.urlsplit(url), urllib.parse.urlsplit(page)
    if file.username is None and index.username is not None and file.hostname == index.hostname:
        login = index.netloc.rpartition("@")[0]
        return file._replace(netloc=f"{login}@{file.netloc}").geturl()
    return url


def _shown(url: str) -> str:
    """The url without a login."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as handle:
        while block := handle.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
