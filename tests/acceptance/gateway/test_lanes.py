"""Who goes next, seen at the engine: fair among tenants, in order within one, no lane starved.

Calls that hang hold all places of a pool while the others queue; hanging up starts the race. The
engine numbers what it receives, so the order there is the order of the scheduler's decisions.
"""

from __future__ import annotations

import os
from typing import Any

from tests.acceptance.gateway.caller import Call, Caller
from tests.acceptance.gateway.rig import Rig
from tests.acceptance.stack import PATIENCE_S, until

SERVICE = {"max_tokens": 8, "ignore_eos": True}


class Jam:
    """All places of a pool are taken until it is let go."""

    def __init__(self, rig: Rig, places: int = 2) -> None:
        self.model = rig.pool(places)
        self.rig = rig
        rig.engine.script("hang", times=places)
        holder = rig.tenant(model=self.model)
        self.holding = [holder.start(max_tokens=1) for _ in range(places)]
        until(lambda: rig.engine.load() == places, "all places are taken")

    def let_go(self) -> None:
        for call in self.holding:
            call.hang_up()


def order(rig: Rig, calls: list[Call]) -> list[str]:
    """The ids of these, as the engine received them."""
    ids = []
    for call in calls:
        answer = call.answer()
        assert answer.status == 200, answer.body
        ids.append(answer.id)
    return [seen["headers"]["x-request-id"] for seen in rig.engine.seen(*ids)]


def whose(rig: Rig, ids: list[str], *callers: Caller) -> list[str]:
    owner = {
        row["request_id"]: caller.tenant
        for caller in callers
        for row in until(lambda c=caller: rig.rows(c.tenant), "its records")
    }
    return [owner[id] for id in ids]


def settled(rig: Rig, *callers: Caller, count: int) -> None:
    for caller in callers:
        until(lambda c=caller: len(rig.rows(c.tenant)) >= count, "its records")


def test_a_light_tenant_overtakes_a_heavy_ones_backlog(rig: Rig) -> None:
    """D15; R33: fresh ids and names on each call make no new tenant of the heavy one."""
    jam = Jam(rig)
    heavy, light = (rig.tenant(model=jam.model) for _ in range(2))
    calls = []
    for number in range(20):
        fresh = os.urandom(8).hex()
        headers = {"X-Tenant-Id": fresh, "X-Llm-D-Inference-Fairness-Id": fresh}
        headers |= {"X-Request-Id": fresh, "X-Session-Id": str(number)}
        calls.append(heavy.start(headers=headers, user=fresh, **SERVICE))
    rig.queued(heavy.tenant, 20)
    last = light.start(**SERVICE)
    rig.queued(light.tenant, 1)
    jam.let_go()
    served = order(rig, [*calls, last])
    settled(rig, heavy, count=20)
    settled(rig, light, count=1)
    assert whose(rig, served, heavy, light).index(light.tenant) <= 2


def test_a_tenant_alone_gets_everything(rig: Rig) -> None:
    """D15: idle capacity is nobody's."""
    alice = rig.tenant(model=rig.pool(2))
    rig.engine.script("hang", times=2)
    calls = [alice.start() for _ in range(2)]
    rig.running(alice.tenant, 2)
    for call in calls:
        call.hang_up()


def test_sixty_large_calls_run_at_once_and_hold_up_no_other(rig: Rig) -> None:
    """R43: nothing that a call waits for stops the others."""
    room = {"max_running": 64, "max_running_tokens": 10_000_000}
    alice = rig.tenant(model=rig.pool(capacity=room))
    bob = rig.tenant()
    large = [{"role": "user", "content": "word " * 20_000}]
    rig.engine.script("hang", times=60)
    calls = [alice.start(messages=large, stream=n % 2 == 0) for n in range(60)]
    until(lambda: rig.engine.load() == 60, "the engine has all of them", 4 * PATIENCE_S)
    assert [bob.chat(max_tokens=1).status for _ in range(10)] == [200] * 10
    assert rig.engine.load() == 60
    for call in calls:
        call.hang_up()
    rig.idle()


