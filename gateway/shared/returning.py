"""Who must be back before an empty server gives anything away.

1. Awaited are the gateways that were heard of within their lease, on the server or, later than
   that, by the database: they may still run what the server has forgotten. Who is registered in a
   pool has told what it runs there (leases.py of the scheduler).
2. One that is silent for longer than its lease is not waited for. What it finds itself running when
   it wakes takes its places again, also past an endpoint's limit, as after any lost lease.
3. Whoever makes a pool whole has waited first, so nobody is admitted by the server before. A
   gateway that is apart goes on with its part meanwhile.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from math import inf

from gateway.shared import membership
from gateway.shared.membership import PAUSE_S, Membership
from gateway.state import InThread
from metering.selectors import latest_samples
from scheduling.shared import keeping
from scheduling.shared.scheduler import SharedScheduler

BEAT_S = 1.0  # who was heard of may have renewed its lease so much later


class Returning:
    def __init__(
        self, gateway: str, scheduler: SharedScheduler, members: Membership, in_thread: InThread
    ) -> None:
        self._gateway = gateway
        self._scheduler = scheduler
        self._members = members
        self._in_thread = in_thread
        self._heard: dict[str, float] = {}  # gateway → when it was known to live
        self._heard_all = -inf  # when it was known of all

    def all_here(self) -> None:
        """The server has forgotten nothing: who is not on its list holds nothing."""
        self._heard_all = time.monotonic()
        self._heard = {name.rpartition("-")[0]: self._heard_all for name in self._members.live}

    async def wait(self) -> None:
        """
        Raises:
            StateUnavailable
        """
        missing = await keeping.unwhole(self._scheduler)  # it is told the policy, if it has none
        await self._scheduler.leases.renew()  # and what runs here
        if not missing.pools:
            return
        self._note(await self._in_thread(heard_ages_s))
        deadline = time.monotonic() + membership.LEASE_S + BEAT_S
        while (await keeping.unwhole(self._scheduler, self._awaited())).early:
            if time.monotonic() > deadline:
                return
            await asyncio.sleep(PAUSE_S)
            await self._members.beat()

    def _note(self, ages_s: dict[str, float]) -> None:
        """Who told the database of itself before the server knew of all, and is not on its list,
        has left."""
        now = time.monotonic()
        for gateway, age_s in ages_s.items():
            if now - age_s > self._heard_all:
                self._heard[gateway] = max(now - age_s, self._heard.get(gateway, -inf))

    def _awaited(self) -> list[str]:
        since = time.monotonic() - membership.LEASE_S - BEAT_S
        return [name for name, at in self._heard.items() if at > since and name != self._gateway]


def heard_ages_s() -> dict[str, float]:
    """How long ago each gateway told the database of itself that did so within its lease."""
    now = datetime.now(UTC)
    told = latest_samples(now, membership.LEASE_S + BEAT_S)
    return {s["gateway"]: (now - datetime.fromisoformat(s["at"])).total_seconds() for s in told}
