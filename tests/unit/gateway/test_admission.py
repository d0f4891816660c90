"""The checks that need no counter, and the plan of what a call asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gateway.admission import (
    Estimate,
    cached_prefix,
    check_input,
    check_tenant,
    find_lane,
    find_pool,
    output_ceiling,
)
from gateway.errors import ApiError, Outcome
from tenants.core.snapshot import PolicySnapshot
from tests.unit.gateway.cast import AT, LANES, chat, plan, snapshot, who

LIMITED = snapshot(alice={"limits": {"max_input_tokens": 100, "max_output_tokens": 50}})


@pytest.mark.parametrize(
    ("check", "outcome", "says", "param"),
    [
        (
            lambda: check_tenant(who(LIMITED, "sam").tenant),
            Outcome.TENANT_SUSPENDED,
            "Tenant 'sam' is suspended",
            None,
        ),
        (
            lambda: find_pool(LIMITED, who(LIMITED).tenant, "gpt-9"),
            Outcome.MODEL_NOT_FOUND,
            "The model 'gpt-9' does not exist",
            "model",
        ),
        (
            lambda: find_pool(LIMITED, who(LIMITED, "bob").tenant, "org/code"),
            Outcome.MODEL_NOT_ALLOWED,
            "Tenant 'bob' may not use the model 'org/code'",
            "model",
        ),
        (
            lambda: find_lane(LIMITED, who(LIMITED, "bob"), "critical"),
            Outcome.LANE_NOT_ALLOWED,
            "'critical'; its lanes are: batch.",
            "X-Fairlane-Lane",
        ),
        (
            lambda: find_lane(LIMITED, who(LIMITED), "no-such-lane"),
            Outcome.LANE_NOT_ALLOWED,
            "its lanes are: critical, standard, batch.",
            "X-Fairlane-Lane",
        ),
        (
            lambda: check_input(who(LIMITED).tenant, 101, "messages"),
            Outcome.CONTEXT_LENGTH_EXCEEDED,
            "about 101 tokens; tenant 'alice' may send at most 100 (max_input_tokens)",
            "messages",
        ),
        (
            lambda: output_ceiling(who(LIMITED).tenant, chat(max_tokens=51)),
            Outcome.OUTPUT_LIMIT_EXCEEDED,
            "max_tokens is 51; tenant 'alice' may ask for at most 50 (max_output_tokens)",
            "max_tokens",
        ),
        (
            lambda: output_ceiling(
                who(LIMITED).tenant, chat(max_tokens=5, max_completion_tokens=51)
            ),
            Outcome.OUTPUT_LIMIT_EXCEEDED,
            "max_completion_tokens is 51; tenant 'alice' may ask for at most 50",
            "max_completion_tokens",
        ),
    ],
)
def test_a_refusal_names_the_limit_its_value_and_the_field(
    check: Callable[[], object], outcome: Outcome, says: str, param: str | None
) -> None:
    with pytest.raises(ApiError) as caught:
        check()
    assert caught.value.outcome is outcome
    assert says in caught.value.message
    assert caught.value.param == param


def test_what_is_exactly_at_a_limit_passes() -> None:
    check_input(who(LIMITED).tenant, 100, "messages")
    assert output_ceiling(who(LIMITED).tenant, chat(max_tokens=50)) == 50


def test_without_limits_anything_passes() -> None:
    free = who(snapshot()).tenant
    check_tenant(free)
    check_input(free, 10**9, "messages")
    assert output_ceiling(free, chat(max_tokens=10**9)) == 10**9
    assert output_ceiling(free, chat()) is None


def test_a_call_without_max_tokens_has_its_tenants_ceiling() -> None:
    assert output_ceiling(who(LIMITED).tenant, chat()) == 50


def test_an_alias_leads_to_its_pool() -> None:
    assert find_pool(LIMITED, who(LIMITED).tenant, "gpt-4o-mini").model == "chat"


def test_the_lane_is_the_applications_unless_an_allowed_one_is_asked_for() -> None:
    policy = snapshot()
    assert find_lane(policy, who(policy, "bot"), "").name == "critical"
    assert find_lane(policy, who(policy, "alice"), "").name == "standard"
    assert [find_lane(policy, who(policy, "bot"), lane).name for lane in LANES] == LANES


def test_the_plan_holds_expected_and_worst_cost_in_the_pools_own_units() -> None:
    policy = snapshot(pool={"cost": {"input": 2, "cached_input": 1, "output": 3}})
    made = plan(policy, estimate=Estimate(10, 20, 100))
    assert (made.hold.tokens, made.hold.cost, made.hold.ceiling_cost) == (30, 80.0, 320.0)
    assert (made.ticket.cost, made.ticket.load) == (80.0, 30.0)


def test_the_minute_holds_what_the_caller_named_and_else_what_is_expected() -> None:
    named = plan(call=chat(max_tokens=100), estimate=Estimate(10, 20, 100)).hold
    silent = plan(estimate=Estimate(10, 20, 100)).hold
    assert (named.tokens, named.ceiling_tokens) == (30, 110)
    assert (silent.tokens, silent.ceiling_tokens) == (30, 30)


def test_the_worst_case_is_never_less_than_what_is_expected() -> None:
    hold = plan(estimate=Estimate(10, 20, 5)).hold
    assert hold.ceiling_cost == hold.cost


def test_the_ticket_says_whose_it_is_and_how_its_prompt_begins() -> None:
    call = chat()
    ticket = plan(snapshot(), "bot", id="r7", call=call).ticket
    assert (ticket.request_id, ticket.pool, ticket.lane) == ("r7", "chat", "critical")
    assert (ticket.tenant, ticket.application) == ("alice", "bot")
    assert ticket.prefix == cached_prefix(call, snapshot().pools["chat"], "alice") > 0


def test_an_alias_counts_as_its_pool() -> None:
    assert plan(call=chat(model="gpt-4o-mini")).ticket.pool == "chat"


def test_budgets_of_key_application_and_tenant_all_hold() -> None:
    hourly = {"name": "hourly", "kind": "sustained", "cost": 9, "period": "hour"}
    bot = {"name": "bot", "budgets": [hourly]}
    policy = snapshot(alice={"budgets": [hourly], "applications": [bot]})
    accounts = [budget.account for budget in plan(policy, "bot").hold.budgets]
    assert accounts == ["application:alice/bot/hourly", "tenant:alice/hourly"]

    identity = who(policy, "bot")
    own = replace(identity.tenant.budgets[0], account="key:keybot/hourly")
    key = replace(identity.key, budgets=(own,))
    policy = replace(policy, keys={**policy.keys, identity.digest: key})
    accounts = [budget.account for budget in plan(policy, "bot").hold.budgets]
    assert accounts == [
        "key:keybot/hourly",
        "application:alice/bot/hourly",
        "tenant:alice/hourly",
    ]


def test_the_ledger_counts_for_sustained_budgets_only() -> None:
    burst = {"name": "burst", "kind": "burst", "cost": 9, "refill_per_second": 1}
    daily = {"name": "daily", "kind": "sustained", "cost": 9, "period": "day"}
    made = plan(snapshot(alice={"budgets": [burst, daily]}))
    assert [budget.name for budget in made.hold.budgets] == ["burst", "daily"]
    assert made.accounts == ("tenant:alice/daily",)


def test_a_demoted_call_goes_to_the_lowest_lane_that_its_tenant_may_use() -> None:
    assert plan(snapshot()).lowest.name == "batch"
    two = snapshot(alice={"allowed_lanes": ["standard", "critical"]})
    assert plan(two).lowest.name == "standard"


def test_the_plan_keeps_the_moment_of_arrival_and_what_overload_does() -> None:
    made = plan(snapshot(alice={"on_overload": "demote"}))
    assert (made.at, made.on_overload) == (AT, "demote")


def prefix(policy: PolicySnapshot, name: str = "alice", **fields: Any) -> int:
    return plan(policy, name, call=chat(**fields)).ticket.prefix


def test_a_prefix_is_a_tenants_own_where_the_engine_keeps_tenants_apart() -> None:
    """Else a request would be sent where its prefix is another's, which it cannot use."""
    policy = snapshot()
    assert prefix(policy) == prefix(policy)
    assert prefix(policy) != prefix(policy, "bob")
    assert prefix(policy) != prefix(policy, cache_salt="mine")


@pytest.mark.parametrize("pool", [{"isolate_prefix_cache": False}, {"engine": "llamacpp"}])
def test_a_prefix_is_everybodys_where_the_engines_cache_is(pool: dict[str, Any]) -> None:
    policy = snapshot(pool=pool)
    assert prefix(policy) == prefix(policy, "bob") == chat().prefix


def test_a_callers_salt_parts_its_prefixes_in_a_shared_cache_too() -> None:
    policy = snapshot(pool={"isolate_prefix_cache": False})
    assert prefix(policy, cache_salt="a") == prefix(policy, "bob", cache_salt="a")
    assert prefix(policy, cache_salt="a") != prefix(policy, cache_salt="b")