def test_weights_share_what_is_served(rig: Rig) -> None:
    jam = Jam(rig)
    two, one = rig.tenant(model=jam.model, weight=2), rig.tenant(model=jam.model)
    calls = [caller.start(**SERVICE) for _ in range(24) for caller in (two, one)]
    rig.queued(two.tenant, 24)
    rig.queued(one.tenant, 24)
    jam.let_go()
    served = order(rig, calls)
    settled(rig, two, one, count=24)
    first = whose(rig, served, two, one)[:30]  # both are backlogged for at least so long
    assert abs(first.count(two.tenant) - 20) <= 2


def test_applications_share_their_tenants_part(rig: Rig) -> None:
    jam = Jam(rig)
    big = rig.tenant({"name": "big", "weight": 3}, model=jam.model)
    rig.ask("POST", "/applications/", {"tenant": big.tenant, "name": "small"})
    small = rig.key(big.tenant, "small", jam.model)
    calls = [caller.start(**SERVICE) for _ in range(16) for caller in (big, small)]
    rig.queued(big.tenant, 32)
    jam.let_go()
    served = order(rig, calls)
    settled(rig, big, count=32)
    application = {row["request_id"]: row["application"] for row in rig.rows(big.tenant)}
    first = [application[id] for id in served[:20]]
    assert abs(first.count("big") - 15) <= 2


def test_one_tenants_equal_calls_keep_their_order(rig: Rig) -> None:
    """R27. One after another on each side: of two sockets either may be read first."""
    jam = Jam(rig, places=1)
    alice = rig.tenant(model=jam.model)
    calls = []
    for number in range(1, 31):
        calls.append(alice.start(**SERVICE))
        rig.queued(alice.tenant, number)
    jam.let_go()
    assert order(rig, calls) == [call.answer().id for call in calls]


def test_the_low_lane_still_moves_while_the_high_one_is_always_full(rig: Rig) -> None:
    """D16: a tenth of the service is reserved to `batch`; the rest goes by rank."""
    jam = Jam(rig)
    alice, bob = (rig.tenant(model=jam.model) for _ in range(2))
    high = [alice.start(headers={"X-Fairlane-Lane": "urgent"}, **SERVICE) for _ in range(60)]
    low = [bob.start(headers={"X-Fairlane-Lane": "batch"}, **SERVICE) for _ in range(12)]
    rig.queued(alice.tenant, 60)
    rig.queued(bob.tenant, 12)
    jam.let_go()
    served = order(rig, [*high, *low])
    settled(rig, alice, count=60)
    settled(rig, bob, count=12)
    owners = whose(rig, served, alice, bob)
    at = [place for place, owner in enumerate(owners) if owner == bob.tenant]
    share = sum(place < 60 for place in at) / 60
    assert 0.05 <= share <= 0.15  # its floor, and no more than hurts the high lane by that
    assert at[0] <= 2 / 0.1  # (its next request + one largest) / share
    assert {rig.engine.saw(id)["priority"] for id in served if id in served[:1]} == {1}  # type: ignore[index]


def test_each_lane_has_its_own_priority_at_the_engine(rig: Rig) -> None:
    """R36."""
    alice = rig.tenant()
    found: dict[str, Any] = {}
    for lane in ("urgent", "normal", "batch"):
        answer = alice.chat({"X-Fairlane-Lane": lane})
        assert answer.headers["x-fairlane-lane"] == lane
        found[lane] = rig.engine.seen(answer.id)[0]["priority"]
    assert found == {"urgent": 1, "normal": 11, "batch": 21}


def test_a_lane_under_a_ceiling_leaves_room_for_the_others(rig: Rig) -> None:
    model = rig.pool(4)
    alice = rig.tenant(model=model)
    rig.change("lanes", "batch", ceiling=0.5)
    rig.engine.script("hang", times=2)
    running = [alice.start(headers={"X-Fairlane-Lane": "batch"}) for _ in range(2)]
    until(lambda: rig.engine.load() == 2, "as many as the ceiling lets")
    waiting = alice.start(headers={"X-Fairlane-Lane": "batch"})
    rig.queued(alice.tenant, 1)
    assert alice.chat({"X-Fairlane-Lane": "urgent"}).status == 200
    rig.change("lanes", "batch", ceiling=1.0)
    assert waiting.answer().status == 200
    for call in running:
        call.hang_up()
