"""An engine in this process that does to the gateway what a test wants, byte by byte."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Asked(BaseHTTPRequestHandler):
    """One call that it got; `act` answers it."""

    protocol_version = "HTTP/1.1"
    server: OwnEngine

    def do_GET(self) -> None:
        self.whole(200, {"data": []})

    def do_POST(self) -> None:
        self.body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.paths.append(self.path)
        self.server.act(self)

    def whole(self, status: int, body: Any, **headers: str) -> None:
        data = json.dumps(body).encode() if not isinstance(body, bytes) else body
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def begin(self) -> None:
        """A stream; its parts are `part`s, and `end` ends it."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def part(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def break_off(self) -> None:
        self.close_connection = True

    def wait_for_the_end(self) -> None:
        """Until the gateway closes the connection."""
        self.connection.settimeout(60)
        if self.connection.recv(1) == b"":
            self.server.left += 1
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None: ...


class OwnEngine(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Asked)
        self.act: Callable[[Asked], None] = lambda asked: asked.whole(200, {})
        self.paths: list[str] = []
        self.left = 0  # calls whose connection the gateway closed

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A gateway that leaves is what many a test is about."""


@contextmanager
def own_engine() -> Iterator[OwnEngine]:
    with OwnEngine() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
