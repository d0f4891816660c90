"""What a request costs the gateway with everything on, side by side with others, in one run.

    .venv/bin/python -m tests.bench.gateway [--rounds 3] [--without LiteLLM …]

Five ways to one scripted engine: straight, a bare nginx proxy, a bare Python pass-through, LiteLLM
proxy without a database, and `manage.py serve` with key check, admission, three budgets, fair
queue, metering, journal, and ledger into SQLite. CPU is user + system time of the processes in the
middle, pinned to one core. Medians of interleaved rounds. What is not installed is left out.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

import uvloop

from tests.bench.gateway import beside, trials
from tests.bench.gateway.asked import STREAMS
from tests.bench.gateway.ways import DIRECT, FAIRLANE, LITELLM, LITELLM_VENV, NGINX, WAYS, Way, ways

FEW = 8  # streams, which LiteLLM can still follow
PLAIN_16, PACED = "plain, c=16: CPU, µs a request", "{} streams: CPU, µs an event"
AT_ONCE, P99 = "64 streams in one instant: TTFT p50, ms", "at half of Fairlane's full load: p99, ms"


async def compare(found: list[Way], rounds: int) -> None:
    for _ in range(rounds):
        for way in found:
            await trials.plain(way, 1, 1000)
        for way in found:
            await trials.plain(way, 16, 300)
        for streams in (STREAMS, FEW):
            for way in found:
                await trials.paced(way, streams)
        for way in found:
            await trials.burst(way)
        rate = half_load(found)
        for way in found:
            if rate and way.slow == 1:
                await trials.at_a_rate(way, rate)
    for way in found:
        if way.served is not None:
            await beside.dashboards(way)
        if way.process is not None and way.slow == 1:
            await trials.memory(way)


def half_load(found: list[Way]) -> float:
    """Calls a second that keep Fairlane's core half busy."""
    cost_us = next((w.median(PLAIN_16) for w in found if w.name == FAIRLANE), None)
    return 0.5e6 / cost_us if cost_us else 0.0


def show(found: list[Way]) -> None:
    names = dict.fromkeys(name for way in found for name in way.figures)
    print(f"{'':50}" + "".join(f"{way.name:>19}" for way in found))
    for name in names:
        cells = [way.median(name) for way in found]
        shown = ["—" if c is None or (c == 0 and "CPU" in name) else f"{c:.2f}" for c in cells]
        print(f"{name:50}" + "".join(f"{cell:>19}" for cell in shown))


def goals(found: list[Way]) -> list[tuple[str, float, float]]:
    """What was found and at most should be; those that need a way that is missing are left out."""
    by = {way.name: way for way in found}

    def of(way: str, name: str) -> float | None:
        return by[way].median(name) if way in by else None

    few, at_rest = PACED.format(FEW), "at rest, with the console, MiB"
    wanted = [
        ("plain, c=16, µs", of(FAIRLANE, PLAIN_16), 295.0),
        ("as a part of LiteLLM's", part(of(FAIRLANE, PLAIN_16), of(LITELLM, PLAIN_16)), 1 / 40),
        ("paced, µs an event", of(FAIRLANE, PACED.format(STREAMS)), 83.0),
        (
            f"as a part of LiteLLM's, {FEW} streams",
            part(of(FAIRLANE, few), of(LITELLM, few)),
            1 / 16,
        ),
        ("TTFT added in a burst, ms", less(of(FAIRLANE, AT_ONCE), of(DIRECT, AT_ONCE)), 5.0),
        (
            "p99 added at half load, times nginx's",
            part(less(of(FAIRLANE, P99), of(DIRECT, P99)), less(of(NGINX, P99), of(DIRECT, P99))),
            3.0,
        ),
        ("MiB at rest", of(FAIRLANE, at_rest), 150.0),
        ("KiB a running stream", of(FAIRLANE, "a running stream, KiB"), 30.0),
        ("loop lag p99, ms", of(FAIRLANE, "64 streams, dashboards read: loop lag p99, ms"), 20.0),
    ]
    return [(name, is_, goal) for name, is_, goal in wanted if is_ is not None]


def part(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def less(one: float | None, other: float | None) -> float | None:
    return one - other if one is not None and other is not None else None


def versions() -> str:
    own = ", ".join(f"{name} {version(name)}" for name in ("uvicorn", "uvloop", "httptools"))
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    said = [f"CPython {platform.python_version()}", own]
    for command in ([program, "-v"], [str(LITELLM_VENV / "bin/pip"), "show", "litellm"]):
        if Path(command[0]).exists():
            told = subprocess.run(command, capture_output=True, text=True, check=False)
            lines = (told.stdout + told.stderr).splitlines()
            said.append(" ".join(lines[:2]))
    return "; ".join(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without", nargs="*", choices=list(WAYS), default=[])
    given = parser.parse_args()
    loads = [os.getloadavg()[0]]
    folder = tempfile.TemporaryDirectory(prefix="fairlane-bench-")
    with folder as name, ways(Path(name), set(given.without)) as found:
        for way in found:
            if way.served is not None:
                beside.at_rest(way)
        uvloop.run(compare(found, given.rounds))
        show(found)
        loads.append(os.getloadavg()[0])
        for goal, is_, most in goals(found):
            print(f"{goal:50}{is_:19.3f}   goal ≤ {most:g}: {'met' if is_ <= most else 'not met'}")
    print(f"load average {loads[0]:.1f} before, {loads[1]:.1f} after; {versions()}")


if __name__ == "__main__":
    main()
