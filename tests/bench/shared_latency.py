"""What the shared scheduler adds to a call, beside the scheduler in the gateway's own process.

    chrt -r 1 .venv/bin/python -m tests.bench.shared_latency [--rounds 5] [--also NAME=FOLDER]

One `serve --role gateway` on Redis and one without, the policy and the scripted engine of
tests.bench.gateway, asked in turn: one call after the other, 16 at once, and calls that come at
random moments, RATE a second. CPU is the gateway's. `--also` is one more gateway on Redis, with the
packages of a folder before its own (`pip install --target FOLDER hiredis`). Medians of rounds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import psutil
import uvloop

from tests.acceptance.stack import ROOT, Stack
from tests.bench.gateway.__main__ import show
from tests.bench.gateway.asked import policy
from tests.bench.gateway.trials import at_a_rate, plain
from tests.bench.gateway.ways import Way
from tests.bench.upstream import stop
from tests.redis_server import redis_server

RATE = 150.0


def gateway(name: str, made: Stack, engine: int, stopping: ExitStack) -> Way:
    made.folder.mkdir()
    made.manage("migrate", "--verbosity", "0")
    made.apply(policy(f"http://127.0.0.1:{engine}/v1"))
    key = made.key("globex", "--application", "search")
    made.start("--role", "gateway")
    stopping.callback(made.stop)
    assert made.serving is not None
    return Way(name, made.port, psutil.Process(made.serving.pid), key, served=made)


def ways(folder: Path, also: dict[str, str], stopping: ExitStack) -> list[Way]:
    command = [sys.executable, "-m", "tests.bench.scripted"]
    scripted = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    stopping.callback(stop, scripted)
    assert scripted.stdout is not None
    engine = int(scripted.stdout.readline())
    found = [gateway("in process", Stack(folder / "alone"), engine, stopping)]
    for name, packages in {"on Redis": "", **also}.items():
        url = stopping.enter_context(redis_server()).url
        settings = {"PYTHONPATH": packages} if packages else {}
        made = Stack(folder / name.replace(" ", "-"), redis_url=url, settings=settings)
        found.append(gateway(name, made, engine, stopping))
    return found


async def compare(found: list[Way], rounds: int) -> None:
    for _ in range(rounds):
        for at_once, each in ((1, 500), (16, 60)):
            for way in found:
                await plain(way, at_once, each)
        for way in found:
            await at_a_rate(way, RATE, f"{RATE:.0f} calls a second")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--also", action="append", default=[], metavar="NAME=FOLDER")
    given = parser.parse_args()
    also = dict(each.split("=", 1) for each in given.also)
    loads = [os.getloadavg()[0]]
    with ExitStack() as stopping:
        folder = stopping.enter_context(tempfile.TemporaryDirectory(prefix="fairlane-bench-"))
        found = ways(Path(folder), also, stopping)
        uvloop.run(compare(found, given.rounds))
        show(found)
    loads.append(os.getloadavg()[0])
    print(f"load average {loads[0]:.1f} before, {loads[1]:.1f} after")


if __name__ == "__main__":
    main()
