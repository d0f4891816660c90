"""What a tenant may leave half sent: bounded, its own, and given back however it ends."""

from __future__ import annotations

from typing import Any

import pytest

from gateway import incoming as incoming_module
from gateway.errors import ApiError, Outcome
from gateway.exchange import HungUp
from gateway.incoming import BODIES_A_TENANT, Incoming, due
from tests.unit.gateway.test_exchange import Line, part

MOST = 10


async def test_bodies_that_never_end_stop_at_the_tenants_bound_and_leave_room_to_others() -> None:
    incoming = Incoming(MOST)
    with incoming.of("alice") as take:
        for _ in range(BODIES_A_TENANT):
            take(MOST)
        with pytest.raises(ApiError) as caught, incoming.of("alice") as more:
            more(1)
        with incoming.of("bob") as others:
            others(MOST)
    assert caught.value.outcome is Outcome.RATE_LIMIT_EXCEEDED
    assert "'alice'" in caught.value.message
    assert incoming.is_empty


async def test_the_parts_of_a_body_are_held_until_it_is_all_there() -> None:
    incoming = Incoming(MOST)
    line = Line(part(b"one ", True), part(b"two", True), part(b"!"))
    seen = []
    with incoming.of("alice") as take:
        assert await line.exchange.body(MOST, lambda n: (seen.append(n), take(n))) == b"one two!"
    assert seen == [4, 3]
    assert incoming.is_empty


@pytest.mark.parametrize("first", [(), (part(b"half", True),)])
async def test_a_body_that_does_not_come_is_refused(
    monkeypatch: pytest.MonkeyPatch, first: tuple[Any, ...]
) -> None:
    monkeypatch.setattr(incoming_module, "PATIENCE_S", 0.01)
    monkeypatch.setattr(incoming_module, "SLOWEST", 1e9)
    incoming = Incoming(MOST)
    with pytest.raises(ApiError) as caught, incoming.of("alice") as take:
        await Line(*first).exchange.body(MOST, take)
    assert caught.value.outcome is Outcome.INVALID_REQUEST
    assert "too slowly" in caught.value.message
    assert (b"connection", b"close") in caught.value.extra
    assert incoming.is_empty


def test_a_body_has_longer_the_more_of_it_has_come() -> None:
    assert due(100.0, 0) == 130.0
    assert due(100.0, 16 * 2**20) == 130.0 + 512


async def test_a_caller_that_leaves_half_way_holds_nothing() -> None:
    incoming = Incoming(MOST)
    line = Line(part(b"half", True))
    line.hang_up()
    with pytest.raises(HungUp), incoming.of("alice") as take:
        await line.exchange.body(MOST, take)
    assert incoming.is_empty
