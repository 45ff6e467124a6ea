"""An HTTP server that stands in for an engine: it answers what a test says, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StandIn(ThreadingHTTPServer):
    """Answers what `answers` says for (method, path), and remembers what was asked."""

    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that has had enough is no error."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[tuple[str, str], tuple[int, Any]] = {}
        self.asked: list[tuple[str, str, Any]] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """One request; an answer that can be called gets the handler."""

    server: StandIn

    def answer(self) -> None:
        """Any request."""
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        self.server.asked.append((self.command, self.path, body))
        status, content = self.server.answers.get((self.command, self.path), (404, {"error": "no such path"}))
        if callable(content):
            content(self)
            return
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if 300 <= status < 400:
            self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextmanager
def stand_in() -> Iterator[StandIn]:
    """A server that runs as long as the context."""
    server = StandIn()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
