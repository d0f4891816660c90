"""Budgets: how much of each is used, and when it will be gone at the pace of the last hour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from metering import selectors
from metering.dashboards import budgets, figures, live
from metering.dashboards.charts import Chart
from metering.dashboards.watching import Board, Watch
from metering.reading import Reading
from tenants.core.document import Tenant

HOUR = timedelta(hours=1)
MOST = 16

Pace = Mapping[tuple[str, str], float]  # (tenant, application; "" is all) -> units an hour


@dataclass(frozen=True, slots=True)
class Row:
    tenant: str
    left: budgets.Left
    pace: float  # units in the last hour
    gone_at: datetime | None  # None: not before it resets

    @property
    def label(self) -> str:
        owned = self.left.owned
        owner = f"{self.tenant}/{owned.application}" if owned.application else self.tenant
        return f"{owner} {owned.budget.name}"


def budgets_board(watch: Watch) -> Board:
    rows = sorted(rows_of(watch), key=lambda row: (-(row.left.part or 0.0), row.label))
    shown = [row for row in rows if row.left.part is not None][:MOST]
    names = [row.label for row in shown]
    ink = figures.Ink(names)
    used = figures.bars(names, [100 * (row.left.part or 0.0) for row in shown], ink, "%")
    used["data"] = used["data"] and [
        used["data"][0] | {"marker": {"color": [watch.ink.colour(row.tenant) for row in shown]}}
    ]
    used["layout"]["xaxis"] |= {"range": [0, 104], "dtick": 20}
    chart = Chart(
        "used",
        "Budget used",
        used,
        (
            "tenant",
            "application",
            "budget",
            "used",
            "limit",
            "units_last_hour",
            "gone_at",
            "resets",
        ),
        [cells(row) for row in rows],
        "of the window that runs now, with what running requests hold; CSV: every budget",
        "No budget has been used yet, or no budget is set.",
        wide=True,
    )
    return Board([chart], {"rows": rows})


def cells(row: Row) -> tuple[str | float | None, ...]:
    left = row.left
    moments = [each.isoformat() if each else None for each in (row.gone_at, left.resets)]
    owned = left.owned
    return (
        row.tenant,
        owned.application,
        owned.budget.name,
        left.used,
        left.limit,
        row.pace,
        *moments,
    )


def rows_of(watch: Watch) -> list[Row]:
    tiers = {tier.name: tier for tier in watch.document.tiers}
    asked = [t for t in watch.document.tenants if watch.filters.tenant in ("", t.name)]
    owned = {tenant.name: budgets.owned_by(tenant, tiers[tenant.tier]) for tenant in asked}
    windows = budgets.newest_windows(
        [each for all_ in owned.values() for each in all_], 1, watch.at
    )
    now = live.combine(selectors.latest_samples(watch.at))
    pace = paces(watch)
    rows = []
    for tenant in asked:
        standing = now.tenants.get(tenant.name) or live.Standing()
        told = budgets.left(owned[tenant.name], standing.budgets, windows, tenant.zone, watch.at)
        rows += [row_of(tenant, each, pace, watch.at) for each in told]
    return rows


def paces(watch: Watch) -> Pace:
    found: dict[tuple[str, str], float] = {}
    hour = Reading(watch.at - HOUR, watch.at)
    for (tenant, application), total in hour.totals(("tenant", "application")).items():
        for key in {(tenant, application), (tenant, "")}:  # one and the same without application
            found[key] = found.get(key, 0.0) + total.cost
    return found


def row_of(tenant: Tenant, left: budgets.Left, pace: Pace, at: datetime) -> Row:
    units = pace.get((tenant.name, left.owned.application), 0.0)
    return Row(tenant.name, left, units, gone_at(left, units, at))


def gone_at(left: budgets.Left, units: float, at: datetime) -> datetime | None:
    """At `units` an hour; a burst budget refills meanwhile, any other one starts anew."""
    if left.remaining is None:
        return None
    if left.remaining <= 0:
        return at
    refilled = (left.owned.budget.refill_per_second or 0.0) * HOUR.total_seconds()
    if units <= refilled:
        return None
    then = at + HOUR * min(left.remaining / (units - refilled), 10_000)
    if left.kind == "burst":
        return then
    return then if left.resets is not None and then < left.resets else None
