"""Any calls in any order: a machine that does everything to one core and checks it each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduling.core.capacity import FULL
from scheduling.core.dispatcher import Core
from scheduling.core.figures import debts, live
from scheduling.core.model import (
    EndpointConfig,
    LaneConfig,
    PoolConfig,
    SchedulerConfig,
    TenantConfig,
    Ticket,
)
from scheduling.core.pool import Pool

TENANTS = ("alice", "bob", "carol", "dave")
POOLS = ("chat", "embed")
LANES = ("critical", "standard", "batch")

configs = st.builds(
    lambda shares, ceiling, slots, load, limits, weights, gone, quantum, drained: SchedulerConfig(
        lanes=tuple(
            LaneConfig(name, rank, shares[rank], ceiling if rank == 2 else 1.0)
            for rank, name in enumerate(LANES)
            if name != gone
        ),
        pools={
            name: PoolConfig(
                name,
                tuple(
                    EndpointConfig(f"{name}-{i}", n, load, available=i != drained)
                    for i, n in enumerate(slots)
                ),
                quantum,
            )
            for name in POOLS
            if name != gone
        },
        tenants={
            name: TenantConfig(weights[i], limits[i], {"bot": 3.0})
            for i, name in enumerate(TENANTS)
            if name != gone
        },
    ),
    shares=st.sampled_from([(0.0, 0.0, 0.0), (0.3, 0.2, 0.1), (0.0, 0.5, 0.5)]),
    ceiling=st.sampled_from([0.3, 0.9, 1.0]),
    slots=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    load=st.sampled_from([50.0, 200.0, 1e9]),
    limits=st.tuples(*[st.sampled_from([None, None, 1, 2])] * 4),
    weights=st.tuples(*[st.sampled_from([0.5, 1.0, 2.0, 5.0])] * 4),
    gone=st.sampled_from([None, None, None, "embed", "standard", "dave"]),
    quantum=st.sampled_from([0.0, 0.0, 50.0]),
    drained=st.sampled_from([None, None, 0, 1]),
)
amounts = st.integers(0, 200).map(float)
picks = st.integers(0, 10_000)


class Anything(RuleBasedStateMachine):
    @initialize(config=configs, alike=st.booleans())
    def start(self, config: SchedulerConfig, alike: bool) -> None:
        self.alike = alike  # every request occupies the same: what fits one fits any
        self.config = config
        self.core = Core(config, 0.0)
        self.calls: list[tuple[str, tuple[Any, ...], Any]] = []
        self.first_config = config
        self.queued: dict[str, Ticket] = {}
        self.running: dict[str, str] = {}  # request -> endpoint
        self.tickets: dict[str, Ticket] = {}
        self.over: set[str] = set()
        self.number = 0

    def call(self, name: str, *args: Any) -> Any:
        method: Callable[..., Any] = getattr(self.core, name)
        result = method(*args)
        self.calls.append((name, args, result))
        return result

    # --- what may happen --------------------------------------------------------------------

    @rule(
        tenant=st.sampled_from(TENANTS),
        pool=st.sampled_from(POOLS),
        lane=st.sampled_from(LANES),
        application=st.sampled_from(["", "bot", "nightly"]),
        cost=amounts,
        load=st.integers(1, 250).map(float),
        prefix=st.integers(0, 3),
        times=st.integers(1, 4),
    )
    def ask(
        self,
        tenant: str,
        pool: str,
        lane: str,
        application: str,
        cost: float,
        load: float,
        prefix: int,
        times: int,
    ) -> None:
        for _ in range(times):
            self.number += 1
            id = f"r{self.number}"
            occupies = 10.0 if self.alike else load
            ticket = Ticket(id, pool, lane, tenant, application, cost, occupies, prefix)
            if self.call("enqueue", ticket, float(self.number)) is None:
                self.queued[id] = self.tickets[id] = ticket
        self.dispatch()

    @rule(pick=picks, cost=amounts)
    @precondition(lambda self: self.running)
    def end(self, pick: int, cost: float) -> None:
        id = list(self.running)[pick % len(self.running)]
        assert self.call("settle", id, cost)
        del self.running[id]
        self.over.add(id)
        self.dispatch()

    @rule(pick=picks, cost=amounts)
    @precondition(lambda self: self.over)
    def end_again(self, pick: int, cost: float) -> None:
        id = sorted(self.over)[pick % len(self.over)]
        served = self.total_served()
        assert not self.call("settle", id, cost)
        assert not self.call("cancel", id)
        self.call("charge", id, cost)
        assert self.total_served() == served

    @rule(pick=picks)
    @precondition(lambda self: self.queued)
    def cancel(self, pick: int) -> None:
        id = list(self.queued)[pick % len(self.queued)]
        assert self.call("cancel", id)
        del self.queued[id]
        self.over.add(id)
        self.dispatch()

    @rule(pick=picks, cost=amounts)
    @precondition(lambda self: self.running)
    def stream(self, pick: int, cost: float) -> None:
        id = list(self.running)[pick % len(self.running)]
        self.call("charge", id, cost)
        assert not self.call("cancel", id)

    @rule(pick=picks)
    @precondition(lambda self: self.running)
    def move(self, pick: int) -> None:
        id = list(self.running)[pick % len(self.running)]
        grant = self.call("retry_elsewhere", id, self.running[id])
        if grant is not None:
            assert grant.endpoint != self.running[id]
            self.running[id] = grant.endpoint
        self.dispatch()

    @rule(pool=st.sampled_from(POOLS), end=st.integers(0, 2), up=st.booleans())
    def health(self, pool: str, end: int, up: bool) -> None:
        self.call("set_available", pool, f"{pool}-{end}", up)
        self.dispatch()

    @rule(config=configs)
    def configure(self, config: SchedulerConfig) -> None:
        self.config = config
        for dropped in self.call("configure", config, float(self.number)):
            del self.queued[dropped.request_id]
            self.over.add(dropped.request_id)
        self.dispatch()

    def dispatch(self) -> None:
        for grant in self.call("dispatch", float(self.number)):
            del self.queued[grant.request_id]  # it was waiting, and is granted once
            self.running[grant.request_id] = grant.endpoint

    # --- what must hold ---------------------------------------------------------------------

    @invariant()
    def nothing_is_lost_and_nothing_runs_twice(self) -> None:
        if not hasattr(self, "core"):
            return
        assert {t.request_id for t in self.core.waiting()} == set(self.queued)
        holding = [
            (request.ticket.request_id, end.id)
            for pool in self.core.pools.values()
            for end in pool.endpoints.all.values()
            for request in end.requests
        ]
        assert sorted(holding) == sorted(self.running.items())
        assert self.core.idle == (not self.queued and not self.running)

    @invariant()
    def every_count_agrees(self) -> None:
        if not hasattr(self, "core"):
            return
        for name, pool in self.core.pools.items():
            queued = [t for t in self.queued.values() if t.pool == name]
            assert pool.queued == len(queued)
            for lane in pool.lanes.by_rank:
                here = [t for t in queued if t.lane == lane.name]
                assert lane.queue.queued == len(here)
                assert abs(lane.queue.cost - sum(t.cost for t in here)) < 1e-6
                assert 0 <= lane.credit <= 2 * pool.lanes.largest + 1e-6
                assert lane.running >= lane.slots >= 0
        running = [self.tickets[id].tenant for id in self.running]
        for account in self.core.accounts.values():
            assert account.running == running.count(account.name)
            assert account.queued == sum(t.tenant == account.name for t in self.queued.values())

    @invariant()
    def loads_are_what_runs(self) -> None:
        for pool in self.core.pools.values() if hasattr(self, "core") else ():
            for end in pool.endpoints.all.values():
                assert abs(end.load - sum(r.ticket.load for r in end.requests)) < 1e-6

    @invariant()
    def debts_add_up_to_nothing(self) -> None:
        for pool in self.core.pools.values() if hasattr(self, "core") else ():
            for lane in pool.lanes.by_rank:
                assert abs(sum(debts(lane.queue).values())) < 1e-6

    @invariant()
    def work_is_conserved(self) -> None:
        for pool in self.core.pools.values() if hasattr(self, "core") else ():
            # Only one that fits nowhere, and whose turn it is, may keep another waiting.
            if self.alike or not self.fits_nowhere(pool):
                assert not self.could_run(pool)

    def could_run(self, pool: Pool) -> list[str]:
        return [id for id, fits in self.heads(pool) if fits]

    def fits_nowhere(self, pool: Pool) -> list[str]:
        return [id for id, fits in self.heads(pool) if not fits]

    def heads(self, pool: Pool) -> list[tuple[str, bool]]:
        """The next request of each tenant that may run, and whether an endpoint takes it."""
        found = []
        ends = pool.endpoints
        for lane in pool.lanes.by_rank:
            room = pool.lanes.room(lane, ends.max_running, ends.max_load)
            for share in lane.queue.shares.values() if room != FULL else ():
                account = share.account
                if share.queued and account.running < account.limit:
                    ticket = share.next().ticket
                    fits = ticket.load <= room and any(
                        ticket.load <= end.room for end in ends.all.values()
                    )
                    found.append((ticket.request_id, fits))
        return found

    def total_served(self) -> float:
        return sum(lane.served for pool in self.core.pools.values() for lane in pool.lanes.by_rank)

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        live(self.core, float(self.number))
        self.replay()
        self.finish()

    def replay(self) -> None:
        """The same calls to a new core give the same answers."""
        other = Core(self.first_config, 0.0)
        for name, args, result in self.calls:
            assert getattr(other, name)(*args) == result

    def finish(self) -> None:
        """With every endpoint up and no limits, whatever still waits is served."""
        config = SchedulerConfig(
            self.config.lanes,
            {
                name: PoolConfig(name, (EndpointConfig("only", 2, 100.0),))
                for name in self.config.pools
            },
            {name: TenantConfig() for name in self.config.tenants},
        )
        self.configure(config)
        while self.running:
            self.end(0, 10.0)
        assert not self.queued
        assert self.core.idle


TestAnything = Anything.TestCase
TestAnything.settings = settings(max_examples=100, stateful_step_count=40)
