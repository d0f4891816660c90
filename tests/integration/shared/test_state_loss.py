"""A server that loses what it had, that is not there yet, or that another release works on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from gateway.governor import StateLost
from gateway.shared import state as shared_state
from scheduling import kept
from scheduling.shared import records
from scheduling.shared.library import Library
from tests.integration.shared.gateways import PATIENCE_S, Gateway, Start, until
from tests.redis_server import RedisServer

COST = 50.0  # of one request of the cast, estimated


async def counter(gateway: Gateway) -> float:
    """Alice's, in the pool of the cast."""
    answer = await gateway.state.scheduler.ask("live", "chat", True)
    if answer[0] != "done":
        return 0.0
    lanes = dict(answer[2][0]["lanes"])
    shares = [share for lane in lanes.values() for share in dict(lane["tenants"]).items()]
    return float(dict(shares)["alice"]["counter"]) if shares else 0.0


def open_in(rows: dict[str, kept.Found]) -> set[str]:
    """The requests that were open when counters were kept last."""
    return set(rows["chat"].kept.open) if "chat" in rows else set()


async def test_an_empty_server_gets_the_virtual_counters_back(
    start: Start, redis: RedisServer, rows: dict[str, kept.Found]
) -> None:
    one = await start("one", places=1)
    await one.admit("a")
    one.state.settle("a", 30, 700.0)
    await one.admit("runs")
    before = await counter(one)
    assert before * one.snapshot.tenants["alice"].weight == 700.0 + COST
    await until(lambda: open_in(rows) == {"runs"}, "they are kept")
    redis.kill()
    redis.start()
    async with asyncio.timeout(PATIENCE_S):
        while await counter(one) != before:
            await asyncio.sleep(0.02)
    one.state.settle("runs", 30, COST)
    assert (await one.admit("next")).grant.request_id == "next"
    one.state.settle("next", 30, COST)


async def test_what_was_kept_before_a_loss_is_not_written_over_by_the_empty_server(
    start: Start, redis: RedisServer, rows: dict[str, kept.Found]
) -> None:
    one = await start("one", places=1)
    await one.admit("a")
    await until(lambda: open_in(rows) == {"a"}, "they are kept")
    with redis.client() as client:
        client.flushall()
    one.state.settle("a", 30, COST)
    await one.admit("next")
    v = await counter(one)
    assert v * one.snapshot.tenants["alice"].weight == 2 * COST
    one.state.settle("next", 30, COST)


async def test_a_gateway_begins_without_its_server_and_joins_when_that_is_there(
    start: Start, redis: RedisServer
) -> None:
    redis.kill()
    one = await start("one", joins=False, places=1)
    assert one.state.name == "lost"
    assert "REDIS_URL" in one.state.fault
    with pytest.raises(StateLost):
        await one.admit("early")
    redis.start()
    await until(lambda: one.state.name == "shared", "it joins")
    assert one.state.fault == ""
    assert (await one.admit("a")).grant.request_id == "a"
    one.state.settle("a", 30, COST)


async def test_one_that_opens_begins_apart_with_its_part_and_hands_over(
    start: Start, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One other gateway has told the database of itself; this one does from then on."""
    told = iter([1])
    monkeypatch.setattr(shared_state, "heard_of", lambda: next(told, 2))
    redis.kill()
    one = await start("one", opens=True, joins=False, places=4)
    assert (one.state.name, one.state.fault) == ("apart", "")
    await one.admit("a")
    await one.admit("b")  # two of four places are its own
    third = one.admit("c")
    await until(lambda: one.state._apart and one.state._apart.scheduler.waiting(), "it waits")
    redis.start()
    await until(lambda: one.state.name == "shared", "it joins")
    assert (await third).grant.request_id == "c"
    assert one.state.scheduler.running.keys() == {"a", "b", "c"}
    for id in ("a", "b", "c"):
        one.state.settle(id, 30, COST)


@pytest.fixture
def other_release(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """From here on, gateways start that have other records."""

    def library() -> Library:
        return Library(made.source.replace(records.LAYOUT, "11111111"))

    made = shared_state.whole_library()
    monkeypatch.setattr(shared_state, "whole_library", library)
    return


@pytest.mark.parametrize("opens", [True, False])
async def test_a_gateway_with_other_records_waits_until_those_of_the_old_release_are_gone(
    start: Start, request: pytest.FixtureRequest, opens: bool
) -> None:
    old = await start("old", opens=opens, places=1)
    await old.admit("a")
    request.getfixturevalue("other_release")
    new = await start("new", opens=opens, joins=False, places=1)
    await until(lambda: "old" in new.state.fault, "it says who is in its way")
    assert "another release" in new.state.fault
    assert new.state.name == "lost"
    with pytest.raises(StateLost):
        await new.admit("early")
    assert old.state.name == "shared"
    old.state.settle("a", 30, COST)
    await old.admit("b")  # nothing has happened to it
    old.state.settle("b", 30, COST)
    await until(lambda: not old.state.accounts.open_ids, "it is drained")
    await old.stop()
    await until(lambda: new.state.name == "shared", "it joins")
    assert new.state.fault == ""
    assert (await new.admit("next")).grant.request_id == "next"
    new.state.settle("next", 30, COST)


async def test_one_that_wakes_among_another_release_is_let_in_no_more(
    start: Start, request: pytest.FixtureRequest, redis: RedisServer
) -> None:
    old = await start("old", opens=True, places=1)
    await old.cut_off()
    await until(lambda: old.state.name == "apart", "it is apart")
    with redis.client() as client:
        for key in client.scan_iter("fl:*:replicas"):
            client.delete(key)  # its lease is over
    request.getfixturevalue("other_release")
    new = await start("new", places=1)
    await until(lambda: new.state.name == "shared", "it takes the server over")
    await old.reconnect()
    await until(lambda: old.state.name == "lost", "it finds other records")
    assert "another release" in old.state.fault
    with pytest.raises(StateLost):
        await old.admit("late")
    assert (await new.admit("a")).grant.request_id == "a"
    new.state.settle("a", 30, COST)
