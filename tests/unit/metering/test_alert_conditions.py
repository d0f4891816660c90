"""Conditions of alerts, from plain live state and shares."""

from __future__ import annotations

from dataclasses import dataclass, replace

from metering.core import alert_conditions as conditions
from metering.core.alert_conditions import BudgetUse, Pair
from metering.core.alert_kinds import KINDS, usual

LANE = {"queued": 3, "running": 0, "served": 10.0, "oldest_wait_s": 40.0, "tenants": {}}
BUSY = {"queued": 3, "running": 2, "served": 90.0, "oldest_wait_s": 1.0, "tenants": {}}
URL = "http://127.0.0.1:9101/v1"


def sample(lanes=None, bound=100.0, up=True, state="local"):
    pool = {"lanes": lanes or {}, "bound_units": bound, "endpoints": {URL: {"available": up}}}
    return {"gateway": "g1", "state": state, "pools": {"chat": pool}}


def indebted(debt, bound=100.0):
    return sample({"standard": {**BUSY, "tenants": {"alice": {"debt": debt}}}}, bound)


@dataclass
class Share:
    name: str = "alice"
    requests: int = 100
    throttled: int = 60
    queue_p95_ms: float | None = 12_000.0

    @property
    def throttle_rate(self):
        return self.throttled / self.requests


# --- budgets, throttling, queue time ------------------------------------------------------------


def test_a_budget_is_told_from_its_threshold_on():
    uses = [BudgetUse("tenant:alice/hourly", used, 100.0, "13:00", False) for used in (79.9, 80.0)]
    assert conditions.budgets_past(uses[:1], 0.8, True) == {}
    found = conditions.budgets_past(uses[1:], 0.8, True)
    assert found == {
        "tenant:alice/hourly": "tenant:alice/hourly has used 80% of its 100 units; its window "
        "ends at 13:00"
    }


def test_a_budget_that_refuses_is_used_up_and_its_part_is_rounded_down():
    use = BudgetUse("tenant:alice/hourly", 99.9, 100.0, "13:00", False, refused=1_200)
    (told,) = conditions.budgets_past([use], 1.0, with_alerting=False).values()
    assert "has used 99% of its 100 units and refused 1,200 calls" in told
    assert conditions.budgets_past([replace(use, refused=0)], 1.0, with_alerting=False) == {}


def test_a_budget_that_only_alerts_is_left_to_the_gateway_once_it_is_used_up():
    use = [BudgetUse("tenant:alice/hourly", 200.0, 100.0, "13:00", True)]
    assert conditions.budgets_past(use, 1.0, with_alerting=False) == {}
    assert conditions.budgets_past(use, 0.8, with_alerting=True)


def test_throttling_is_told_of_enough_requests_only():
    assert list(conditions.throttled([Share()], 0.5, 5)) == ["alice"]
    assert conditions.throttled([Share(throttled=49)], 0.5, 5) == {}
    assert conditions.throttled([Share(requests=19, throttled=19)], 0.5, 5) == {}


def test_a_lane_is_slow_by_its_own_longest_wait():
    lanes = {"interactive": 20.0, "batch": 3600.0}
    shares = [Share("interactive"), Share("batch"), Share("gone")]
    found = conditions.slow_lanes(shares, lanes, 0.5, 5)
    assert list(found) == ["interactive"]
    assert "12.0 s" in found["interactive"]
    assert conditions.slow_lanes([Share("interactive", queue_p95_ms=None)], lanes, 0.5, 5) == {}


# --- live state ---------------------------------------------------------------------------------


def test_a_debt_past_the_bound_counts_when_it_stays():
    assert conditions.in_debt([Pair(indebted(150.0), indebted(50.0))], 1.0) == {}
    assert conditions.in_debt([Pair(indebted(150.0), None)], 1.0) == {}
    found = conditions.in_debt([Pair(indebted(150.0), indebted(120.0))], 1.0)
    assert found == {
        "alice in standard of chat": "alice is owed 150 units in lane standard of chat; "
        "the bound is 100"
    }
    ahead = conditions.in_debt([Pair(indebted(-150.0), indebted(-150.0))], 1.0)
    assert "is ahead by 150" in next(iter(ahead.values()))
    assert conditions.in_debt([Pair(indebted(150.0), indebted(150.0))], 2.0) == {}
    assert conditions.in_debt([Pair(indebted(5.0, 0.0), indebted(5.0, 0.0))], 1.0) == {}


def test_a_lane_starves_where_others_are_served():
    lanes = {"batch": LANE, "interactive": BUSY}
    found = conditions.starved([Pair(sample(lanes), sample(lanes))], 30.0)
    assert list(found) == ["batch of chat"]
    assert "3 wait, the oldest for 40 s" in found["batch of chat"]


def test_a_lane_does_not_starve_while_it_is_served_or_has_not_waited_long():
    for lane in ({**LANE, "running": 1}, {**LANE, "served": 11.0}, {**LANE, "oldest_wait_s": 9.0}):
        now = sample({"batch": lane, "interactive": BUSY})
        before = sample({"batch": LANE, "interactive": BUSY})
        assert conditions.starved([Pair(now, before)], 30.0) == {}


def test_where_nothing_of_a_pool_is_served_it_is_not_the_lanes_fault():
    still = sample({"batch": LANE, "interactive": LANE})
    assert conditions.starved([Pair(still, still)], 30.0) == {}
    assert conditions.starved([Pair(still, None)], 30.0) == {}


def test_an_endpoint_is_down_when_it_stays_down_and_policy_wants_it():
    down, up = sample(up=False), sample(up=True)
    wanted = {"chat": [URL]}
    assert list(conditions.endpoints_down([Pair(down, down)], wanted)) == [f"{URL} of chat"]
    for pair in (Pair(down, up), Pair(up, down), Pair(down, None)):
        assert conditions.endpoints_down([pair], wanted) == {}
    assert conditions.endpoints_down([Pair(down, down)], {"chat": []}) == {}


def test_an_endpoint_that_is_down_is_told_with_what_was_found():
    down = sample(up=False)
    down["pools"]["chat"]["endpoints"][URL]["fault"] = "its check answered 503"
    (told,) = conditions.endpoints_down([Pair(down, down)], {"chat": [URL]}).values()
    assert told == f"endpoint {URL} of chat takes no requests (its check answered 503)"


def test_shared_state_that_is_lost_is_told_by_gateway():
    assert conditions.state_lost([Pair(sample(), None), Pair(sample(state="shared"), None)]) == {}
    assert list(conditions.state_lost([Pair(sample(state="lost"), None)])) == ["g1"]


def test_a_storm_is_bounded():
    many = {str(n): "so" for n in range(500)}
    assert len(conditions.first(many)) == conditions.MOST


# --- the table of kinds -------------------------------------------------------------------------


def test_every_kind_says_in_words_when_it_is_raised():
    for kind in KINDS.values():
        text = usual(kind).text
        assert "{" not in text
        assert text.endswith(".")
        assert kind.do.endswith(".")
        if kind.threshold is not None:
            assert kind.least <= kind.threshold <= kind.most
            assert "{threshold}" in kind.says
    assert "50% of a tenant's requests" in usual(KINDS["throttle_rate"]).text
    assert "For 30 s a lane" in usual(KINDS["starved_lane"]).text
