"""Virtual counters as they are kept in the database, and what the ledger has counted since."""

from __future__ import annotations

from datetime import timedelta

import pytest

from metering.models import UsageRow
from metering.restore import read_served
from scheduling import kept
from scheduling.shared.keeping import Kept
from tests.integration.metering.records import NOON

pytestmark = [pytest.mark.django_db, pytest.mark.store]

LANES = [["standard", 0.0, False, [["alice", 12.5, True, 0.0, [["bot", 12.5, True]]]]]]


def served(id: str, seconds: float, cost: float, **fields: str) -> None:
    given = {"tenant": "alice", "application": "bot", "model": "chat", "lane": "standard"}
    at = NOON + timedelta(seconds=seconds)
    UsageRow.objects.create(request_id=id, at=at, cost=cost, **{**given, **fields})


def test_the_latest_counters_of_a_pool_are_kept() -> None:
    kept.save("chat", Kept([], {"r1": 10.0}), NOON)
    kept.save("chat", Kept(LANES, {"r2": 20.0}), NOON + timedelta(seconds=3))
    found = kept.find("chat", NOON)
    assert found is not None
    assert (found.kept.lanes, found.kept.open) == (LANES, {"r2": 20.0})
    assert found.at == NOON + timedelta(seconds=3)


def test_what_is_too_old_is_not_found() -> None:
    kept.save("chat", Kept(LANES, {}), NOON)
    assert kept.find("chat", NOON + timedelta(seconds=1)) is None
    assert kept.find("embed", NOON) is None


def test_service_since_then_is_counted_by_lane_tenant_and_application() -> None:
    served("before", -1, 999.0)
    served("a", 1, 30.0)
    served("b", 2, 12.0)
    served("c", 2, 5.0, tenant="bob", application="")
    served("d", 2, 7.0, lane="batch")
    served("elsewhere", 2, 999.0, model="embed")
    assert sorted(read_served("chat", NOON, {})) == [
        ("batch", "alice", "bot", 7.0),
        ("standard", "alice", "bot", 42.0),
        ("standard", "bob", "", 5.0),
    ]


def test_of_what_was_open_then_only_the_difference_counts() -> None:
    """Whether it arrived before or after, and whether it has ended or runs."""
    served("waited", -60, 40.0)
    served("ran", -60, 30.0)
    served("came", 1, 25.0)
    found = read_served("chat", NOON, {"waited": 0.0, "ran": 50.0, "came": 10.0, "runs": 70.0})
    assert found == [("standard", "alice", "bot", 40.0 - 20.0 + 15.0)]


def test_of_what_cost_as_much_as_it_was_charged_nothing_is_said() -> None:
    served("ran", -60, 30.0)
    assert read_served("chat", NOON, {"ran": 30.0}) == []
