"""An engine that says exactly the bytes a test wants, at the moment it wants."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@dataclass
class Wire:
    """One accepted connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    sent: int = 0

    async def request(self) -> bytes:
        """The next whole request, as it came; IncompleteReadError when there is none."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return head + await self.reader.readexactly(length)

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()
        self.sent += len(data)

    async def hang_up(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def reset(self) -> None:
        self.writer.transport.abort()

    async def is_left(self) -> None:
        """Wait until the other side has closed; whatever it still says is ignored."""
        with contextlib.suppress(OSError):
            while await self.reader.read(65536):
                pass


Script = Callable[[Wire], Awaitable[None]]


@dataclass
class Engine:
    script: Script
    tls: ssl.SSLContext | None = None
    host: str = "127.0.0.1"
    wires: list[Wire] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> Engine:
        self._server = await asyncio.start_server(
            self._accept, self.host, 0, ssl=self.tls, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}/v1/chat/completions"

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer)
        self.wires.append(wire)
        task = asyncio.ensure_future(self._serve(wire))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, wire: Wire) -> None:
        try:
            await self.script(wire)
        except (asyncio.IncompleteReadError, OSError):
            pass  # the client has left
        finally:
            wire.writer.close()

    async def stop_listening(self) -> None:
        self._server.close()

    async def stop(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for wire in self.wires:
            wire.writer.transport.abort()
            with contextlib.suppress(OSError):
                await wire.writer.wait_closed()


def answering(*answers: bytes) -> Script:
    """Each request on a connection gets the next answer, the last one for ever."""

    async def script(wire: Wire) -> None:
        for number in range(1_000_000):
            await wire.request()
            await wire.say(answers[min(number, len(answers) - 1)])

    return script


def closing(answer: bytes) -> Script:
    """One answer, then the end."""

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(answer)

    return script
