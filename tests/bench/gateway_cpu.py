"""What a request costs the gateway with everything on, beside the same calls without it.

    .venv/bin/python -m tests.bench.gateway_cpu [--rounds 3]

Three ways to one scripted engine: straight to it, through a bare pass-through (uvicorn and the
gateway's own EngineClient, no policy), and through `manage.py serve` with key check, admission,
budgets, fair queue, metering, journal and ledger into SQLite. CPU is user + system time of the
process in the middle, all its threads, pinned to one core. Medians of interleaved rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import uvloop

from tests.acceptance.stack import ROOT, Stack, demo_policy
from tests.bench import upstream
from tests.bench.load import Answer, Caller, ask_all, connect, message
from tests.bench.scripted import EVENTS
from tests.bench.upstream import stop

PATH = "/v1/chat/completions"
STREAMS = 64
REST_S = 0.3  # the ledger follows the journal by 0.2 s; its work belongs to the load
HELD = (256, 1024)  # streams held open for the memory of one; the first of them warm everything
DIRECT, BARE, FAIRLANE = "straight to the engine", "bare pass-through", "Fairlane"


def body(**more: Any) -> bytes:
    asked = {
        "model": "demo-chat",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "word " * 100},
        ],
        "temperature": 0.7,
        **more,
    }
    return json.dumps(asked, separators=(",", ":")).encode()


PLAIN = body(max_tokens=64)
STREAM = body(max_tokens=128, stream=True)
SILENT = body(max_tokens=1, stream=True)


def policy(engine: str) -> dict[str, Any]:
    """The demo's, every kind of limit and budget in force, none of them reached."""
    made = demo_policy([engine])
    made["pools"][0]["capacity"] = {"max_running": 2000, "max_running_tokens": 10**8}
    most = {"max_running": 2000, "max_queued": 2000, "max_input_tokens": 32768}
    rates = {"requests_per_minute": 10**6, "tokens_per_minute": 10**9}
    made["tiers"][0]["limits"] = {**most, **rates, "max_output_tokens": 4096}
    made["tiers"][0]["budgets"] = [
        {"name": "burst", "kind": "burst", "cost": 10**9, "refill_per_second": 10**6},
        {"name": "hourly", "kind": "sustained", "cost": 10**12, "period": "hour"},
        {"name": "monthly", "kind": "sustained", "cost": 10**12, "period": "month"},
    ]
    return made


@dataclass
class Way:
    name: str
    port: int
    process: psutil.Process | None = None
    key: str = ""
    figures: dict[str, list[float]] = field(default_factory=dict)

    def cpu_s(self) -> float:
        if self.process is None:
            return 0.0
        spent = self.process.cpu_times()
        return spent.user + spent.system

    def pin(self) -> None:
        if self.process is not None:
            for thread in self.process.threads():
                os.sched_setaffinity(thread.id, {0})

    def note(self, name: str, figure: float) -> None:
        self.figures.setdefault(name, []).append(figure)

    def median(self, name: str) -> float:
        return statistics.median(self.figures[name])


@contextmanager
def ways(folder: Path) -> Iterator[list[Way]]:
    with ExitStack() as stopping:
        engine, engine_port = start("tests.bench.scripted")
        stopping.callback(stop, engine)
        bare, bare_port = upstream.start(
            *("--passage", next(iter(upstream.WAYS)), "--engine-port", str(engine_port))
        )
        stopping.callback(stop, bare)
        served = Stack(folder)
        served.manage("migrate", "--verbosity", "0")
        served.apply(policy(f"http://127.0.0.1:{engine_port}/v1"))
        key = served.key("globex", "--application", "search")
        served.start()
        stopping.callback(served.stop)
        assert served.serving is not None
        gateway = psutil.Process(served.serving.pid)
        yield [
            Way(DIRECT, engine_port),
            Way(BARE, bare_port, psutil.Process(bare.pid)),
            Way(FAIRLANE, served.port, gateway, key),
        ]


