"""The gauges of this moment, filled in from live state when somebody reads /metrics.

Each is cleared first: what has gone from policy or queue goes from the metrics too. Tenants past
the bound of labels have no gauge: a sum of strangers' debts would say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gateway import metrics
from metering.journal import Journal
from metering.ledger import LedgerWriter
from tenants.core.snapshot import PolicySnapshot


def show_live(state: Mapping[str, Any], policy: PolicySnapshot) -> None:
    """`state` is in the shape of docs/architecture.md, "Live state". A tenant that `policy` has no
    more is shown while something of it runs or waits; the queue remembers its debt for longer."""
    for each in metrics.labelled:
        each.clear()
    for model, pool in state["pools"].items():
        metrics.bound.labels(model).set(pool["bound_units"])
        for url, endpoint in pool["endpoints"].items():
            _endpoint(model, url, endpoint)
        for name, lane in pool["lanes"].items():
            _lane(model, name, lane, policy)
    for name, tenant in state["tenants"].items():
        if (label := metrics.tenant_label(name)) != metrics.OTHER:
            _tenant(label, tenant)


def _endpoint(model: str, url: str, endpoint: Mapping[str, Any]) -> None:
    metrics.endpoint_running.labels(model, url).set(endpoint["running"])
    metrics.endpoint_max_running.labels(model, url).set(endpoint["max_running"])
    metrics.endpoint_load.labels(model, url).set(endpoint["load"])
    metrics.endpoint_max_load.labels(model, url).set(endpoint["max_load"])


def _lane(model: str, name: str, lane: Mapping[str, Any], policy: PolicySnapshot) -> None:
    metrics.lane_running.labels(model, name).set(lane["running"])
    metrics.lane_queued.labels(model, name).set(lane["queued"])
    metrics.lane_oldest.labels(model, name).set(lane["oldest_wait_s"])
    for tenant, share in lane["tenants"].items():
        if tenant not in policy.tenants:
            continue
        if (label := metrics.tenant_label(tenant)) != metrics.OTHER:
            metrics.debt.labels(label, model, name).set(share["debt"])


def _tenant(label: str, tenant: Mapping[str, Any]) -> None:
    metrics.tenant_running.labels(label).set(tenant["running"])
    metrics.tenant_queued.labels(label).set(tenant["queued"])
    for budget in tenant.get("budgets", ()):
        if not budget["account"].startswith("tenant:"):
            continue  # the label has no room for whose it is
        limit, left = budget["limit"], budget["remaining"]
        used = 1.0 - left / limit if limit else 1.0
        metrics.budget_used.labels(label, budget["name"]).set(used)


def show_policy(policy: PolicySnapshot, is_healthy: Callable[[str, str], bool]) -> None:
    """`is_healthy(model, url)`: whether an endpoint can be used."""
    metrics.policy_revision.set(policy.revision)
    for lane in policy.lanes:
        metrics.lane_reserved.labels(lane.name).set(lane.reserved_share)
    for pool in policy.pools.values():
        for endpoint in pool.endpoints:
            up = is_healthy(pool.model, endpoint.url)
            metrics.endpoint_up.labels(pool.model, endpoint.url).set(up)


def show_state(name: str) -> None:
    metrics.state.labels(name).set(1)


def show_ledger(writer: LedgerWriter, journal: Journal) -> None:
    metrics.ledger_behind.set(writer.behind_bytes)
    metrics.ledger_failing.set(writer.failing_s)
    metrics.ledger_differences.set(writer.differences)
    metrics.journal_unwritten.set(journal.unwritten_bytes)
