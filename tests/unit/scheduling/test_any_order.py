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
from scheduling.core.lanes import Lane
from scheduling.core.locality import LOOK_AHEAD
from scheduling.core.model import (
    EndpointConfig,
    LaneConfig,
    PoolConfig,
    SchedulerConfig,
    TenantConfig,
    Ticket,
)
from scheduling.core.pool import PASSERS, Pool
from scheduling.core.request import Request

QUANTUM = 50.0
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
    quantum=st.sampled_from([0.0, 0.0, QUANTUM]),
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
        """Who fits waits only for a request whose turn it is and that fits nowhere."""
        for pool in self.core.pools.values() if hasattr(self, "core") else ():
            blocked: Request | None = None
            for turn in pool.lanes.in_turn():
                open_to = self.open_to(pool, turn.lane, blocked)
                if not open_to:
                    continue
                first, *others = self.heads(turn.lane)
                assert first is turn
                assert not open_to(first)
                blocked = blocked or first
                open_to = self.open_to(pool, turn.lane, blocked) or (lambda _request: False)
                asked = [*others[: PASSERS - 1], *self.smallest(turn.lane)]
                for request in asked:
                    assert not open_to(request) or self.ahead(request, blocked)
                assert not self.alike or not any(map(open_to, others))

    def open_to(
        self, pool: Pool, lane: Lane, blocked: Request | None
    ) -> Callable[[Request], bool] | None:
        """Whether a request of the lane could run now; None: the lane's ceiling, or `blocked`,
        which has been passed by as much service as it asks for, keeps all of it waiting."""
        ends = pool.endpoints
        room = pool.lanes.room(lane, ends)
        ready = [end for end in ends.all.values() if end.room != FULL]
        if blocked is not None and blocked.passed_by >= max(blocked.ticket.cost, 1e-9):
            if blocked.ticket.load > pool.lanes.room(blocked.lane, ends):
                if lane.rank >= blocked.lane.rank:
                    return None
            else:
                barred = ends.nearest_to_fit(blocked.ticket.load)
                ready = [end for end in ready if end is not barred]
        if room == FULL:
            return None
        return lambda request: (
            request.ticket.load <= room and any(request.ticket.load <= end.room for end in ready)
        )

    def ahead(self, request: Request, blocked: Request) -> bool:
        """Of its lane, and past where the blocked tenant will be once it is served."""
        share = blocked.flow.share
        served = share.v + blocked.ticket.cost / share.account.weight
        return request.lane is blocked.lane and request.flow.share.v > served

    def heads(self, lane: Lane) -> list[Request]:
        """The next request of each tenant that may run, in the order of their turns."""
        shares = [s for s in lane.queue.shares.values() if s.queued]
        may = [s.next() for s in shares if s.account.running < s.account.limit]
        return sorted(may, key=lambda request: (request.flow.share.v, request.seq))

    def smallest(self, lane: Lane) -> list[Request]:
        may = [s for s in lane.queue.shares.values() if s.account.running < s.account.limit]
        heads = [flow.head for share in may for flow in share.flows if flow.head is not None]
        return sorted(heads, key=lambda request: (request.ticket.load, request.seq))[:1]

    @invariant()
    def nobody_is_overtaken_for_ever(self) -> None:
        for request in self.core._requests.values() if hasattr(self, "core") else ():
            assert request.overtaken <= LOOK_AHEAD * QUANTUM

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
