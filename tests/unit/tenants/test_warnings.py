"""What an admin is told before a change is applied: what it does to what runs now, nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tenants.core.document import EMPTY, Document
from tenants.core.warnings import (
    EndpointNow,
    LaneNow,
    LiveState,
    PolicyWarning,
    TenantNow,
    affected,
    compiled,
)
from tenants.core.warnings import warnings as of_compiled
from tests.unit.tenants.policies import POLICY, policies, read

OLD = read(POLICY)
FIRST, SECOND = ("http://127.0.0.1:9101/v1", "http://127.0.0.1:9102/v1")
QUIET = LiveState(known=True)
BUSY = LiveState(
    known=True,
    tenants={
        "acme": TenantNow(running=6, queued=4, requests=90, tokens=120_000),
        "bricks": TenantNow(running=1),
    },
    endpoints={
        ("demo-chat", FIRST): EndpointNow(running=5),
        ("demo-chat", SECOND): EndpointNow(running=2, available=False),
    },
    lanes={
        ("demo-chat", "standard"): LaneNow(5, 4, 12.5, frozenset({"acme", "bricks"})),
        ("demo-chat", "batch"): LaneNow(2, 0, 0.0, frozenset({"acme"})),
    },
    budgets={"tenant:acme/hourly": 8.0, "application:acme/nightly/own": 3.0},
    recent={
        "acme": {
            ("bot", "demo-chat", "critical"): 30,
            ("nightly", "gpt-4o-mini", "batch"): 7,
            ("", "demo-chat", "standard"): 1,
        }
    },
)


def warnings(old: Document, new: Document, live: LiveState) -> list[PolicyWarning]:
    return of_compiled(compiled(old), compiled(new), live)


def told(good: str, new: str, live: LiveState = BUSY) -> list[str]:
    assert good in POLICY
    return [str(each) for each in warnings(OLD, read(POLICY.replace(good, new)), live)]


def test_reserved_shares_that_leave_little_are_told_with_their_sum() -> None:
    assert told("reserved_share: 0.3", "reserved_share: 0.75") == [
        "warning: Reserved shares add up to 95%; 5% is left to go by rank."
    ]
    assert told("reserved_share: 0.3", "reserved_share: 0.5") == []


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ("max_running: 5", "acme: max_running 5 is below its 6 running now."),
        ("max_queued: 3", "acme: max_queued 3 is below its 4 queued now."),
        (
            "requests_per_minute: 60",
            "acme: requests_per_minute 60 is below its 90 requests in the last minute.",
        ),
        (
            "tokens_per_minute: 100000",
            "acme: tokens_per_minute 100,000 is below its 120,000 tokens in the last minute.",
        ),
    ],
)
def test_a_limit_below_what_is_in_use_is_told(limits: str, said: str) -> None:
    assert told("limits: {max_running: 8}", f"limits: {{{limits}}}") == [f"warning: {said}"]


def test_a_limit_that_is_enough_or_was_exceeded_before_is_not_told() -> None:
    assert told("limits: {max_running: 8}", "limits: {max_running: 6}") == []
    raised = read(POLICY.replace("max_running: 8", "max_running: 4"))
    assert warnings(read(POLICY.replace("max_running: 8", "max_running: 3")), raised, BUSY) == []


def test_a_tiers_limit_is_told_for_each_tenant_that_it_reaches() -> None:
    changed = POLICY.replace("limits: {max_running: 32,", "limits: {max_running: 1,")
    assert warnings(OLD, read(changed), BUSY) == []  # acme says its own
    inherits = read(POLICY.replace("    limits: {max_running: 8}\n", ""))
    lower = read(changed.replace("    limits: {max_running: 8}\n", ""))
    assert [each.message for each in warnings(inherits, lower, BUSY)] == [
        "acme: max_running 1 is below its 6 running now."
    ]


def test_a_budget_that_would_be_used_up_at_once_is_told() -> None:
    assert told("cost: 9,", "cost: 8,") == [
        "warning: acme: budget hourly would be used up at once: 8 of 8 units in this day; then: "
        "reject."
    ]
    assert told("cost: 9,", "cost: 8.5,") == []
    assert told("name: own, kind: sustained, cost: 7", "name: own, kind: sustained, cost: 2") == [
        "warning: acme/nightly: budget own would be used up at once: 3 of 2 units in this hour; "
        "then: reject."
    ]


def test_a_lane_or_model_that_recent_calls_used_is_told_where_it_is_taken_away() -> None:
    without = POLICY.replace("      - {name: bot, lane: critical, weight: 3}\n", "")
    fewer = without.replace("[standard, critical, batch]", "[standard, batch]")
    assert [str(each) for each in warnings(read(without), read(fewer), BUSY)] == [
        "warning: acme may no longer use lane critical, as 30 requests of it did in the last hour."
    ]
    assert told("    tier: gold\n", "    tier: gold\n    models: []\n") == [
        "warning: acme may no longer use model demo-chat, as 38 requests of it did in the last "
        "hour."
    ]


def test_suspending_a_tenant_with_open_requests_is_told() -> None:
    assert told("    tier: gold\n", "    tier: gold\n    enabled: false\n") == [
        "warning: acme is suspended while 6 of its requests run and 4 wait; those that wait are "
        "refused."
    ]
    idle = LiveState(known=True, recent=BUSY.recent)
    assert told("    tier: gold\n", "    tier: gold\n    enabled: false\n", idle) == [
        "warning: acme is suspended; it made 38 requests in the last hour."
    ]
    assert told("    tier: gold\n", "    tier: gold\n    enabled: false\n", QUIET) == []


def test_an_application_that_goes_is_told_with_its_calls() -> None:
    assert told("      - {name: bot, lane: critical, weight: 3}\n", "") == [
        "warning: Application acme/bot made 30 requests in the last hour."
    ]


def test_a_busy_endpoint_that_is_drained_or_removed_is_told() -> None:
    drained = told(f'"{FIRST}"', f'"{FIRST}", drain: true')
    assert drained == [
        f"warning: {FIRST} is drained while it runs 5 requests of demo-chat; they finish, and "
        "nothing new is sent to it.",
        "warning: No endpoint of demo-chat that would be left is available now.",
    ]
    assert told(f'{{url: "{SECOND}"}}', "") == [
        f"warning: {SECOND} is removed while it runs 2 requests of demo-chat; they finish, and "
        "nothing new is sent to it."
    ]


def test_draining_the_last_endpoint_is_told_though_nothing_runs() -> None:
    both = POLICY.replace(f'"{FIRST}"', f'"{FIRST}", drain: true').replace(
        f'"{SECOND}"', f'"{SECOND}", drain: true'
    )
    assert [each.message for each in warnings(OLD, read(both), QUIET)] == [
        "No endpoint of demo-chat would be left to take new requests."
    ]


def test_a_pool_that_goes_is_told_once() -> None:
    without = read(POLICY[: POLICY.index("pools:")] + POLICY[POLICY.index("tenants:") :])
    assert [each.message for each in warnings(OLD, without, BUSY)] == [
        "demo-chat runs 7 and queues 4; what waits would be refused.",
        "38 requests in the last hour asked for demo-chat.",
    ]


def test_a_wait_shorter_than_the_oldest_one_is_told() -> None:
    shares = "rank: 1, reserved_share: 0.2"
    assert told(shares, f"{shares}, max_queue_seconds: 10") == [
        "warning: The oldest request in lane standard has waited 12.5 s, longer than the new 10 s."
    ]


def test_a_weight_is_told_as_the_share_that_it_means_now() -> None:
    assert told("weight: 8", "weight: 2") == [
        "note: acme is alone in batch now; its weight counts once others are there.",
        "note: acme: 89% → 67% of standard, by weight among the 2 tenants active there now.",
    ]
    assert told("weight: 8", "weight: 2", QUIET) == []


def test_a_weight_names_the_pool_where_several_are_active() -> None:
    lane = LaneNow(1, 0, 0.0, frozenset({"acme", "bricks"}))
    two = LiveState(known=True, lanes={("a", "standard"): lane, ("b", "standard"): lane})
    assert [each.split(",")[0] for each in told("weight: 8", "weight: 1", two)] == [
        "note: acme: 89% → 50% of standard on a",
        "note: acme: 89% → 50% of standard on b",
    ]


def test_warnings_come_before_notes_and_what_could_not_be_looked_at_is_said() -> None:
    found = told("weight: 8", "weight: 2\n    on_overload: reject\n    models: []")
    assert [each.split(":")[0] for each in found] == ["warning", "note", "note"]
    blind = told("weight: 8", "weight: 2", LiveState())
    assert blind == [
        "note: No gateway is heard of, so what runs and waits now could not be looked at."
    ]


def test_the_tenants_to_look_at_are_those_whose_policy_changes_in_effect() -> None:
    old, lighter = compiled(OLD), read(POLICY.replace("weight: 8", "weight: 2"))
    assert affected(old, compiled(lighter)) == ["acme"]
    heavier = POLICY.replace("{name: free, lane: batch}", "{name: free, lane: batch, weight: 3}")
    assert affected(old, compiled(read(heavier))) == ["bricks"]
    assert affected(old, compiled(EMPTY)) == ["acme", "bricks"]


@given(policies(), policies())
@settings(max_examples=30)
def test_any_change_is_looked_at_without_a_fault(one: object, other: object) -> None:
    from tenants.core.validation import validate

    old, new = validate(one), validate(other)
    assert warnings(old, old, BUSY) == []
    assert all(each.message.endswith(".") for each in warnings(old, new, BUSY))


def test_endpoints_that_no_gateway_has_reached_are_told_when_none_else_is_left() -> None:
    """As after a rollback to a revision of when engines had other ports."""
    moved = POLICY.replace(":9101/", ":9201/").replace(":9102/", ":9202/")
    found = [str(each) for each in warnings(OLD, read(moved), BUSY)]
    assert any("No gateway has ever reached an endpoint that demo-chat" in each for each in found)
    assert any("http://127.0.0.1:9201/v1, http://127.0.0.1:9202/v1" in each for each in found)
    one = [str(each) for each in warnings(OLD, read(POLICY.replace(":9102/", ":9202/")), BUSY)]
    assert not any("ever reached" in each for each in one)


def test_an_endpoint_without_its_v1_is_told_once_and_other_versions_are_not() -> None:
    """Its health checks are good, and each of its requests would be a 404."""
    bare = told(FIRST, "http://127.0.0.1:9101", QUIET)
    assert [each for each in bare if "/v1" in each and "has no" in each] == [
        "warning: http://127.0.0.1:9101 of demo-chat has no /v1: requests would go to "
        "http://127.0.0.1:9101/chat/completions, where most engines serve nothing; "
        "http://127.0.0.1:9101/v1 is the usual address."
    ]
    assert not any("has no" in each for each in told(FIRST, "http://127.0.0.1:9101/api/v3", QUIET))
    had = read(POLICY.replace(FIRST, "http://127.0.0.1:9101"))
    assert not any("has no" in str(each) for each in warnings(had, had, QUIET))


def test_a_new_pools_endpoint_without_its_v1_is_told_too() -> None:
    fresh = read(POLICY.replace(FIRST, "http://127.0.0.1:9101"))
    assert any("has no /v1" in str(each) for each in warnings(EMPTY, fresh, QUIET))
