"""What a bare pass-through costs with each way of reaching the engine, in CPU time.

    .venv/bin/python -m tests.bench.upstream [--rounds 3]

Three processes: an engine on raw sockets, the pass-through under uvicorn (the one measured), and
this one, which makes the load. Figures are user + system time of the pass-through, server side
included: µs a request for `plain`, µs an event (its share of the request's cost included) for
streams. Medians of interleaved rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from typing import Any, cast

import httpx
import psutil
import uvicorn
import uvloop

from gateway.upstream.client import EngineClient
from gateway.upstream.transport import EngineTransport
from tests.over_httpx import AsHttpx

EVENTS = 66
STREAMS = 64
PACE_S = 0.010
EVENT = (
    b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":" word"}}]}\n\n'.ljust(180) + b"\n"
)
ANSWER = b'{"id":"c1","usage":{"prompt_tokens":12,"completion_tokens":34}}'.ljust(400)
PROMPT = b'{"model":"m","messages":[{"role":"user","content":"' + b"word " * 100 + b'"}]}'

# --- the engine ----------------------------------------------------------------------------------


class Engine(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.buffer.endswith(b"]}"):  # every prompt here ends so
            path, self.buffer = self.buffer.split(b" ", 2)[1], b""
            self.answer(path)

    def answer(self, path: bytes) -> None:
        if path == b"/plain":
            head = (
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            )
            self.transport.write(head % len(ANSWER) + ANSWER)
            return
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        self.transport.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
        self.event(0, PACE_S if path == b"/paced" else 0.0)

    def event(self, number: int, pause_s: float) -> None:
        if self.transport.is_closing():
            return
        if number == EVENTS:
            self.transport.write(b"0\r\n\r\n")
            return
        self.transport.write(b"%x\r\n%b\r\n" % (len(EVENT), EVENT))
        loop = asyncio.get_running_loop()
        if pause_s:
            loop.call_later(pause_s, self.event, number + 1, pause_s)
        else:
            loop.call_soon(self.event, number + 1, pause_s)


async def run_engine() -> None:
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# --- the pass-through ----------------------------------------------------------------------------

Answer = tuple[int, list[tuple[bytes, bytes]], AsyncIterator[bytes]]


class Direct:
    """The gateway's way: EngineClient over a transport."""

    def __init__(self, origin: str, transport: EngineTransport) -> None:
        self.origin = origin
        self.client = EngineClient(transport)

    @asynccontextmanager
    async def ask(self, path: str, body: bytes) -> AsyncIterator[Answer]:
        answer = await self.client.send(
            "POST", self.origin + path, [], body, connect_s=5, first_byte_s=120
        )
        try:
            yield answer.status, answer.headers, self.client.iterate(answer, 60)
        finally:
            await answer.aclose()


class Whole:
    """The usual way: httpx.AsyncClient."""

    def __init__(self, origin: str, transport: httpx.AsyncBaseTransport | None) -> None:
        self.origin = origin
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self.client = httpx.AsyncClient(transport=transport, limits=limits, timeout=60)

    @asynccontextmanager
    async def ask(self, path: str, body: bytes) -> AsyncIterator[Answer]:
        async with self.client.stream("POST", self.origin + path, content=body) as response:
            yield response.status_code, response.headers.raw, response.aiter_raw()


WAYS = {
    "EngineClient, EngineTransport": lambda url: Direct(url, EngineTransport()),
    "AsyncClient, EngineTransport": lambda url: Whole(url, AsHttpx(EngineTransport())),
    "AsyncClient, its own transport": lambda url: Whole(url, None),
}
HOP = (b"transfer-encoding", b"connection")


def passing_through(way: Direct | Whole) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event["body"], event.get("more_body", False)
        asked: AbstractAsyncContextManager[Answer] = way.ask(scope["path"], body)
        async with asked as (status, headers, pieces):
            kept = [(name.lower(), value) for name, value in headers if name.lower() not in HOP]
            await send({"type": "http.response.start", "status": status, "headers": kept})
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


async def run_passage(name: str, engine_port: int) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    app = passing_through(WAYS[name](f"http://127.0.0.1:{engine_port}"))
    config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
    print(listener.getsockname()[1], flush=True)
    await uvicorn.Server(config).serve(sockets=[listener])


# --- the load ------------------------------------------------------------------------------------


async def load(client: EngineClient, url: str, size: int, each: int, at_once: int) -> None:
    async def worker() -> None:
        for _ in range(each):
            answer = await client.send("POST", url, [], PROMPT, connect_s=5, first_byte_s=60)
            got = sum([len(piece) async for piece in client.iterate(answer, 60)])
            await answer.aclose()
            assert (answer.status, got) == (200, size)

    await asyncio.gather(*(worker() for _ in range(at_once)))


class Passage:
    def __init__(self, name: str, engine_port: int, stack: ExitStack) -> None:
        self.name = name
        self.process, self.port = start("--passage", name, "--engine-port", str(engine_port))
        stack.callback(stop, self.process)
        self.usage = psutil.Process(self.process.pid)

    async def measure(self, path: str, size: int, each: int, at_once: int, units: int) -> float:
        """CPU µs per unit."""
        client = EngineClient(EngineTransport())
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            await load(client, url, size, 2, at_once)  # warm, with the pool at its size
            before = self.usage.cpu_times()
            await load(client, url, size, each, at_once)
            after = self.usage.cpu_times()
        finally:
            await client.aclose()
        spent = after.user + after.system - before.user - before.system
        return spent * 1e6 / (each * at_once * units)


TRIALS = {
    "plain, c=1": ("/plain", len(ANSWER), 1500, 1, 1),
    "plain, c=16": ("/plain", len(ANSWER), 150, 16, 1),
    "paced, per event": ("/paced", len(EVENT) * EVENTS, 3, STREAMS, EVENTS),
    "unpaced, per event": ("/burst", len(EVENT) * EVENTS, 3, STREAMS, EVENTS),
}


async def compare(rounds: int) -> None:
    with ExitStack() as stack:
        engine, engine_port = start("--engine")
        stack.callback(stop, engine)
        passages = [Passage(name, engine_port, stack) for name in WAYS]
        print(f"{'CPU µs':32}" + "".join(f"{trial:>20}" for trial in TRIALS))
        figures: dict[tuple[str, str], list[float]] = {}
        for _ in range(rounds):
            for trial, (path, size, each, at_once, units) in TRIALS.items():
                for passage in passages:
                    cost = await passage.measure(path, size, each, at_once, units)
                    figures.setdefault((passage.name, trial), []).append(cost)
        for name in WAYS:
            row = [statistics.median(figures[name, trial]) for trial in TRIALS]
            print(f"{name:32}" + "".join(f"{figure:20.0f}" for figure in row))


def start(*arguments: str) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-m", "tests.bench.upstream", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--passage", help=argparse.SUPPRESS)
    parser.add_argument("--engine-port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        uvloop.run(run_engine())
    elif options.passage:
        os.sched_setaffinity(0, {0})
        uvloop.run(run_passage(options.passage, options.engine_port))
    else:
        uvloop.run(compare(options.rounds))


if __name__ == "__main__":
    main()
