"""Places for connections: given in the order of asking, and none is lost."""

from __future__ import annotations

import asyncio

from gateway.upstream.pool import Slots


async def test_places_go_to_those_who_asked_first_and_nobody_passes_them() -> None:
    slots = Slots(1)
    assert slots.take()
    first, second = (asyncio.create_task(slots.wait()) for _ in range(2))
    await asyncio.sleep(0)
    slots.release()
    assert not slots.take()
    await first
    assert not second.done()
    slots.release()
    await second
    slots.release()
    assert slots.take()


async def test_who_leaves_the_line_or_is_given_a_place_while_it_leaves_keeps_none() -> None:
    slots = Slots(1)
    assert slots.take()
    gone, given = (asyncio.create_task(slots.wait()) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    slots.release()
    given.cancel()
    await asyncio.gather(gone, given, return_exceptions=True)
    assert gone.cancelled()
    assert given.cancelled()
    assert slots.take()
