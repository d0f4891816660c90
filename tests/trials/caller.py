"""Callers of a trial: one connection a request, complete or broken off, and what came of it."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

RESET = struct.pack("ii", 1, 0)
HEAD = (
    "POST /v1/chat/completions HTTP/1.1\r\nHost: trial\r\nContent-Type: application/json\r\n"
    "Connection: close\r\nAuthorization: Bearer {key}\r\nContent-Length: {size}\r\n\r\n"
)
PATIENCE_S = 300.0  # longer than any limit of the gateway's


@dataclass(slots=True)
class Call:
    """`leave_after_s`, `leave_after_events`: when the caller hangs up; None: it stays."""

    key: str
    body: bytes
    kind: str
    leave_after_s: float | None = None
    leave_after_events: int | None = None
    # what came of it
    sent: bool = False
    status: int = 0
    request_id: str = ""
    raw: bytes = b""
    left: bool = False
    whole: bool = False  # a complete answer, as a client sees it

    @property
    def served(self) -> bool:
        return self.whole and self.status == 200


@dataclass(slots=True)
class Caller:
    port: int
    random: random.Random
    parts: list[bytes] = field(default_factory=list)

    async def ask(self, call: Call) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._ask(call)
        except OSError:
            pass  # refused, reset or broken off: `call` says how far it came
        except TimeoutError:
            call.kind += " (no end)"

    async def _ask(self, call: Call) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(HEAD.format(key=call.key, size=len(call.body)).encode() + call.body)
            await writer.drain()
            call.sent = True
            await self._read(call, reader)
        except TimeoutError:
            if call.leave_after_s is None:
                raise
            call.left = True
        finally:
            note(call)
            if call.left:
                self._hang_up(writer)
            writer.close()

    async def _read(self, call: Call, reader: asyncio.StreamReader) -> None:
        async with asyncio.timeout(call.leave_after_s):
            while data := await reader.read(65536):
                call.raw += data
                events = call.leave_after_events
                if events is not None and call.raw.count(b"data: ") >= events:
                    call.left = True
                    return

    def _hang_up(self, writer: asyncio.StreamWriter) -> None:
        """Half of them as a killed client's kernel would."""
        if self.random.random() < 0.5:
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()


def note(call: Call) -> None:
    """What the bytes say that came."""
    head, end, body = call.raw.partition(b"\r\n\r\n")
    if not end:
        return
    call.status = int(head[9:12])
    headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    call.request_id = headers.get(b"x-request-id", b"").decode()
    if b"content-length" in headers:
        call.whole = len(body) == int(headers[b"content-length"])
    else:
        call.whole = body.endswith(b"0\r\n\r\n") and b"data: [DONE]" in body


def body(script: dict[str, Any], **fields: Any) -> bytes:
    asked = {
        "model": "chat",
        "messages": [{"role": "user", "content": "Tell me about fair queues."}],
        "trial": script,
        **fields,
    }
    return json.dumps(asked).encode()
