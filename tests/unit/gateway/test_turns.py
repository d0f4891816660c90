"""Of a burst of new calls few are let in at a time: the loop looks at its sockets between."""

from __future__ import annotations

import asyncio

from gateway.turns import Turns


async def arrive(turns: Turns, number: int, seen: list[str]) -> None:
    await turns.take()
    seen.append(str(number))


async def look(seen: list[str], times: int) -> None:
    """Stands for a socket that has something at each turn of the loop."""
    for _ in range(times):
        seen.append("look")
        await asyncio.sleep(0)


async def test_a_burst_comes_in_its_order_and_no_more_than_a_few_at_a_turn() -> None:
    turns, seen = Turns(3), list[str]()
    burst = [arrive(turns, number, seen) for number in range(10)]
    await asyncio.gather(*burst, look(seen, 20))
    assert [each for each in seen if each != "look"] == [str(number) for number in range(10)]
    between = " ".join(seen).split("look")
    assert max(len(calls.split()) for calls in between) == 3


async def test_who_comes_alone_does_not_wait() -> None:
    turns, seen = Turns(1), list[str]()
    for number in range(3):
        coroutine = arrive(turns, number, seen)
        try:
            coroutine.send(None)
        except StopIteration:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    assert seen == ["0", "1", "2"]


async def test_who_leaves_while_it_waits_takes_no_turn() -> None:
    turns, seen = Turns(1), list[str]()
    burst = [asyncio.create_task(arrive(turns, number, seen)) for number in range(3)]
    await asyncio.sleep(0)
    burst[1].cancel()
    await asyncio.gather(*burst, return_exceptions=True)
    assert seen == ["0", "2"]
    await asyncio.wait_for(turns.take(), 30)
