"""A caller's side of a socket: one request, sent at once, its answer read when asked.

Many calls need no thread: each has a connection of its own, and the kernel keeps what came.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from django.utils.functional import cached_property  # functools' holds one lock for all callers

from tests.acceptance.stack import PATIENCE_S

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hello there"}]


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of an error, or of the error event that a stream ends with."""
        return str(self.error["code"])

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = (self.events[-1] if self.streamed else self.json)["error"]
        return found

    @property
    def message(self) -> str:
        return str(self.error["message"])

    @property
    def id(self) -> str:
        return self.headers["x-request-id"]

    @property
    def streamed(self) -> bool:
        return self.headers["content-type"].startswith("text/event-stream")

    @property
    def done(self) -> bool:
        return self.body.endswith(b"data: [DONE]\n\n")

    @property
    def events(self) -> list[dict[str, Any]]:
        lines = [line[6:] for line in self.body.split(b"\n") if line.startswith(b"data: ")]
        return [json.loads(line) for line in lines if line != b"[DONE]"]


class Call:
    """One request, sent when this is made, on a connection of its own."""

    def __init__(
        self,
        port: int,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        receive_buffer: int | None = None,
    ) -> None:
        self._http = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        self._http.sock = sock = socket.socket()
        sock.settimeout(PATIENCE_S)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            sock.connect(("127.0.0.1", port))
            self._http.request(method, path, body, dict(headers))
        except OSError:
            sock.close()
            raise

    @cached_property
    def response(self) -> HTTPResponse:
        """Waits for the head of the answer."""
        return self._http.getresponse()

    def send_more(self, body: bytes) -> None:
        self._http.send(body)

    def answer(self) -> Answer:
        try:
            headers = {name.lower(): value for name, value in self.response.getheaders()}
            return Answer(self.response.status, headers, self.response.read())
        finally:
            self.close()

    def close(self) -> None:
        if "response" in self.__dict__:
            self.response.close()
        self._http.close()

    def read_events(self, count: int) -> bytes:
        """So many events of a stream, as they come."""
        seen = b""
        while seen.count(b"\n\n") < count:
            line = self.response.readline()
            assert line, f"the stream ended after {seen!r}"
            seen += line
        return seen

    def hang_up(self, reset: bool = False) -> None:
        """Close the connection, or reset it as a killed client's kernel would."""
        sock = self._http.sock
        assert sock is not None
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


@dataclass(frozen=True, slots=True)
class Caller:
    """An application of one tenant, with its key."""

    port: int
    tenant: str
    key: str
    key_id: str
    model: str = "chat"

    def start(
        self,
        path: str = CHAT,
        headers: Mapping[str, str] = {},
        receive_buffer: int | None = None,
        **body: Any,
    ) -> Call:
        """Send a call; the answer is read later."""
        said = {"model": self.model, **body}
        if path == CHAT:
            said.setdefault("messages", HELLO)
        return self.send(path, json.dumps(said).encode(), headers, receive_buffer)

    def send(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str] = {},
        receive_buffer: int | None = None,
    ) -> Call:
        own = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        return Call(self.port, "POST", path, body, {**own, **headers}, receive_buffer)

    def chat(self, headers: Mapping[str, str] = {}, **body: Any) -> Answer:
        return self.start(headers=headers, **body).answer()

    def get(self, path: str) -> Answer:
        return Call(self.port, "GET", path, None, {"Authorization": f"Bearer {self.key}"}).answer()
