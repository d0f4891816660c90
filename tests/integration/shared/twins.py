"""The core and the functions on a server, given the same calls at the same times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isclose
from random import Random
from typing import Any

from scheduling.core.dispatcher import Core
from scheduling.core.figures import live
from scheduling.core.model import (
    EndpointConfig,
    LaneConfig,
    PoolConfig,
    SchedulerConfig,
    TenantConfig,
    Ticket,
)
from scheduling.shared.library import Library
from scheduling.shared.wire import Answer, Keys, config_fields, decode, encode, ticket_fields

LIBRARY = Library()
ME = "twin.0"
LANES = ("critical", "standard", "batch")
POOLS = ("chat", "embed")
APPLICATIONS = ("", "bot", "nightly")


def random_config(random: Random, tenants: int) -> SchedulerConfig:
    """Anything that a policy can be: what runs may lose its pool, lane, tenant or endpoint."""
    shares = random.choice([(0.0, 0.0, 0.0), (0.3, 0.2, 0.1), (0.0, 0.5, 0.5)])
    gone = random.choice([None] * 6 + ["embed", "standard", "batch", "t1"])
    ceiling = random.choice([0.3, 0.7, 1.0])
    quantum = random.choice([0.0, 0.0, 150.0])
    load = random.choice([60.0, 200.0, 1e9])
    slots = [random.randint(1, 4) for _ in range(random.randint(1, 3))]
    drained = random.choice([None, None, 0, 1])
    return SchedulerConfig(
        lanes=tuple(
            LaneConfig(name, rank, shares[rank], ceiling if rank else 1.0)
            for rank, name in enumerate(LANES)
            if name != gone
        ),
        pools={
            pool: PoolConfig(
                pool,
                tuple(
                    EndpointConfig(f"{pool}-{i}", n, load, available=i != drained)
                    for i, n in enumerate(slots)
                ),
                quantum,
            )
            for pool in POOLS
            if pool != gone
        },
        tenants={
            f"t{i}": TenantConfig(
                random.choice([0.5, 1.0, 3.0]),
                random.choice([None, None, 1, 3]),
                {"bot": 3.0} if i % 2 else {},
            )
            for i in range(tenants)
            if f"t{i}" != gone
        },
    )


class Twins:
    """Each call goes to both, as LocalScheduler makes it: what changed is dispatched at once. The
    two must answer alike."""

    def __init__(
        self,
        client: Any,
        random: Random,
        tenants: int,
        *,
        library: Library = LIBRARY,
        applications: tuple[str, ...] = APPLICATIONS,
        keys: Keys | None = None,
        pools: tuple[str, ...] = POOLS,
    ) -> None:
        self.client = client
        self.library = library
        self.applications = applications
        self.random = random
        self.tenants = tenants
        self.keys = keys or Keys()
        self.names = pools
        self.now = 1_000.0
        self.revision = 0
        self.number = 0
        self.queued: dict[str, Ticket] = {}
        self.running: dict[str, tuple[Ticket, str]] = {}
        self.config = self.random_config()
        self.core = Core(self.config, self.now)
        self.granted = 0
        self.configure(self.config)

    def random_config(self) -> SchedulerConfig:
        config = random_config(self.random, self.tenants)
        pools = {name: pool for name, pool in config.pools.items() if name in self.names}
        return replace(config, pools=pools)

    # --- both sides -------------------------------------------------------------------------

    def call(self, name: str, pool: str, *given: Any) -> Answer:
        keys = self.keys.of(pool)
        payload = encode([self.now, ME, *given])
        answer = self.client.fcall(self.library.function(name), len(keys), *keys, payload)
        if isinstance(answer, list):
            return [*decode(answer[0]), decode(answer[1])]
        found: Answer = decode(answer)
        return found

    def dispatched(self, answer: Answer) -> None:
        """The same grants in the same order."""
        grants = [[g.request_id, g.endpoint] for g in self.core.dispatch(self.now)]
        assert grants == answer[1]
        self.granted += len(grants)
        for id, endpoint in grants:
            self.running[id] = self.queued.pop(id), endpoint

    # --- what may happen --------------------------------------------------------------------

    def ask(self) -> None:
        random, self.number = self.random, self.number + 1
        cost = random.choice([random.randint(0, 200), random.random() * 100, 10])
        load = random.choice([10, 10, random.randint(1, 250)])
        ticket = Ticket(
            f"r{self.number}",
            random.choice(self.names),
            random.choice(LANES),
            f"t{random.randrange(self.tenants)}",
            random.choice(self.applications),
            float(cost),
            float(load),
            random.choice([0, 2**63 + random.randint(0, 5)]),
        )
        refused = self.core.enqueue(ticket, self.now)
        answer = self.call("acquire", ticket.pool, ticket_fields(ticket), True)
        if refused is not None:
            assert answer[0] == "dropped"
            assert answer[2] == refused.reason
            return
        self.queued[ticket.request_id] = ticket
        self.dispatched(answer)
        assert answer[0] == ("running" if ticket.request_id in self.running else "queued")

    def settle(self) -> None:
        if not self.running:
            return
        id = self.random.choice(sorted(self.running))
        ticket, _ = self.running.pop(id)
        cost = self.random.choice([ticket.cost, 0.0, self.random.random() * 2 * ticket.cost, 300.0])
        assert self.core.settle(id, cost)
        answer = self.call("settle", ticket.pool, id, cost)
        assert answer[0] == "done"
        self.dispatched(answer)
        assert not self.core.settle(id, cost)
        assert self.call("settle", ticket.pool, id, cost)[0] in ("nothing", "gone")

    def cancel(self) -> None:
        if not self.queued:
            return
        id = self.random.choice(sorted(self.queued))
        ticket = self.queued.pop(id)
        assert self.core.cancel(id)
        answer = self.call("abandon", ticket.pool, id)
        assert answer[0] == "done"
        self.dispatched(answer)

    def charge(self) -> None:
        if not self.running:
            return
        id = self.random.choice(sorted(self.running))
        cost = self.random.random() * 300
        self.core.charge(id, cost)
        self.call("charge", self.running[id][0].pool, [[id, cost]])

    def move(self) -> None:
        if not self.running:
            return
        id = self.random.choice(sorted(self.running))
        ticket, endpoint = self.running[id]
        grant = self.core.retry_elsewhere(id, endpoint)
        answer = self.call("elsewhere", ticket.pool, id, endpoint)
        assert (grant.endpoint if grant else False) == answer[2]
        if grant:
            self.running[id] = ticket, grant.endpoint
        self.dispatched(answer)

    def health(self) -> None:
        pool = self.random.choice(self.names)
        endpoint, up = f"{pool}-{self.random.randrange(3)}", self.random.random() < 0.6
        self.core.set_available(pool, endpoint, up)
        self.dispatched(self.call("available", pool, endpoint, up))

    def capacity(self) -> None:
        pool = self.random.choice(self.names)
        given = f"{pool}-0", self.random.randint(1, 4), float(self.random.choice([50, 500]))
        self.core.set_capacity(pool, *given)
        self.dispatched(self.call("capacity", pool, *given))

    def reconfigure(self) -> None:
        self.configure(self.random_config())

    def configure(self, config: SchedulerConfig) -> None:
        self.config = config
        self.revision += 1
        dropped = self.core.configure(config, self.now)
        answer = self.call("configure", "chat", self.revision, *config_fields(config))
        assert sorted([d.request_id, d.reason] for d in dropped) == sorted(answer[2])
        for drop in dropped:
            del self.queued[drop.request_id]
        self.dispatched(answer)
        for pool in config.pools:
            assert self.call("beat", pool, 1e9, True)[0] == "done"

    def read(self) -> None:
        """What is read of a pool, and all counters of it."""
        for pool in sorted(self.core.pools):
            answer = self.call("live", pool, True)
            assert answer[0] == "done"
            shown, tenants = answer[2]
            for lane in self.core.pools[pool].lanes.by_rank:
                waits = self.core.backlogged(pool, lane.name)
                wait_s = self.core.expected_wait_s(pool, lane.name)
                if not lane.removed:
                    alike(dict(shown["waits"])[lane.name], [waits, wait_s], pool)
            expected = live(self.core, self.now)
            without_idle_weights(expected, shown)
            alike(dict(tenants), {n: list(t.values()) for n, t in expected["tenants"].items()}, "")
            if pool in expected["pools"]:
                for key, value in expected["pools"][pool].items():
                    alike(shown[key], value, f"{pool}.{key}")

    EVENTS: tuple[tuple[Callable[[Twins], None], int], ...] = (
        (ask, 40),
        (settle, 34),
        (cancel, 4),
        (charge, 8),
        (move, 4),
        (health, 2),
        (capacity, 2),
        (reconfigure, 1),
        (read, 4),
    )

    def run(self, events: int) -> None:
        kinds = [event for event, _ in self.EVENTS]
        weights = [weight for _, weight in self.EVENTS]
        for event in self.random.choices(kinds, weights, k=events):
            self.now += self.random.choice([0.0, 0.25, 1.5])
            event(self)
        self.finish()

    def finish(self) -> None:
        """All that waits is served, and nothing is left."""
        self.configure(
            SchedulerConfig(
                self.config.lanes,
                {p: PoolConfig(p, (EndpointConfig("only", 2, 100.0),)) for p in self.config.pools},
                {name: TenantConfig() for name in self.config.tenants},
            )
        )
        while self.running:
            self.settle()
        self.read()
        assert not self.queued
        assert self.core.idle


def without_idle_weights(expected: dict[str, Any], shown: dict[str, Any]) -> None:
    """The core remembers an idle tenant's weight of old, Redis reads it from the policy."""
    lanes = [lane for pool in expected["pools"].values() for lane in pool["lanes"].values()]
    for lane in [*lanes, *dict(shown["lanes"]).values()]:
        for tenant in dict(lane["tenants"]).values():
            if not tenant["queued"] and not tenant["running"]:
                tenant.pop("weight", None)


def alike(found: Any, expected: Any, where: str) -> None:
    """Numbers to 1e-12 of each other. Lua's empty table comes as a list, its nil as False."""
    if isinstance(expected, dict):
        found = dict(found)
        assert found.keys() == expected.keys(), where
        for key, value in expected.items():
            alike(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        for one, other in zip(found, expected, strict=True):
            alike(one, other, where)
    elif expected is None:
        assert found is False, where
    else:
        assert isclose(found, expected, rel_tol=1e-12, abs_tol=1e-9), (where, found, expected)
