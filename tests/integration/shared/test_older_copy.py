"""A server that comes back as it was some time ago: from a file, or as a replica that lagged.

What had ended by then is open there again, and what came later is missing.
"""

from __future__ import annotations

from typing import Any

import pytest

from gateway.shared import state as shared_state
from metering.restore import Used
from tests.integration.shared.gateways import Gateway, Start, entry, plan, until
from tests.integration.shared.test_missing_accounts import DAILY as BUDGET
from tests.integration.shared.test_missing_accounts import OWN, held, held_once, of_ledger, row
from tests.redis_server import RedisServer

COST = 50.0


def running(redis: RedisServer) -> int:
    with redis.client() as client:
        return sum(client.hlen(key) for key in client.scan_iter("fl:{*}:requests"))


async def test_places_and_holds_of_what_had_ended_come_back_and_the_budget_is_the_ledgers(
    start: Start,
    redis: RedisServer,
    ledger: list[Used],
    ended: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_state, "BEAT_S", 0.02)  # often, as in real life, beside FLOOR_S
    given = {"budgets": [BUDGET], "places": 3}
    one, two = await start("one", **given), await start("two", **given)
    await until(lambda: len(one.state._members.live) == 2, "both are seen")
    for gateway, id in ((one, "a"), (two, "b"), (two, "c")):
        await gateway.admit(id)
        gateway.state.asked(entry(plan(gateway.snapshot, id)))
    await quiet(one, two)
    with redis.client() as client:
        client.save()
    for gateway, id in ((one, "a"), (two, "b")):
        gateway.state.settle(id, 30, COST)
        ended[id] = row(id, COST)
    ledger.append(of_ledger(one, 2 * COST))
    await one.admit("later")
    await quiet(one, two)
    names = {gateway.state.accounts.replica for gateway in (one, two)}
    redis.kill()
    redis.start()
    await until(
        lambda: names.isdisjoint(g.state.accounts.replica for g in (one, two)), "both noticed"
    )
    with redis.client() as client:
        await until(lambda: client.hlen(f"{OWN}open") == 2, "only what runs is open")
    await until(lambda: running(redis) == 2, "only what runs has a place")
    await held_once(one, (2 * COST, (await held(one))[1]))
    await two.admit("d")
    for gateway, id in ((one, "later"), (two, "c"), (two, "d")):
        gateway.state.settle(id, 30, COST)
    ledger[:] = [of_ledger(one, 5 * COST)]
    await held_once(one, (5 * COST, 0.0))
    await until(lambda: not running(redis), "every place is free")


async def quiet(*gateways: Gateway) -> None:
    for gateway in gateways:
        await until(lambda g=gateway: not g.state.scheduler.link.pending, "all is told")
