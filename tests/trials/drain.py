"""SIGTERM under load: what was taken on is answered, every record is written, and it exits with 0.

.venv/bin/python -m tests.trials.drain [--stops 5] [--parallel 64] [--seed 1]
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from pathlib import Path

import uvloop

from tests.trials.caller import Call, Caller, body
from tests.trials.product import Product, product
from tests.trials.truths import Truths, answers, main


def one(key: str, dice: random.Random) -> Call:
    script = {"in": dice.randint(1, 60), "out": dice.randint(5, 40), "gap": 0.01}
    return Call(key, body(script, stream=dice.random() < 0.6), "finishes")


async def until_stopped(running: Product, parallel: int, dice: random.Random) -> list[Call]:
    """Calls one after another on so many connections, until nobody answers the door."""
    process = running.process
    assert process is not None
    keys = list(running.keys.values())
    calls: list[Call] = []

    async def work() -> None:
        caller = Caller(running.port, dice)
        while True:
            call = one(dice.choice(keys), dice)
            await caller.ask(call)
            calls.append(call)
            if not call.sent:
                return

    async def stop() -> None:
        while sum(call.served for call in calls) < parallel:
            await asyncio.sleep(0.01)
        await asyncio.sleep(dice.uniform(0, 0.5))
        process.send_signal(signal.SIGTERM)

    await asyncio.gather(stop(), *(work() for _ in range(parallel)))
    return calls


def trial(folder: Path, stops: int, parallel: int, seed: int) -> Truths:
    dice = random.Random(seed)
    truths = Truths()
    calls: list[Call] = []
    exits: list[int] = []
    left = 0
    with product(folder) as running:
        for _ in range(stops):
            calls += uvloop.run(until_stopped(running, parallel, dice))
            exits.append(running.end(lambda process: None))
            left += len(list((folder / "journal").glob("*/*.jsonl")))
            running.start()
        taken = [call for call in calls if call.sent]
        truths.note("stops", stops)
        truths.note("requests answered", sum(call.served for call in calls))
        truths.note("refused at the door (no connection)", sum(not call.sent for call in calls))
        statuses = Counter(call.status for call in taken if call.raw)
        truths.must("journal files left after a stop", left)
        truths.must("exit statuses", sorted(set(exits)), [0])
        truths.must("connections taken on and reset", sum(not call.raw for call in taken))
        truths.must("failed requests", sum(not call.served for call in taken))
        truths.must("statuses", sorted(statuses), [200])
        recorded = Counter(row["request_id"] for row in running.rows())
        lost = sum(recorded[call.request_id] != 1 for call in calls if call.served)
        truths.must("answers that are not on record once", lost)
        truths.must("records beside the answers", len(recorded) - statuses[200])
        answers(truths, running, calls)
    return truths


if __name__ == "__main__":
    main(__doc__, trial, stops=5, parallel=64, seed=1)
