"""Virtual counters outlive the server that had them: what is kept of them, what the ledger has
since, and what still runs make the same counters again."""

from __future__ import annotations

from collections import defaultdict
from math import isclose
from random import Random
from typing import Any

import pytest
import valkey
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.core.model import LaneConfig, SchedulerConfig, TenantConfig, Ticket
from scheduling.shared.library import Library
from scheduling.shared.wire import Answer, Keys, config_fields, decode, encode, ticket_fields
from tests.redis_server import RedisServer
from tests.unit.scheduling.cast import config, pool

LIBRARY = Library()
KEYS = Keys().of("chat")
ME = "gateway.0"
TENANTS = {"alice": 1.0, "bob": 2.0, "carol": 0.5}
LANES = (LaneConfig("standard", 0), LaneConfig("batch", 1, reserved_share=0.3))


def with_applications() -> SchedulerConfig:
    tenants = {name: TenantConfig(weight, None, {"bot": 3.0}) for name, weight in TENANTS.items()}
    return config(pool(3), lanes=LANES, tenants=tenants)


class Server:
    """One gateway's calls, and the ledger that its requests end in."""

    def __init__(self, client: valkey.Valkey, settings: SchedulerConfig) -> None:
        self.client = client
        self.config = settings
        self.now = 1_000.0
        self.numbers = 0
        self.waiting: dict[str, Ticket] = {}
        self.running: dict[str, tuple[Ticket, str, float]] = {}  # endpoint, charged
        self.since: dict[tuple[str, str, str], float] = defaultdict(float)
        self.kept: list[Any] = [[], []]
        self.charged_then: dict[str, float] = {}
        self.born = 0.0
        self.empty()
        self.call("restore", [], [], [])

    def call(self, name: str, *given: Any) -> Answer:
        payload = encode([self.now, ME, *given])
        raw = self.client.fcall(LIBRARY.function(name), 2, *KEYS, payload)
        answer: Answer = decode(raw[0] if isinstance(raw, list) else raw)
        for id, endpoint in answer[1]:
            ticket = self.waiting.pop(id)
            self.running[id] = ticket, endpoint, ticket.cost
        if isinstance(raw, list):
            answer.append(decode(raw[1]))
        return answer

    def empty(self) -> None:
        self.client.flushall()
        self.client.function_load(LIBRARY.text, replace=True)
        self.call("configure", 1, *config_fields(self.config))
        self.born = self.call("beat", 1e9, True)[3]

    def ask(
        self, tenant: str, cost: float = 10.0, lane: str = "standard", application: str = ""
    ) -> str:
        self.numbers += 1
        ticket = Ticket(f"r{self.numbers}", "chat", lane, tenant, application, cost, 1.0)
        self.waiting[ticket.request_id] = ticket
        self.call("acquire", ticket_fields(ticket), True)
        return ticket.request_id

    def charge(self, id: str, cost: float) -> None:
        ticket, endpoint, charged = self.running[id]
        if cost > charged:
            self.running[id] = ticket, endpoint, cost
            self.call("charge", [[id, cost]])

    def end(self, id: str, cost: float) -> None:
        ticket, _, _ = self.running.pop(id)
        self.call("settle", id, cost)
        whose = ticket.lane, ticket.tenant, ticket.application
        self.since[whose] += cost - self.charged_then.get(id, 0.0)

    def keep(self) -> None:
        status, _, *kept, _ = self.call("counters")
        assert status == "done"
        self.kept, self.since = kept, defaultdict(float)
        self.charged_then = dict(kept[1])

    def lose(self, readmit_first: bool = False, waiting: list[str] | None = None) -> None:
        """The server comes back empty, is given what was kept, and hears of all that is open."""
        self.now += 1.0
        before = self.born
        self.empty()
        steps = [lambda: self.readmit(before), self.restore]
        for step in steps if readmit_first else reversed(steps):
            step()
        for id in list(self.waiting) if waiting is None else waiting:
            self.call("acquire", ticket_fields(self.waiting[id]), True)

    def readmit(self, born: float) -> None:
        fields = [[ticket_fields(t), end, c, born] for t, end, c in self.running.values()]
        assert self.call("readmit", fields)[0] == "done"
        states = self.call("states", list(self.running))[2]
        assert [state for state, _ in states] == ["running"] * len(fields)

    def restore(self) -> None:
        lanes, opened = self.kept
        ran = [[id, charged] for id, charged in opened if charged]
        since = [[*whose, units] for whose, units in self.since.items()]
        assert self.call("restore", lanes, ran, since)[0] == "done"
        assert self.call("restore", lanes, ran, since)[0] == "nothing"

    def counters(self) -> dict[tuple[str, ...], float]:
        """By lane and tenant, and of their applications."""
        found: dict[tuple[str, ...], float] = {}
        for lane, _, _, shares in self.call("counters")[2]:
            for tenant, v, _, _, flows in shares:
                found[lane, tenant] = v
                found.update({(lane, tenant, name): v for name, v, _ in flows})
        return found


