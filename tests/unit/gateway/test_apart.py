"""The part that one gateway takes of what is counted for all, while it is on its own."""

from __future__ import annotations

import pytest

from gateway.shared.apart import Apart, budget_part, config_part, limits_part, part_of
from metering.restore import Used
from scheduling.core.model import (
    EndpointConfig,
    LaneConfig,
    PoolConfig,
    SchedulerConfig,
    TenantConfig,
)
from tenants.core.snapshot import Limits
from tests.unit.metering.policies import NOON, burst, sustained

CONFIG = SchedulerConfig(
    (LaneConfig("standard", 0),),
    {"chat": PoolConfig("chat", (EndpointConfig("a", 16, 600.0), EndpointConfig("b", 1, 100.0)))},
    {"alice": TenantConfig(max_running=5), "bob": TenantConfig()},
)


@pytest.mark.parametrize(
    ("whole", "parts", "part"), [(16, 3, 5), (2, 3, 1), (0, 3, 0), (None, 3, None), (7, 1, 7)]
)
def test_a_part_is_never_more_than_its_share_nor_less_than_one(whole, parts, part) -> None:
    assert part_of(whole, parts) == part


def test_what_runs_already_counts_against_the_part_of_its_endpoint() -> None:
    made = config_part(CONFIG, 2, {("chat", "a"): (3, 120.0), ("chat", "b"): (1, 90.0)})
    ends = {e.id: (e.max_running, e.max_load) for e in made.pools["chat"].endpoints}
    assert ends == {"a": (5, 180.0), "b": (0, 0.0)}
    assert made.tenants == {"alice": TenantConfig(max_running=2), "bob": TenantConfig()}


def test_limits_and_burst_budgets_are_parted_and_sustained_ones_are_whole() -> None:
    limits = limits_part(Limits(600, 40_000, 32, 0, 8_000, 900), 4)
    assert limits == Limits(150, 10_000, 8, 0, 8_000, 900)
    bucket = budget_part(burst(1_000, refill=8), 4)
    assert (bucket.cost, bucket.refill_per_second) == (250, 2)
    assert budget_part(sustained(1_000), 4) == sustained(1_000)


def test_budgets_begin_at_what_is_known_and_follow_the_ledger_upwards_only() -> None:
    apart, policy = Apart(CONFIG, 2, {}), sustained(1_000)

    def used() -> float:
        return apart.budgets({"alice": [policy]}, NOON)["alice"][0]["used"]

    for said, then in ((400.0, 400.0), (300.0, 400.0), (650.0, 650.0)):
        apart.raise_to([Used("alice", policy, said)], NOON)
        assert used() == then
