"""Counters that outlive the server: asked for, and given back to one that has lost them.

What they are and how they come back: restoring.lua, and docs/scheduling.md, An empty server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from scheduling.shared.scheduler import SharedScheduler
from scheduling.shared.wire import Answer

PAUSE_S = 0.05

Since = tuple[str, str, str, float]  # lane, tenant, application, units of service


class Kept(NamedTuple):
    """A pool's counters of one moment."""

    lanes: list[Any]  # as restoring.lua wrote them, and reads them
    open: Mapping[str, float]  # what each request that was open had been charged; 0: it waited
    size: int = 0  # tenants and requests: what asking for it costs the server


NOTHING = Kept([], {})


class Unwhole(NamedTuple):
    pools: list[str]  # they wait for `restore`
    early: bool  # somebody that is awaited has not told yet what it runs there


async def ask(scheduler: SharedScheduler, pool: str) -> Kept | None:
    """None where the server has no counters to believe.

    Raises:
        StateUnavailable
    """
    answer = await scheduler.ask("counters", pool)
    if answer[0] != "done":
        return None
    lanes, opened, size = answer[2:]
    return Kept(lanes, dict(opened), int(size))


async def unwhole(scheduler: SharedScheduler, awaited: Iterable[str] = ()) -> Unwhole:
    """An empty server has none before it is told the policy. `awaited`: names of gateways.

    Raises:
        StateUnavailable: also where another release's records lie there.
    """
    pools = sorted(scheduler.config.pools)
    while pools:
        answer: Answer = await scheduler.ask("unwhole", pools[0], list(awaited))
        if answer[0] != "empty":  # else it has been told by now
            return Unwhole(list(answer[2]), bool(answer[3]))
    return Unwhole([], False)


async def restore(
    scheduler: SharedScheduler, pool: str, kept: Kept, since: Iterable[Since]
) -> bool:
    """When all who were there before have told what they run. False: another was first.

    Raises:
        StateUnavailable
    """
    ran = [[id, charged] for id, charged in kept.open.items() if charged]
    given = kept.lanes, ran, [list(one) for one in since]
    while True:
        answer = await scheduler.ask("restore", pool, *given)
        if answer[0] != "early":
            return bool(answer[0] == "done")
        await asyncio.sleep(PAUSE_S)


async def supersede(scheduler: SharedScheduler) -> list[str] | None:
    """Clear away records of another layout, which nobody works on any more; else who does. None:
    there are none.

    Raises:
        StateUnavailable
    """
    answer = await scheduler.ask("supersede", min(scheduler.config.pools, default="-"))
    if answer[0] == "nothing":
        return None
    return sorted(set(answer[2])) if answer[0] == "alive" else []