@pytest.fixture
def made(client: valkey.Valkey) -> Server:
    return Server(client, config(pool(1), lanes=LANES))


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), readmit_first=st.booleans())
def test_counters_of_who_waits_are_the_same_after_the_loss(
    server: RedisServer, seed: int, readmit_first: bool
) -> None:
    """Whatever ran, ended and was charged meanwhile, and in whatever order it is told."""
    random = Random(seed)
    with server.client() as client:
        tried = Server(client, with_applications())
        for lane in LANES:
            for tenant in TENANTS:
                for application in ("", "bot"):
                    for _ in range(25):  # so many that no queue runs empty
                        cost = random.choice([10.0, random.random() * 90])
                        tried.ask(tenant, cost, lane.name, application)
        for at, moment in enumerate((random.randint(0, 20), random.randint(0, 20))):
            if at:
                tried.keep()
            for _ in range(moment):
                tried.now += random.random()
                id = random.choice(sorted(tried.running))
                if random.random() < 0.4:
                    tried.charge(id, random.random() * 150)
                else:
                    tried.end(id, random.choice([0.0, 20.0, random.random() * 200]))
        before, running = tried.counters(), set(tried.running)
        tried.lose(readmit_first)
        after = tried.counters()
        assert tried.running.keys() == running
        assert after.keys() == before.keys()
        for whose, v in before.items():
            assert isclose(after[whose], v, abs_tol=1e-6), (whose, v, after[whose])
        assert tried.call("live", True)[0] == "done"  # nothing is missing either


@pytest.mark.parametrize("first", ["alice", "bob"])
def test_who_was_ahead_gets_no_head_start_whoever_comes_back_first(
    made: Server, first: str
) -> None:
    """Alice has had 500 units while Bob waited: his next fifty requests go first."""
    made.ask("carol")
    made.ask("alice", 500.0)
    made.ask("alice", 10.0)
    for _ in range(20):
        made.ask("bob", 10.0)
    made.end(next(iter(made.running)), 10.0)
    assert [t.tenant for t, _, _ in made.running.values()] == ["alice"]
    made.end(next(iter(made.running)), 500.0)
    made.keep()
    waiting = sorted(made.waiting, key=lambda id: made.waiting[id].tenant != first)
    made.lose(waiting=waiting)
    served = []
    while made.running:
        id, (ticket, _, _) = next(iter(made.running.items()))
        served.append(ticket.tenant)
        made.end(id, 10.0)
    assert served == ["bob"] * 20 + ["alice"]


def test_what_was_served_after_the_counters_were_kept_comes_from_the_ledger(made: Server) -> None:
    made.ask("alice", 10.0)
    made.ask("bob", 10.0)
    made.ask("bob", 10.0)
    made.ask("alice", 10.0)
    made.keep()
    made.end("r1", 800.0)  # alice's, ten when it was kept
    before = made.counters()["standard", "alice"]
    assert before == 800.0
    made.lose()
    assert made.counters()["standard", "alice"] == before


def test_who_comes_new_after_the_loss_starts_level_with_those_who_waited(made: Server) -> None:
    made.ask("alice", 300.0)
    made.ask("alice", 10.0)
    made.ask("bob", 10.0)
    made.keep()
    made.lose(waiting=[])
    made.ask("carol", 10.0)  # before the others are back
    assert made.counters()["standard", "carol"] == 300.0


def test_a_tenant_that_was_idle_all_the_while_earned_nothing(made: Server) -> None:
    """It is kept by what all have had that were no further."""
    made.ask("carol", 10.0)
    made.end("r1", 10.0)
    made.ask("alice", 400.0)
    made.ask("alice", 10.0)
    made.end("r2", 400.0)
    made.keep()
    made.lose()
    made.ask("carol", 10.0)
    counters = made.counters()
    assert counters["standard", "carol"] >= 400.0


def test_an_empty_server_keeps_nothing_until_it_has_been_given_what_was(made: Server) -> None:
    """Else what was kept would be lost under the next that is."""
    made.ask("alice")
    made.keep()
    made.empty()
    assert made.call("unwhole")[2] == ["chat"]
    assert made.call("counters")[0] == "nothing"
    made.restore()
    assert made.call("unwhole")[2] == []
    assert made.call("counters")[0] == "done"


def test_a_pool_that_policy_adds_waits_for_nothing(made: Server) -> None:
    both = config(pool(1), pool(1, name="embed"), lanes=LANES)
    made.call("configure", 2, *config_fields(both))
    assert made.call("unwhole")[2] == []


def test_what_was_kept_of_somebody_that_policy_has_no_more_is_dropped(made: Server) -> None:
    made.ask("alice", 50.0)
    made.ask("bob", 50.0)
    made.keep()
    made.end("r1", 60.0)
    made.end("r2", 60.0)
    made.config = config(pool(1), tenants={"alice": 1.0})
    del made.config.tenants["bob"]
    made.lose()
    assert made.ask("alice") in made.running
