"""Streams by the ten thousand: once warm, the gateway's memory stays where it is (case R42).

.venv/bin/python -m tests.trials.memory [--streams 20000] [--parallel 32]
"""

from __future__ import annotations

import random
from pathlib import Path

import psutil
import uvloop

from tests.trials.caller import Call, body
from tests.trials.mixed import load
from tests.trials.product import Product, product
from tests.trials.truths import Truths, counters, main

ROUNDS = 5  # the first one warms up
CHUNKS = 50
MOST_GROWTH = 0.05  # of what it held when warm: an allocator's ups and downs


def megabytes(running: Product) -> float:
    """Of the gateway's memory, all its processes."""
    assert running.process is not None
    serve = psutil.Process(running.process.pid)
    held = sum(each.memory_info().rss for each in [serve, *serve.children(recursive=True)])
    return round(held / 2**20, 1)


def trial(folder: Path, streams: int, parallel: int) -> Truths:
    truths, dice = Truths(), random.Random(1)
    held, served = [], 0
    with product(folder) as running:
        keys = list(running.keys.values())
        for number in range(ROUNDS):
            script = {"in": 20, "out": CHUNKS}
            calls = [
                Call(dice.choice(keys), body(script, stream=True), "finishes")
                for _ in range(streams // ROUNDS)
            ]
            uvloop.run(load(running, calls, parallel, dice))
            served += sum(call.served for call in calls)
            running.settled(served)
            held.append(megabytes(running))
            truths.note(f"MB after {(number + 1) * len(calls)} streams", held[-1])
        truths.must("streams served", served, streams // ROUNDS * ROUNDS)
        truths.at_most("MB held at the end", held[-1], round(held[0] * (1 + MOST_GROWTH), 1))
        counters(truths, running)
    return truths


if __name__ == "__main__":
    main(__doc__, trial, streams=20_000, parallel=32)
