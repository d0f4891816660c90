"""The cast of these tests: a pool `chat`, tenants by name, a world that runs what is granted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import count

from scheduling.core.dispatcher import Core
from scheduling.core.model import (
    EndpointConfig,
    Grant,
    LaneConfig,
    PoolConfig,
    SchedulerConfig,
    TenantConfig,
    Ticket,
)

PLENTY = 1e15
ONE_LANE = (LaneConfig("standard", 0),)


def pool(
    *slots: int, load: float = PLENTY, name: str = "chat", locality_quantum: float = 0.0
) -> PoolConfig:
    """One endpoint (a, b, …) for each number of slots."""
    ends = tuple(EndpointConfig("abcdefgh"[i], n, load) for i, n in enumerate(slots))
    return PoolConfig(name, ends, locality_quantum)


def config(
    *pools: PoolConfig,
    lanes: tuple[LaneConfig, ...] = ONE_LANE,
    tenants: Mapping[str, TenantConfig | float] | None = None,
) -> SchedulerConfig:
    """`tenants` by name; a bare number is a weight. Alice, Bob and Carol weigh 1 unless told."""
    given = {"alice": 1.0, "bob": 1.0, "carol": 1.0} | dict(tenants or {})
    return SchedulerConfig(
        lanes,
        {p.name: p for p in pools or (pool(1),)},
        {n: t if isinstance(t, TenantConfig) else TenantConfig(t) for n, t in given.items()},
    )


class World:
    """A core with a clock and an engine: what is granted runs until the test ends it."""

    def __init__(self, settings: SchedulerConfig | None = None) -> None:
        self.now = 0.0
        self.core = Core(settings or config(), self.now)
        self.running: dict[str, Ticket] = {}  # in the order of their starts
        self.started: list[str] = []  # tenants, in the order of their starts
        self.served: dict[str, float] = defaultdict(float)
        self.endpoint: dict[str, str] = {}
        self._tickets: dict[str, Ticket] = {}
        self._ids = count()

    def ask(
        self,
        tenant: str,
        cost: float = 10.0,
        *,
        times: int = 1,
        lane: str = "standard",
        application: str = "",
        load: float = 1.0,
        prefix: int = 0,
        pool: str = "chat",
    ) -> str:
        """Queue requests and dispatch; the id of the last one."""
        for _ in range(times):
            id = f"{tenant}-{next(self._ids)}"
            ticket = Ticket(id, pool, lane, tenant, application, cost, load, prefix)
            self._tickets[id] = ticket
            assert self.core.enqueue(ticket, self.now) is None
        self.go()
        return id

    def go(self) -> list[Grant]:
        grants = self.core.dispatch(self.now)
        for grant in grants:
            ticket = self._tickets[grant.request_id]
            self.running[grant.request_id] = ticket
            self.started.append(ticket.tenant)
            self.endpoint[grant.request_id] = grant.endpoint
        return grants

    def end(self, request_id: str | None = None, cost: float | None = None) -> str:
        """End a request (the oldest running one unless named) at its estimate unless told."""
        id = request_id or next(iter(self.running))
        ticket = self.running.pop(id)
        actual = ticket.cost if cost is None else cost
        assert self.core.settle(id, actual)
        self.served[ticket.tenant] += actual
        self.go()
        return id

    def run(self, ends: int, keep: Mapping[str, float] | None = None) -> None:
        """End that many requests, one after another; each tenant of `keep` asks again (at that
        cost) before its queue runs empty."""
        for _ in range(ends):
            for tenant, cost in (keep or {}).items():
                while self.waits(tenant) < 2:
                    self.ask(tenant, cost)
            self.end()

    def waits(self, tenant: str) -> int:
        return sum(ticket.tenant == tenant for ticket in self.core.waiting())

    def take_turns(self, number: int) -> list[str]:
        """End requests until that many more have started; whose they were."""
        before = len(self.started)
        while len(self.started) < before + number:
            self.end()
        return self.started[before : before + number]
