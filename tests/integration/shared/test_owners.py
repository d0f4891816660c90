"""Whatever is asked, in whatever order, under a name whose time is over: nothing that is held
belongs to a gateway that nobody will look for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import valkey
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.shared.library import whole_library
from metering.shared import wire
from metering.shared.library import LOADED, MEMBERS, STATE, prefix
from scheduling.core.model import Ticket
from scheduling.shared.library import Library
from scheduling.shared.wire import Answer, Keys, config_fields, decode, encode, ticket_fields
from tests.redis_server import RedisServer
from tests.unit.metering.policies import NOON, hold, sustained
from tests.unit.scheduling.cast import config, pool

OWNERS = """
S.register('owners', function(name)
  local pool, found = S.pool(name), {}
  for _, request in ipairs(S.all_requests(pool)) do found[#found + 1] = request.replica end
  for _, ending in ipairs(pool.ends) do
    for _, replica in ipairs(ending.down) do found[#found + 1] = replica end
  end
  if pool.leader then found[#found + 1] = pool.leader end
  return S.answer('done', found)
end)
"""
LIBRARY = Library(whole_library().source + OWNERS)
NAME = f"fairlane_{LIBRARY.version}"
LEASE_S = 5.0
TENANT = prefix("alice")


class World:
    """Two gateways on one server. `awake` is never late, and ends what another left."""

    def __init__(self, client: valkey.Valkey) -> None:
        self.client, self.now, self.windows = client, 1_000.0, wire.Windows()
        client.flushall()
        client.function_load(LIBRARY.text, replace=True)
        self.call("awake", "configure", 1, *config_fields(config(pool(2))))
        for name in ("awake", "sleeps"):
            self.call(name, "beat", LEASE_S, True)
            self.members(name, "beat", lease_s=LEASE_S, joins=True)
        self.call("awake", "restore", [], [], [])
        self.members("awake", "loaded", id="once", newest=0)

    def call(self, name: str, function: str, *given: Any) -> Answer:
        payload = encode([self.now, f"{name}.0", *given])
        raw = self.client.fcall(LIBRARY.function(function), 2, *Keys().of("chat"), payload)
        return decode(raw[0] if isinstance(raw, list) else raw)

    def account(self, verb: str, key: str, message: bytes) -> Any:
        clock = f"{self.now:.17g}"
        given = verb.encode() + b" " + message
        return wire.decode(self.client.fcall(LIBRARY.function("accounts"), 1, key, given, clock))

    def members(self, name: str, verb: str, **given: Any) -> Any:
        return self.account(verb, STATE, wire.encode({"replica": f"{name}-1", **given}))

    def reserve(self, name: str, id: str, *, adopt: bool) -> wire.Message:
        asked = hold(sustained(100_000), cost=10, request_id=id)
        return wire.reserve(asked, NOON, self.windows, f"{name}-1", adopt)

    def admit(self, name: str, id: str) -> Answer:
        given = TENANT, self.reserve(name, id, adopt=False), ["queue", 60.0, "standard"], LOADED
        return self.call(name, "admit", fields(id), True, *given)

    def time_passes(self, seconds: float) -> None:
        """A second at a time, as heartbeats come."""
        for _ in range(int(seconds)):
            self.now += 1.0
            self.call("awake", "beat", LEASE_S, False)
            _, ending, *_ = self.members("awake", "beat", lease_s=LEASE_S, joins=False)
            for replica in ending:
                for id, _ in self.account("held", TENANT, wire.encode({"replica": replica})):
                    self.account("release", TENANT, wire.ending(id, 0, 0.0, NOON))
                self.account("leave", STATE, wire.encode({"replica": replica}))

    def holders(self) -> set[str]:
        """Of places in the pool, and of reservations."""
        reservations = self.client.hvals(f"{TENANT}open")
        return {*self.call("awake", "owners")[2], *(wire.decode(r)["of"] for r in reservations)}

    def known(self) -> set[str]:
        """Those that somebody ends once their time is over."""
        names: list[bytes] = []
        for key in ("fl:{chat}:replicas", MEMBERS, f"{STATE}ending"):
            names += self.client.zrange(key, 0, -1)
        return {name.decode() for name in names}


def fields(id: str) -> list[Any]:
    return ticket_fields(Ticket(id, "chat", "standard", "alice", "", 10.0, 1.0))


Act = Callable[[World, str, str], object]  # who asks, about which request

CALLS: dict[str, Act] = {
    "acquire": lambda w, me, id: w.call(me, "acquire", fields(id), True),
    "admit": lambda w, me, id: w.admit(me, id),
    "settle": lambda w, me, id: w.call(me, "settle", id, 3.0),
    "abandon": lambda w, me, id: w.call(me, "abandon", id),
    "charge": lambda w, me, id: w.call(me, "charge", [[id, 20.0]]),
    "elsewhere": lambda w, me, id: w.call(me, "elsewhere", id, "a"),
    "states": lambda w, me, id: w.call(me, "states", [id]),
    "configure": lambda w, me, id: w.call(me, "configure", w.now, *config_fields(config(pool(2)))),
    "available": lambda w, me, id: w.call(me, "available", "a", id == "r1"),
    "capacity": lambda w, me, id: w.call(me, "capacity", "a", 2, 1e9),
    "beat": lambda w, me, id: w.call(me, "beat", LEASE_S, False),
    "leave": lambda w, me, id: w.call(me, "leave") if me == "sleeps" else None,
    "readmit": lambda w, me, id: w.call(me, "readmit", [[fields(id), "a", 10.0, 0.0]]),
    "unwhole": lambda w, me, id: w.call(me, "unwhole"),
    "counters": lambda w, me, id: w.call(me, "counters"),
    "restore": lambda w, me, id: w.call(me, "restore", [], [], []),
    "supersede": lambda w, me, id: w.call(me, "supersede"),
    "live": lambda w, me, id: w.call(me, "live", True),
}
VERBS: dict[str, Act] = {
    "reserve": lambda w, me, id: w.account(
        "reserve", TENANT, wire.encode(w.reserve(me, id, adopt=False))
    ),
    "adopt": lambda w, me, id: w.account(
        "reserve", TENANT, wire.encode(w.reserve(me, id, adopt=True))
    ),
    "charges": lambda w, me, id: w.account("charge", TENANT, wire.ending(id, 9, 90.0, NOON)),
    "settles": lambda w, me, id: w.account("settle", TENANT, wire.ending(id, 9, 90.0, NOON)),
    "releases": lambda w, me, id: w.account("release", TENANT, wire.ending(id, 0, 0.0, NOON)),
    "asked": lambda w, me, id: w.account("asked", TENANT, wire.asked(id, "{}")),
    "beats": lambda w, me, id: w.members(me, "beat", lease_s=LEASE_S, joins=False),
    "loads": lambda w, me, id: w.members(me, "begin_load", seconds=60),
}
ACTS = CALLS | VERBS


@pytest.fixture
def world(server: RedisServer) -> Iterator[World]:
    with server.client() as client:
        yield World(client)


def test_every_function_is_asked_here(world: World) -> None:
    """One that is new goes on the list above."""
    [found] = world.client.execute_command("FUNCTION", "LIST", "LIBRARYNAME", NAME)
    found = dict(zip(found[::2], found[1::2], strict=True))
    names = {dict(zip(f[::2], f[1::2], strict=True))[b"name"].decode() for f in found[b"functions"]}
    assert {n.rpartition("_")[0] for n in names} == {*CALLS, "accounts", "owners"}


@pytest.mark.parametrize("name", ACTS)
def test_what_is_asked_under_a_name_whose_time_is_over_leaves_nothing_behind(
    world: World, name: str
) -> None:
    for id in ("r1", "r2", "r3"):
        assert world.admit("sleeps", id)[0] in ("running", "queued")
    world.time_passes(3 * LEASE_S)
    before = world.client.hgetall(f"{TENANT}open"), world.holders()
    assert before == ({}, {"awake.0"})  # it leads the pool
    for id in ("r1", "r4"):
        ACTS[name](world, "sleeps", id)
        assert (world.client.hgetall(f"{TENANT}open"), world.holders()) == before


STEP = st.one_of(
    st.tuples(st.sampled_from([*ACTS]), st.sampled_from(["awake", "sleeps", "sleeps"])),
    st.tuples(st.just("time"), st.sampled_from(["1", "4", "7"])),
    st.tuples(st.sampled_from(["joins", "admit", "reserve", "readmit"]), st.just("sleeps")),
)


def does(world: World, act: str, who: str, id: str) -> None:
    """One of STEP."""
    if act == "time":
        world.time_passes(int(who))
    elif act == "joins":
        world.call(who, "beat", LEASE_S, True)
        world.members(who, "beat", lease_s=LEASE_S, joins=True)
    else:
        ACTS[act](world, who, id)


def test_in_any_order_what_is_held_belongs_to_somebody(server: RedisServer) -> None:
    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.tuples(STEP, st.sampled_from(["r1", "r2", "r3"])), min_size=15, max_size=40))
    def holds(steps: list[tuple[tuple[str, str], str]]) -> None:
        world = World(client)
        for (act, who), id in steps:
            does(world, act, who, id)
            assert world.holders() <= world.known(), (act, who, id)
        world.time_passes(3 * LEASE_S)
        assert world.holders() <= {"awake.0", "awake-1"}

    with server.client() as client:
        holds()


def test_another_loads_the_counters_when_who_began_has_ended(world: World) -> None:
    world.client.delete(LOADED)
    assert world.members("sleeps", "begin_load", seconds=60)
    assert not world.members("awake", "begin_load", seconds=60)
    world.time_passes(LEASE_S + 1)
    assert world.members("awake", "begin_load", seconds=60)
    assert not world.members("sleeps", "begin_load", seconds=60)
