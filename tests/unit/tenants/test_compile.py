"""A snapshot has everything inherited filled in, and opens nothing that policy does not name."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings

from tenants.core.compile import KeyGrant, compile_snapshot
from tenants.core.document import EMPTY, Budget
from tenants.core.effective import origins
from tenants.core.snapshot import PolicySnapshot
from tenants.core.validation import validate
from tests.unit.tenants.policies import POLICY, policies, read

SNAPSHOT = compile_snapshot(read(POLICY), [], 3, 7)
ACME, BRICKS = SNAPSHOT.tenants["acme"], SNAPSHOT.tenants["bricks"]


def test_a_tenants_own_value_wins_over_its_tiers() -> None:
    assert (ACME.weight, BRICKS.weight) == (8, 1)
    assert (ACME.limits.max_running, ACME.limits.requests_per_minute) == (8, 600)
    assert BRICKS.limits.max_running is None


def test_budgets_merge_by_name_and_each_tenant_has_its_own_account() -> None:
    assert [(b.account, b.cost, b.period) for b in ACME.budgets] == [
        ("tenant:acme/burst", 200000, None),
        ("tenant:acme/hourly", 9, "day"),
    ]
    assert {budget.timezone for budget in ACME.budgets} == {"Asia/Tokyo"}


def test_an_applications_budgets_stand_in_its_tenants_time_zone() -> None:
    (own,) = ACME.applications["nightly"].budgets
    assert (own.account, own.timezone) == ("application:acme/nightly/own", "Asia/Tokyo")


def test_lanes_stand_by_rank() -> None:
    assert [lane.name for lane in SNAPSHOT.lanes] == ["critical", "standard", "batch"]
    assert [lane.engine_priority for lane in SNAPSHOT.lanes] == [0, 10, 20]
    assert ACME.allowed_lanes == ("critical", "standard", "batch")


def test_without_allowed_lanes_only_the_default_lane_is_allowed() -> None:
    assert BRICKS.allowed_lanes == ("batch",)


def test_an_application_without_a_lane_has_its_tenants() -> None:
    policy = read(POLICY.replace("{name: bot, lane: critical, weight: 3}", "{name: bot}"))
    bot = compile_snapshot(policy, [], 1, 1).tenants["acme"].applications["bot"]
    assert (bot.lane, bot.weight) == ("standard", 1)


def test_a_pool_answers_to_its_aliases() -> None:
    assert SNAPSHOT.models["gpt-4o-mini"] is SNAPSHOT.pools["demo-chat"]
    assert set(SNAPSHOT.pools) == {"demo-chat"}


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        ("[demo-chat]", {"demo-chat"}),
        ('["demo-*"]', {"demo-chat"}),
        ('["x*"]', set()),
        ("[]", set()),
    ],
)
def test_model_patterns_are_resolved_to_pools(patterns: str, found: set[str]) -> None:
    policy = read(POLICY.replace("tier: free", f"tier: free, models: {patterns}"))
    assert compile_snapshot(policy, [], 1, 1).tenants["bricks"].models == found


@pytest.mark.parametrize(
    ("own", "found"),
    [
        ("", {"tokens_per_minute"}),
        (", soft_limits: [requests_per_minute]", {"requests_per_minute"}),
        (", soft_limits: []", set()),
    ],
)
def test_a_tenants_soft_limits_replace_its_tiers(own: str, found: set[str]) -> None:
    text = POLICY.replace("name: free,", "name: free, soft_limits: [tokens_per_minute],")
    policy = read(text.replace("tier: free", f"tier: free{own}"))
    assert compile_snapshot(policy, [], 1, 1).tenants["bricks"].soft_limits == found


def test_a_pool_without_a_word_on_capacity_has_the_defaults_and_auto_says_so() -> None:
    assert SNAPSHOT.pools["demo-chat"].capacity.auto is False
    policy = read(POLICY.replace("aliases:", "capacity: auto\n    aliases:"))
    assert compile_snapshot(policy, [], 1, 1).pools["demo-chat"].capacity.auto is True


def key(tenant: str, application: str = "", digest: bytes = b"d") -> KeyGrant:
    ends = datetime(2030, 1, 1, tzinfo=UTC)
    own = Budget(name="cap", kind="sustained", cost=5, period="week")
    return KeyGrant("abc", tenant, application, digest, ends, (own,))


def test_a_key_is_found_by_its_digest() -> None:
    found = compile_snapshot(read(POLICY), [key("acme", "bot")], 1, 1).keys[b"d"]
    assert (found.id, found.tenant, found.application) == ("abc", "acme", "bot")
    assert found.expires_at == datetime(2030, 1, 1, tzinfo=UTC)
    assert (found.budgets[0].account, found.budgets[0].timezone) == ("key:abc/cap", "Asia/Tokyo")


@pytest.mark.parametrize("stray", [key("gone"), key("acme", "gone"), key("bricks", "bot")])
def test_a_key_of_nobody_in_the_policy_opens_nothing(stray: KeyGrant) -> None:
    assert compile_snapshot(read(POLICY), [stray], 1, 1).keys == {}


def test_a_suspended_tenant_is_still_known() -> None:
    policy = read(POLICY.replace("tier: free", "tier: free, enabled: false"))
    snapshot = compile_snapshot(policy, [key("bricks")], 1, 1)
    assert snapshot.tenants["bricks"].enabled is False
    assert snapshot.keys[b"d"].tenant == "bricks"


def test_the_empty_policy_compiles() -> None:
    assert compile_snapshot(EMPTY, [key("acme")], 0, 0).keys == {}


def test_a_snapshot_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        SNAPSHOT.tenants["x"] = ACME  # type: ignore[index]
    with pytest.raises(TypeError):
        ACME.applications["x"] = ACME.applications["bot"]  # type: ignore[index]


@settings(max_examples=80)
@given(policies())
def test_any_valid_policy_compiles_with_every_name_resolved(policy: dict[str, Any]) -> None:
    snapshot: PolicySnapshot = compile_snapshot(validate(policy), [], 1, 1)
    for tenant in snapshot.tenants.values():
        assert tenant.lane in tenant.allowed_lanes
        assert set(tenant.allowed_lanes) <= set(snapshot.lanes_by_name)
        assert tenant.models <= set(snapshot.pools)
        assert all(a.lane in snapshot.lanes_by_name for a in tenant.applications.values())
        accounts = [b.account for b in tenant.budgets]
        assert len(set(accounts)) == len(accounts)


def test_each_effective_value_says_who_gave_it() -> None:
    policy = read(POLICY)
    found = origins(policy.tenants[0], policy.tiers[0])
    assert found["weight"] == (8, "tenant")
    assert found["lane"] == ("standard", "tier")
    assert found["limits.max_running"] == (8, "tenant")
    assert found["limits.requests_per_minute"] == (600, "tier")
    assert found["limits.max_queued"] == (None, "default")
    assert found["on_overload"] == ("queue", "default")
    assert found["budgets.hourly"][1] == "tenant"
    assert found["budgets.burst"][1] == "tier"
    assert found["timezone"] == ("Asia/Tokyo", "tenant")
