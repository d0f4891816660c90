"""Mixed streams at a steady rate, for half an hour: nothing may grow, and the loop stays quick.

.venv/bin/python -m tests.trials.soak [--minutes 30] [--rate 20]

Besides the ends of `mixed`, streams of some seconds, some of them read slowly. Every `EVERY_S` the
gateway is looked at; what is judged begins after a warm-up of a sixth of the time, in which twice
as many are asked: an allocator gives little back, so that each new peak of calls at once would look
like a leak. Lag is of the gateway's own histogram; beside it the same probe in this process, which
shows the machine's part.
"""

from __future__ import annotations

import asyncio
import random
import re
import statistics
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import httpx
import psutil
import uvloop

from tests.acceptance.stack import until
from tests.bench.gateway.beside import Lags, lags_in, p99_ms
from tests.trials.caller import Call, Caller, body
from tests.trials.mixed import KINDS, made
from tests.trials.product import Product, product
from tests.trials.truths import Truths, counters, main

EVERY_S = 10.0
PROBE_S = 0.1  # as the gateway's own
ROWS_SHOWN = 12
GOAL_LAG_MS = 20.0
WARM = 1 / 6  # of the time
BLOCKS = 10  # means of so many stretches: samples next to each other are no independent witnesses
NOISE_KIB = 8.0  # a minute, 11 MiB a day: below that is not told from none in half an hour
KINDS_AND_LONG = {**KINDS, "reads slowly": 10, "streams for long": 20}
QUEUED = re.compile(r"fairlane_tenant_queued\{[^}]*\} (\S+)")


@dataclass(frozen=True)
class Sample:
    minute: float
    rss_kib: float
    descriptors: int
    threads: int
    slots: int  # taken at engines and of tenants: a running request has one of each
    reserved: float  # units
    queued: int
    lag_p99_ms: float
    own_lag_p99_ms: float


class SlowCaller(Caller):
    """Takes a little, and waits before it takes more."""

    async def _read(self, call: Call, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(400):
            call.raw += data
            await asyncio.sleep(0.02)


class Watch:
    """Of one gateway from outside; `look` is for a thread, as it waits for answers."""

    def __init__(self, running: Product) -> None:
        assert running.process is not None
        self.running = running
        self.process = psutil.Process(running.process.pid)
        self.samples: list[Sample] = []
        self.lags: list[Lags] = []
        self.own: list[float] = []  # ms, since the last look
        self._began = time.monotonic()

    def look(self) -> None:
        url = f"http://127.0.0.1:{self.running.port}/metrics"
        text = httpx.get(url, timeout=30).text
        self.lags.append(lags_in(text))
        own, self.own = self.own, []
        self.samples.append(
            Sample(
                minute=(time.monotonic() - self._began) / 60,
                rss_kib=self.process.memory_info().rss / 1024,
                descriptors=self.process.num_fds(),
                threads=self.process.num_threads(),
                slots=self.running.open_slots(),
                reserved=self.running.held(),
                queued=round(sum(map(float, QUEUED.findall(text)))),
                lag_p99_ms=p99_ms(self.lags[-2] if len(self.lags) > 1 else {}, self.lags[-1]),
                own_lag_p99_ms=quantile(own, 0.99),
            )
        )

    async def look_on(self) -> None:
        while True:
            due = asyncio.get_running_loop().time() + EVERY_S
            await asyncio.to_thread(self.look)
            await asyncio.sleep(due - asyncio.get_running_loop().time())

    async def probe(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + PROBE_S
            await asyncio.sleep(PROBE_S)
            self.own.append((loop.time() - due) * 1e3)

    def look_at_the_end(self) -> None:
        """Once idle connections to the engines have gone."""
        with suppress(AssertionError):
            until(lambda: not self.descriptors_left(), "every descriptor is given back", 15)
        self.look()

    def descriptors_left(self) -> int:
        return max(0, self.process.num_fds() - self.samples[0].descriptors)


def quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * q))] if ordered else 0.0


