"""A diff names each field that differs, and nothing else."""

import copy
from typing import Any

from hypothesis import given, settings

from tenants.core.diff import Change, diff
from tenants.core.document import EMPTY
from tenants.core.validation import validate
from tests.unit.tenants.policies import POLICY, policies, read

OLD = read(POLICY)


def told(good: str, new: str) -> list[str]:
    assert good in POLICY
    return [str(change) for change in diff(OLD, read(POLICY.replace(good, new)))]


def test_one_value_is_one_change() -> None:
    assert diff(OLD, read(POLICY.replace("weight: 8", "weight: 2"))) == [
        Change("tenant", "acme", "weight", 8, 2)
    ]


def test_an_override_that_goes_is_unset() -> None:
    assert told("    weight: 8\n", "") == ["tenant acme: weight: 8 → unset"]


def test_nested_values_are_told_by_their_path() -> None:
    assert told("max_running: 32", "max_running: 33, max_queued: 1") == [
        "tier gold: limits.max_running: 32 → 33",
        "tier gold: limits.max_queued: unset → 1",
    ]
    assert told("cost: 5000000", "cost: 6") == ["tier gold: budgets.hourly.cost: 5000000 → 6"]
    assert told('9102/v1"', '9102/v1", drain: true') == [
        "pool demo-chat: endpoints.http://127.0.0.1:9102/v1.drain: False → True"
    ]


def test_a_named_part_that_is_new_or_gone_is_told_whole() -> None:
    assert told(', {url: "http://127.0.0.1:9102/v1"}', "") == [
        "pool demo-chat: endpoints.http://127.0.0.1:9102/v1: "
        "{'url': 'http://127.0.0.1:9102/v1', 'drain': False} → unset"
    ]
    (budgets,) = told(
        "tier: free}", "tier: free, budgets: [{name: a, kind: sustained, cost: 1, period: week}]}"
    )
    assert budgets.startswith("tenant bricks: budgets.a: unset → {'name': 'a'")


def test_an_object_that_is_new_or_gone_is_one_change_with_its_content() -> None:
    new = read(POLICY.replace("  - {name: bricks, tier: free}\n", ""))
    assert diff(OLD, new) == [
        Change("tenant", "bricks", "", {"name": "bricks", "tier": "free"}, None)
    ]
    assert diff(new, OLD) == [
        Change("tenant", "bricks", "", None, {"name": "bricks", "tier": "free"})
    ]


def test_an_application_is_an_object_of_its_own() -> None:
    assert told("weight: 3", "weight: 5") == ["application acme/bot: weight: 3 → 5"]
    assert told("      - {name: bot, lane: critical, weight: 3}\n", "") == [
        "application acme/bot: removed"
    ]


def test_writing_a_default_out_changes_nothing() -> None:
    assert told("rank: 1,", "rank: 1, ceiling: 1.0, max_queue_seconds: 60,") == []


def test_lists_of_plain_values_are_sets() -> None:
    assert told("[standard, critical, batch]", "[batch, standard, critical]") == []
    assert told("[gpt-4o-mini]", "[gpt-4o-mini, gpt-4o]") == [
        "pool demo-chat: aliases: ['gpt-4o-mini'] → ['gpt-4o', 'gpt-4o-mini']"
    ]


def test_the_first_policy_adds_each_object() -> None:
    changes = diff(EMPTY, OLD)
    assert {(change.kind, change.field) for change in changes} == {
        (kind, "") for kind in ("lane", "tier", "pool", "tenant", "application")
    }
    assert len(changes) == 3 + 2 + 1 + 2 + 2


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in reversed(value)] if isinstance(value, list) else value


@settings(max_examples=60)
@given(policies())
def test_a_different_order_alone_is_no_difference(policy: dict[str, Any]) -> None:
    assert diff(validate(policy), validate(reordered(copy.deepcopy(policy)))) == []


@settings(max_examples=60)
@given(policies(), policies())
def test_a_diff_backwards_is_the_same_changes_backwards(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    old, new = validate(one), validate(other)
    forth, back = diff(old, new), diff(new, old)
    assert {(c.kind, c.name, c.field) for c in forth} == {(c.kind, c.name, c.field) for c in back}
    values = {(c.kind, c.name, c.field): (c.old, c.new) for c in forth}
    assert all(values[c.kind, c.name, c.field] == (c.new, c.old) for c in back)


@settings(max_examples=60)
@given(policies(), policies())
def test_what_the_changes_say_makes_the_new_policy(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    old, new = validate(one), validate(other)
    made = {(c.kind, c.name): c.new for c in diff(old, new) if c.field == "" and c.new is not None}
    before = {(c.kind, c.name) for c in diff(EMPTY, old)}
    after = {(c.kind, c.name): c.new for c in diff(EMPTY, new)}
    assert made == {key: value for key, value in after.items() if key not in before}
