"""Each figure, one trial a way; all of them are asked the same in turn."""

from __future__ import annotations

import asyncio
import os
import random

from tests.bench.gateway.asked import PATH, PLAIN, SILENT, STREAM, STREAMS
from tests.bench.gateway.ways import Way
from tests.bench.load import Answer, Caller, ask_all, connect, message
from tests.bench.scripted import EVENTS

REST_S = 0.3  # the ledger follows the journal by 0.2 s; its work belongs to the load
HELD = (256, 1024)  # streams held open for the memory of one; the first of them warm everything
CALLERS = 64  # for calls that come at a rate
AT_A_RATE_S = 3.0
ONE_CORE = {0}


async def load(way: Way, asked: bytes, at_once: int, each: int) -> tuple[list[Answer], float]:
    """The answers, and the CPU seconds that they cost the process in the middle."""
    callers = [await connect(way.port) for _ in range(at_once)]
    request = message(PATH, asked, way.key)
    way.run_on(ONE_CORE)
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
    answers, spent = await load(way, PLAIN, at_once, max(10, each // way.slow))
    name = f"plain, c={at_once}"
    way.note(f"{name}: CPU, µs a request", spent / len(answers) * 1e6)
    took = sorted(answer.total_s * 1e3 for answer in answers)
    way.note(f"{name}: latency p50, ms", took[len(took) // 2])
    way.note(f"{name}: latency p99, ms", took[len(took) * 99 // 100])


async def paced(way: Way, streams: int) -> None:
    """CPU by the engine's events: what is in the middle may join or add some."""
    answers, spent = await load(way, STREAM, streams, 1 if way.slow > 1 else 3)
    events = len(answers) * EVENTS
    passed = sum(answer.body.count(b"data: ") for answer in answers)
    assert passed == events or way.slow > 1, (way.name, passed)
    way.note(f"{streams} streams: CPU, µs an event", spent / events * 1e6)


async def burst(way: Way) -> None:
    """64 streams that begin in the same instant, and 64 that begin a millisecond apart."""
    callers = [await connect(way.port) for _ in range(STREAMS)]
    request = message(PATH, STREAM, way.key)
    await ask_all(callers, request, 1)
    for apart_s, name in ((0.0, "in one instant"), (0.001, "1 ms apart")):
        for _ in range(1 if way.slow > 1 else 3):
            answers = await ask_all(callers, request, 1, apart_s)
            firsts = sorted(answer.first_s * 1e3 for answer in answers)
            way.note(f"64 streams {name}: TTFT p50, ms", firsts[len(firsts) // 2])
            way.note(f"64 streams {name}: TTFT last, ms", firsts[-1])
    for caller in callers:
        caller.transport.close()


HALF = "at half of Fairlane's full load"


async def at_a_rate(way: Way, rate: float, name: str = HALF) -> None:
    """Calls that come at random moments, so many a second at the mean, whatever became of those
    before."""
    way.run_on(os.sched_getaffinity(0))
    idle = [await connect(way.port) for _ in range(CALLERS)]
    request = message(PATH, PLAIN, way.key)
    await ask_all(idle, request, 2)
    dice, loop = random.Random(1), asyncio.get_running_loop()
    took: list[float] = []

    async def ask() -> None:
        caller = idle.pop() if idle else await connect(way.port)
        took.append((await caller.ask(request)).total_s * 1e3)
        idle.append(caller)

    tasks, due = [], loop.time()
    while due < loop.time() + AT_A_RATE_S and len(tasks) < rate * AT_A_RATE_S:
        await asyncio.sleep(due - loop.time())
        tasks.append(asyncio.create_task(ask()))
        due += dice.expovariate(rate)
    await asyncio.gather(*tasks)
    for caller in idle:
        caller.transport.close()
    took.sort()
    way.note(f"{name}: p50, ms", took[len(took) // 2])
    way.note(f"{name}: p99, ms", took[len(took) * 99 // 100])


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


async def memory(way: Way) -> None:
    sizes = []
    callers: list[Caller] = []
    for streams in HELD:
        callers += await hold(way, streams - len(callers))
        await asyncio.sleep(1)
        sizes.append(way.rss())
    for caller in callers:
        caller.transport.close()
    await asyncio.sleep(1)
    way.note("a running stream, KiB", (sizes[1] - sizes[0]) / (HELD[1] - HELD[0]) / 1024)
