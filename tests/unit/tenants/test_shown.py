"""Changes as people read them: what is inherited is shown with its source."""

from __future__ import annotations

import pytest

from tenants.core.diff import diff
from tenants.core.document import EMPTY
from tenants.core.merge import merge
from tenants.core.shown import Row, crossings, few, rows, summary, words
from tests.unit.tenants.policies import POLICY, read

OLD = read(POLICY)


def shown(good: str, new: str) -> list[Row]:
    assert good in POLICY
    changed = read(POLICY.replace(good, new))
    return rows(diff(OLD, changed), OLD, changed)


@pytest.mark.parametrize(
    ("good", "new", "text", "source"),
    [
        ("    weight: 8\n", "", "4", "tier gold"),
        ("    limits: {max_running: 8}\n", "", "32", "tier gold"),
        (", lane: critical, weight: 3", ", weight: 3", "standard", "tenant acme"),
        (", engine_priority: 0", "", "0", "10 × rank"),
        ("    allowed_lanes: [standard, critical, batch]\n", "", "", ""),
        (
            "    budgets: [{name: hourly, kind: sustained, cost: 9, period: day}]\n",
            "",
            "name: hourly, kind: sustained, cost: 5,000,000, period: hour, on_exhausted: reject",
            "tier gold",
        ),
    ],
)
def test_what_falls_back_is_shown_with_the_value_and_its_source(
    good: str, new: str, text: str, source: str
) -> None:
    if "allowed_lanes" in good:
        document = read(
            POLICY.replace(good, new)
            .replace("lane: critical, ", "")
            .replace(", lane: batch, b", ", b")
        )
        found = rows(diff(OLD, document), OLD, document)
        row = next(row for row in found if row.field == "allowed_lanes")
        assert (row.new.text, row.new.source) == ("standard", "its lane")
        return
    row = shown(good, new)[0]
    assert (row.new.text, row.new.source) == (text, source)


def test_a_limit_that_nobody_sets_is_unlimited() -> None:
    row = shown("requests_per_minute: 600", "requests_per_minute: 600, max_queued: 5")[0]
    assert (row.old.text, row.new.text) == ("unlimited", "5")
    row = shown("{max_running: 8}", "{max_running: 8, max_queued: 5}")[0]
    assert (row.old.text, row.old.source) == ("unlimited", "default")


def test_a_tiers_value_tells_whom_it_reaches() -> None:
    assert shown("    weight: 4\n", "    weight: 5\n")[0].reach == (
        "reaches 0 tenants; acme says its own"
    )
    row = shown("requests_per_minute: 600", "requests_per_minute: 700")[0]
    assert row.reach == "reaches 1 tenant"


def test_an_object_that_comes_or_goes_is_told_by_its_content() -> None:
    made = rows(diff(EMPTY, OLD), EMPTY, OLD)
    bricks = next(row for row in made if row.name == "bricks")
    assert (bricks.old.text, bricks.new.text) == ("", "name: bricks, tier: free")
    assert summary(diff(EMPTY, OLD)) == ("3 lanes, 2 tiers, 1 pool, 2 tenants, 2 applications")


def test_what_two_changed_is_told_with_what_each_inherits() -> None:
    theirs = read(POLICY.replace("    weight: 8\n", "    weight: 5\n"))
    yours = read(POLICY.replace("    weight: 8\n", ""))
    crossing = crossings(merge(OLD, theirs, yours, {}).beside, theirs)[0]
    assert (crossing.base.text, crossing.theirs.text) == ("8", "5")
    assert (crossing.yours.text, crossing.yours.source) == ("4", "tier gold")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (True, "yes"),
        (12345.5, "12,345.5"),
        ([], "none"),
        (["a", "b"], "a, b"),
        ({"limits": {"max_running": 5}, "on": False}, "limits.max_running: 5, on: no"),
        ([{"url": "http://a/v1"}, {"url": "http://b/v1"}], "url: http://a/v1, url: http://b/v1"),
        (None, "unset"),
        ({}, "all defaults"),
    ],
)
def test_values_are_told_in_words(value: object, said: str) -> None:
    assert words(value) == said


def test_many_names_are_told_by_their_number() -> None:
    assert few(list("abcdefg")) == "a, b, c, d, e and 2 more"