def slope(samples: list[Sample]) -> tuple[float, float]:
    """KiB a minute that RSS rises by, and its standard error, of the means of BLOCKS stretches."""
    size = max(1, len(samples) // BLOCKS)
    blocks = [samples[start : start + size] for start in range(0, size * BLOCKS, size)]
    blocks = [block for block in blocks if block]
    x = [statistics.fmean(s.minute for s in block) for block in blocks]
    y = [statistics.fmean(s.rss_kib for s in block) for block in blocks]
    if len(x) < 3:
        return 0.0, float("inf")
    line = statistics.linear_regression(x, y)
    left = [yi - line.intercept - line.slope * xi for xi, yi in zip(x, y, strict=True)]
    spread = sum((xi - statistics.fmean(x)) ** 2 for xi in x)
    return line.slope, (sum(e * e for e in left) / (len(x) - 2) / spread) ** 0.5


def call_of(kind: str, key: str, dice: random.Random) -> Call:
    if kind in ("reads slowly", "streams for long"):
        script = {"in": 20, "out": dice.randint(50, 200), "gap": 0.02}
        return Call(key, body(script, stream=True), kind)
    return made(kind, key, dice)


async def load(running: Product, watch: Watch, seconds: float, rate: int) -> int:
    """Requests begin by the clock, whatever became of those before; returns how many."""
    dice, keys = random.Random(1), list(running.keys.values())
    kinds, weights = list(KINDS_AND_LONG), list(KINDS_AND_LONG.values())
    asking: set[asyncio.Task[None]] = set()
    watching = [asyncio.create_task(watch.probe()), asyncio.create_task(watch.look_on())]
    loop = asyncio.get_running_loop()
    began = loop.time()
    due = list(moments(seconds, rate))
    for at in due:
        await asyncio.sleep(began + at - loop.time())
        call = call_of(dice.choices(kinds, weights)[0], dice.choice(keys), dice)
        caller = SlowCaller if call.kind == "reads slowly" else Caller
        task = asyncio.create_task(caller(running.port, dice).ask(call))
        asking.add(task)
        task.add_done_callback(asking.discard)
    await asyncio.gather(*asking)
    for each in watching:
        each.cancel()
    return len(due)


def moments(seconds: float, rate: int) -> Iterator[float]:
    """When each request begins, in seconds; twice as often while all is to become warm."""
    at = 0.0
    while at < seconds:
        yield at
        at += 1 / rate / (2 if at < seconds * WARM else 1)


def trial(folder: Path, minutes: int, rate: int) -> Truths:
    truths = Truths()
    with product(folder) as running:
        watch = Watch(running)
        asked = uvloop.run(load(running, watch, minutes * 60, rate))
        running.settled()
        watch.look_at_the_end()
        warm = [s for s in watch.samples if s.minute >= minutes * WARM]
        show(watch.samples)
        judge(truths, watch, warm)
        truths.note("requests sent", asked)
        counters(truths, running)
    return truths


def judge(truths: Truths, watch: Watch, warm: list[Sample]) -> None:
    rise, error = slope(warm[:-1])
    first = watch.samples.index(warm[0])
    lag = p99_ms(watch.lags[first], watch.lags[-1])
    half = len(warm) // 2
    truths.note(
        "RSS, KiB a minute after warm-up, ± its standard error", f"{rise:.1f} ± {error:.1f}"
    )
    truths.note("p99 lag in this process, ms (the machine's part)", round(own(warm), 1))
    truths.at_most("RSS, KiB a minute, less twice its error", round(rise - 2 * error, 1), NOISE_KIB)
    more = peak(warm[half:-1], "descriptors") - peak(warm[:half], "descriptors")
    truths.at_most("descriptors at most, later half over earlier", more, 10)
    truths.at_most("descriptors at the end, over the first", watch.descriptors_left(), 2)
    truths.at_most(
        "threads at most, later half over earlier",
        peak(warm[half:-1], "threads") - peak(warm[:half], "threads"),
        1,
    )
    truths.at_most("loop lag p99, ms", round(lag, 1), GOAL_LAG_MS)


def own(samples: list[Sample]) -> float:
    return statistics.median(s.own_lag_p99_ms for s in samples)


def peak(samples: list[Sample], name: str) -> int:
    return max(getattr(s, name) for s in samples)


def show(samples: list[Sample]) -> None:
    names = [field.name for field in fields(Sample)]
    print("  ".join(f"{name:>14}" for name in names))
    step = max(1, len(samples) // ROWS_SHOWN)
    for each in [*samples[:-1:step], samples[-1]]:
        cells: list[Any] = [getattr(each, name) for name in names]
        print(
            "  ".join(
                f"{cell:>14.1f}" if isinstance(cell, float) else f"{cell:>14}" for cell in cells
            )
        )


if __name__ == "__main__":
    main(__doc__, trial, minutes=30, rate=20)
