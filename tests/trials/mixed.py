"""Every way a request can end, thousands of them at once; then nothing may be left over.

.venv/bin/python -m tests.trials.mixed [--requests 10000] [--parallel 64] [--seed 1]
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import uvloop

from tests.trials.caller import Call, Caller, body
from tests.trials.product import TENANTS, Product, product
from tests.trials.truths import Truths, answers, counters, main

Script = dict[str, Any]


def made(kind: str, key: str, dice: random.Random) -> Call:
    """One request of that kind; sizes and moments by the dice."""
    out, gap = dice.randint(1, 12), dice.choice((0, 0, 0.001, 0.004))
    usual: Script = {"in": dice.randint(1, 60), "out": out, "gap": gap}
    stream = dice.random() < 0.6
    match kind:
        case "finishes":
            return Call(key, body(usual, stream=stream), kind)
        case "no usage":
            return Call(key, body(usual | {"usage": False}, stream=stream), kind)
        case "leaves before an answer":
            script = usual | {"hold": 0.2}
            return Call(key, body(script, stream=stream), kind, dice.uniform(0, 0.1))
        case "leaves in mid-stream":
            script = usual | {"out": out + 5, "gap": 0.005}
            events = dice.randint(1, out + 3)
            return Call(key, body(script, stream=True), kind, leave_after_events=events)
        case "malformed":
            broken = (b"{", b"[]", b'{"model":"chat"}', body(usual, model="nothing"))
            return Call(key, dice.choice(broken), kind)
        case "engine refuses":
            return Call(key, body(usual | {"status": dice.choice((400, 404, 422))}), kind)
        case "engine fails":
            return Call(key, body(usual | {"status": dice.choice((500, 502))}, stream=stream), kind)
        case "one engine fails":
            return Call(key, body(usual | {"status": 500, "once": True}, stream=stream), kind)
        case "engine breaks off":
            return Call(key, body(usual | {"cut": dice.randint(0, out)}, stream=stream), kind)
        case "engine hangs":
            script = usual | {"hang": dice.randint(0, out)}
            return Call(key, body(script, stream=True, model="hung"), kind)
    raise ValueError(kind)


KINDS = {
    "finishes": 40,
    "no usage": 6,
    "leaves before an answer": 10,
    "leaves in mid-stream": 16,
    "malformed": 8,
    "engine refuses": 5,
    "engine fails": 5,
    "one engine fails": 4,
    "engine breaks off": 5,
    "engine hangs": 1,
}


async def load(running: Product, calls: list[Call], parallel: int, dice: random.Random) -> None:
    waiting = iter(calls)

    async def work() -> None:
        caller = Caller(running.port, dice)
        for call in waiting:
            await caller.ask(call)

    await asyncio.gather(*(work() for _ in range(parallel)))


def trial(folder: Path, requests: int, parallel: int, seed: int) -> Truths:
    dice = random.Random(seed)
    kinds = dice.choices(list(KINDS), list(KINDS.values()), k=requests)
    truths = Truths()
    with product(folder) as running:
        keys = list(running.keys.values())
        calls = [made(kind, dice.choice(keys), dice) for kind in kinds]
        uvloop.run(load(running, calls, parallel, dice))
        answered = sum(bool(call.request_id) for call in calls)
        running.settled(answered)
        truths.note("requests sent", sum(call.sent for call in calls))
        for kind, count in sorted(Counter(call.kind for call in calls).items()):
            truths.note(f"  {kind}", count)
        rows = running.rows()
        for status, count in sorted(Counter(row["status"] for row in rows).items()):
            truths.note(f"  recorded with status {status}", count)
        for source, count in sorted(Counter(row["usage_source"] for row in rows).items()):
            truths.note(f"  usage by {source}", count)
        counters(truths, running)
        answers(truths, running, calls)
        staying = [c for c in calls if c.leave_after_s is None and c.leave_after_events is None]
        truths.must("requests without an answer", sum(not c.status for c in staying))
        fine = ("finishes", "no usage")  # one engine fails: the other one may be full
        truths.must(
            "good requests that were not served",
            sum(not call.served for call in calls if call.kind in fine),
        )
        truths.at_most("records past the requests sent", len(rows), sum(c.sent for c in calls))
        truths.must("tenants that are locked out", locked_out(running))
    return truths


def locked_out(running: Product) -> int:
    calls = [Call(key, body({"in": 1, "out": 1}), "after") for key in running.keys.values()]
    uvloop.run(load(running, calls, len(TENANTS), random.Random(0)))
    return sum(not call.served for call in calls)


if __name__ == "__main__":
    main(__doc__, trial, requests=10_000, parallel=64, seed=1)
