"""Fairlane with its console: at rest, and the gateway's loop while dashboards are read."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from itertools import cycle

import httpx

from tests.bench.gateway.asked import PATH, STREAM, STREAMS
from tests.bench.gateway.ways import Way
from tests.bench.load import ask_all, connect, message

BUCKET = re.compile(r'fairlane_loop_lag_seconds_bucket\{le="([^"]+)"\} (\S+)')
BOARDS = ("overview", "latency", "throttles", "lanes", "pools", "budgets", "neighbours")
DASHBOARDS = ("/usage/", *(f"/watch/{board}/" for board in BOARDS))
READ_S = 20.0
PAUSE_S = 0.25  # between two pages, as five people read who have each page refresh itself

Lags = Mapping[float, float]  # upper edge of a bucket in seconds: probes up to there, all told


def at_rest(way: Way) -> None:
    """Once the console has been looked at, before any load."""
    assert way.process is not None
    httpx.get(f"http://127.0.0.1:{way.port}/login/", follow_redirects=True, timeout=60)
    worker = sum(child.memory_info().rss for child in way.process.children(recursive=True))
    before = way.cpu_s()
    time.sleep(3)
    way.note("at rest: CPU, ms a second", (way.cpu_s() - before) / 3 * 1e3)
    way.note("at rest, with the console, MiB", way.rss() / 2**20)
    way.note("its background worker, MiB", worker / 2**20)


def lags_in(metrics: str) -> Lags:
    return {float(edge): float(count) for edge, count in BUCKET.findall(metrics)}


def p99_ms(before: Lags, after: Lags) -> float:
    """Between two readings of the histogram; within its bucket as Prometheus reads it."""
    counts = [(edge, after[edge] - before.get(edge, 0.0)) for edge in sorted(after)]
    rank = 0.99 * counts[-1][1]
    low, below = 0.0, 0.0
    for edge, count in counts:
        if count >= rank and edge != float("inf"):
            part = (rank - below) / (count - below) if count > below else 0.0
            return (low + (edge - low) * part) * 1e3
        low, below = edge, count
    return low * 1e3


async def dashboards(way: Way) -> None:
    """64 paced streams at all times, while somebody reads one dashboard after the other."""
    assert way.served is not None
    made = way.served.manage("users", "create", "--username", "bench", "--role", "admin", "--json")
    base = f"http://127.0.0.1:{way.port}"
    async with httpx.AsyncClient(base_url=base, timeout=60, follow_redirects=True) as browser:
        await sign_in(browser, json.loads(made)["password"])
        before = lags_in((await browser.get("/metrics")).text)
        reading = asyncio.create_task(read(browser, way))
        callers = [await connect(way.port) for _ in range(STREAMS)]
        while not reading.done():
            await ask_all(callers, message(PATH, STREAM, way.key), 1)
        await reading
        for caller in callers:
            caller.transport.close()
        lag = p99_ms(before, lags_in((await browser.get("/metrics")).text))
    way.note("64 streams, dashboards read: loop lag p99, ms", lag)


async def sign_in(browser: httpx.AsyncClient, password: str) -> None:
    form = await browser.get("/login/")
    token = browser.cookies["csrftoken"]
    given = {"username": "bench", "password": password, "csrfmiddlewaretoken": token}
    answer = await browser.post(form.url, data=given, headers={"Referer": str(form.url)})
    assert "/login" not in answer.url.path, answer.text[:2000]


async def read(browser: httpx.AsyncClient, way: Way) -> None:
    ends, took = time.monotonic() + READ_S, list[float]()
    for page in cycle(DASHBOARDS):
        began = time.monotonic()
        if began >= ends:
            break
        answer = await browser.get(page)
        assert answer.status_code == 200, (page, answer.status_code)
        took.append((time.monotonic() - began) * 1e3)
        await asyncio.sleep(PAUSE_S)
    way.note("a dashboard read meanwhile: p50, ms", sorted(took)[len(took) // 2])
