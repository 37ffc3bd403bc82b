"""What the stub servers of the tests share: quiet, on a free port of the loopback, in a thread."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise every reply waits 40 ms for an acknowledgement

    def log_message(self, *arguments: Any) -> None:
        return


class Server(ThreadingHTTPServer):
    """Serves from the start until `stop`, over https with a `context`; `url` has no path."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, handler: type[Handler], context: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.url = f"http{'s' * bool(context)}://127.0.0.1:{self.server_address[1]}"
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def handle_error(self, *arguments: Any) -> None:
        return

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