def start(module: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [sys.executable, "-m", module], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


# --- trials --------------------------------------------------------------------------------------


async def load(way: Way, asked: bytes, at_once: int, each: int) -> tuple[list[Answer], float]:
    """The answers, and the CPU seconds that they cost the process in the middle."""
    callers = [await connect(way.port) for _ in range(at_once)]
    request = message(PATH, asked, way.key)
    way.pin()
    await ask_all(callers, request, 2)  # warm, with every pool at its size
    await asyncio.sleep(REST_S)
    before = way.cpu_s()
    answers = await ask_all(callers, request, each)
    await asyncio.sleep(REST_S)
    spent = way.cpu_s() - before
    for caller in callers:
        caller.transport.close()
    return answers, spent


async def plain(way: Way, at_once: int, each: int) -> None:
    answers, spent = await load(way, PLAIN, at_once, each)
    name = f"plain, c={at_once}"
    way.note(f"{name}: CPU, µs a request", spent / len(answers) * 1e6)
    took = sorted(answer.total_s * 1e3 for answer in answers)
    way.note(f"{name}: latency p50, ms", took[len(took) // 2])
    way.note(f"{name}: latency p99, ms", took[len(took) * 99 // 100])


async def paced(way: Way) -> None:
    answers, spent = await load(way, STREAM, STREAMS, 3)
    events = sum(answer.body.count(b"data: ") for answer in answers)
    assert events == len(answers) * EVENTS, (way.name, events)
    way.note("paced: CPU, µs an event", spent / events * 1e6)


async def burst(way: Way) -> None:
    """64 streams that begin in the same instant, and 64 that begin a millisecond apart."""
    callers = [await connect(way.port) for _ in range(STREAMS)]
    request = message(PATH, STREAM, way.key)
    await ask_all(callers, request, 1)
    for apart_s, name in ((0.0, "at once"), (0.001, "1 ms apart")):
        for _ in range(3):
            answers = await ask_all(callers, request, 1, apart_s)
            firsts = sorted(answer.first_s * 1e3 for answer in answers)
            way.note(f"64 streams {name}: TTFT p50, ms", firsts[len(firsts) // 2])
            way.note(f"64 streams {name}: TTFT last, ms", firsts[-1])
    for caller in callers:
        caller.transport.close()


async def compare(found: list[Way], rounds: int) -> None:
    for _ in range(rounds):
        for way in found:
            await plain(way, 1, 1000)
        for way in found:
            await plain(way, 16, 300)
        for way in found:
            await paced(way)
        for way in found:
            await burst(way)


# --- memory --------------------------------------------------------------------------------------


async def hold(way: Way, streams: int) -> list[Caller]:
    """Streams that have begun and go on until their callers hang up."""
    callers = [await connect(way.port) for _ in range(streams)]
    request = message(PATH, SILENT, way.key)
    for caller in callers:
        task = asyncio.create_task(caller.ask(request))
        task.add_done_callback(lambda done: done.exception())
    while not all(getattr(caller, "_first", 0) for caller in callers):
        await asyncio.sleep(0.02)
    return callers


async def memory(way: Way) -> dict[str, float]:
    assert way.process is not None
    sizes = []
    callers: list[Caller] = []
    for streams in HELD:
        callers += await hold(way, streams - len(callers))
        await asyncio.sleep(1)
        sizes.append(way.process.memory_info().rss)
    for caller in callers:
        caller.transport.close()
    await asyncio.sleep(1)
    return {"a running stream, KiB": (sizes[1] - sizes[0]) / (HELD[1] - HELD[0]) / 1024}


def at_rest(way: Way) -> dict[str, float]:
    """Once the console has been looked at, before any load."""
    assert way.process is not None
    login = f"http://127.0.0.1:{way.port}/login/"
    httpx.get(login, follow_redirects=True, timeout=30)
    worker = sum(child.memory_info().rss for child in way.process.children(recursive=True))
    before = way.cpu_s()
    time.sleep(3)
    idle = (way.cpu_s() - before) / 3
    return {
        "serve at rest, MiB": way.process.memory_info().rss / 2**20,
        "its background worker, MiB": worker / 2**20,
        "serve at rest, CPU ms a second": idle * 1e3,
    }


def show(found: list[Way], rest: dict[str, float]) -> None:
    print(f"{'':34}" + "".join(f"{way.name:>24}" for way in found))
    for name in found[-1].figures:
        cells = [
            "—" if "CPU" in name and way.process is None else f"{way.median(name):.2f}"
            for way in found
        ]
        print(f"{name:34}" + "".join(f"{cell:>24}" for cell in cells))
    _, bare, ours = found
    name = "plain, c=16: CPU, µs a request"
    print(f"{'  less the pass-through':34}{ours.median(name) - bare.median(name):>72.2f}")
    for name, figure in rest.items():
        print(f"{name:34}{figure:>72.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    folder = tempfile.TemporaryDirectory(prefix="fairlane-bench-")
    with folder as name, ways(Path(name)) as found:
        rest = at_rest(found[-1])
        uvloop.run(compare(found, given.rounds))
        rest |= uvloop.run(memory(found[-1]))
        show(found, rest)


if __name__ == "__main__":
    main()
