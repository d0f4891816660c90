"""`kill -9` at random moments under load: nothing that had finished is lost, nothing counted twice.

.venv/bin/python -m tests.trials.kills [--kills 20] [--parallel 32] [--seed 1]
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

import uvloop

from tests.trials.caller import Call, Caller, body
from tests.trials.product import Product, product
from tests.trials.truths import Truths, answers, counters, main


def one(key: str, dice: random.Random) -> Call:
    gap = dice.choice((0, 0, 0.002, 0.01))
    script = {"in": dice.randint(1, 60), "out": dice.randint(1, 30), "gap": gap}
    return Call(key, body(script, stream=dice.random() < 0.6), "finishes")


async def until_killed(running: Product, parallel: int, dice: random.Random) -> list[Call]:
    """Calls one after another on so many connections; the gateway dies in the midst of them."""
    process = running.process
    assert process is not None
    keys = list(running.keys.values())
    calls: list[Call] = []

    async def work() -> None:
        caller = Caller(running.port, dice)
        while process.poll() is None:
            calls.append(one(dice.choice(keys), dice))
            await caller.ask(calls[-1])

    async def kill() -> None:
        while sum(call.served for call in calls) < parallel:
            await asyncio.sleep(0.01)
        await asyncio.sleep(dice.uniform(0, 1))
        os.kill(process.pid, signal.SIGKILL)
        await asyncio.to_thread(process.wait)

    await asyncio.gather(kill(), *(work() for _ in range(parallel)))
    running.process = None
    return calls


def trial(folder: Path, kills: int, parallel: int, seed: int) -> Truths:
    dice = random.Random(seed)
    truths = Truths()
    calls: list[Call] = []
    with product(folder) as running:
        for _ in range(kills):
            calls += uvloop.run(until_killed(running, parallel, dice))
            running.start()
        running.settled()
        served = [call for call in calls if call.served]
        rows = {row["request_id"]: row for row in running.rows()}
        settled = [row for row in rows.values() if row["throttle_reason"] == "gateway_restart"]
        truths.note("kills", kills)
        truths.note("requests sent", sum(call.sent for call in calls))
        truths.note("complete answers seen by callers", len(served))
        truths.note("records", len(rows))
        truths.note("requests that were open at a kill, settled", len(settled))
        truths.must("finished requests lost", sum(c.request_id not in rows for c in served))
        counters(truths, running)
        answers(truths, running, calls)
        marks = {(row["usage_source"], row["finish_reason"]) for row in settled}
        truths.must("open requests settled otherwise", len(marks - {("estimated", "error")}))
        truths.at_most("settled ones a kill", len(settled) / max(1, kills), parallel)
        truths.at_least("settled ones in all", len(settled), 1)
    return truths


if __name__ == "__main__":
    main(__doc__, trial, kills=20, parallel=32, seed=1)
