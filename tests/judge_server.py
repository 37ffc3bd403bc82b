"""A stub judge on the loopback: an OpenAI-compatible endpoint that replies as a test says."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import loopback

Reply = str | tuple[int, str]
Talk = Callable[[dict[str, Any]], Reply]


class Stub:
    """`talk(request body)` gives the reply's content, or a status and a body."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""


def question(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def field(body: dict[str, Any]) -> str:
    """The verdict field that the question asks for."""
    found = re.search(r'\{"((?:score|better|order)_[0-9a-f]{8})"', question(body))
    assert found is not None
    return found.group(1)


@contextmanager
def serving(talk: Talk, *, chunked: bool = False, drip: float = 0.0) -> Iterator[Stub]:
    stub = Stub(talk)

    class Handler(loopback.Handler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            stub.requests.append(body)
            stub.headers.append(dict(self.headers))
            reply = stub.talk(body)
            status, text = reply if isinstance(reply, tuple) else (200, _wrapped(reply))
            self.send_response(status)
            if chunked:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                raw = text.encode()
                for part in (raw[:7], raw[7:]):
                    self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                self.wfile.write(b"0\r\n\r\n")
                return
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            try:
                for byte in text.encode() if drip else ():
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    time.sleep(drip)
                self.wfile.write(b"" if drip else text.encode())
            except OSError:  # the client gave up, as it should
                return

    server = loopback.Server(Handler)
    stub.url = f"{server.url}/v1"
    try:
        yield stub
    finally:
        server.stop()


def _wrapped(content: str) -> str:
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]})
