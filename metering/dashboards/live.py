"""What the gateways say about this very moment, added up over all of them, for pages and API."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Sample = Mapping[str, Any]


@dataclass(slots=True)
class Standing:
    """One tenant now. `debt` is its largest, by size, over pools and lanes; None: not waiting."""

    running: int = 0
    queued: int = 0
    debt: float | None = None
    budgets: list[Mapping[str, Any]] = field(default_factory=list)  # as in docs/architecture.md


@dataclass(slots=True)
class Place:
    """One tenant in one lane of one pool. Each gateway with a scheduler of its own keeps its own
    counter; the one with the largest debt is shown."""

    pool: str
    lane: str
    running: int = 0
    queued: int = 0
    counter: float | None = None
    debt: float | None = None
    entitlement: float | None = None  # of the lane, among those that are in it now

    def add(self, state: Mapping[str, Any], weights: float) -> None:
        self.running += state.get("running", 0)
        self.queued += state.get("queued", 0)
        debt = state.get("debt")
        if self.counter is None or abs(debt or 0.0) > abs(self.debt or 0.0):
            self.counter, self.debt = state.get("counter"), debt
            self.entitlement = state.get("weight", 0.0) / weights if weights else None


@dataclass(slots=True)
class Live:
    gateways: list[Sample]
    tenants: dict[str, Standing]
    pools: list[dict[str, Any]]
    bound: float

    @property
    def running(self) -> int:
        return sum(standing.running for standing in self.tenants.values())

    @property
    def queued(self) -> int:
        return sum(standing.queued for standing in self.tenants.values())

    @property
    def simulated(self) -> bool:
        return any(endpoint["simulated"] for pool in self.pools for endpoint in pool["endpoints"])


def combine(samples: Iterable[Sample]) -> Live:
    gateways = list(samples)
    tenants: dict[str, Standing] = defaultdict(Standing)
    for sample in gateways:
        for name, state in sample.get("tenants", {}).items():
            tenants[name].running += state.get("running", 0)
            tenants[name].queued += state.get("queued", 0)
            tenants[name].budgets = state.get("budgets", [])
        for pool in sample.get("pools", {}).values():
            _note_debts(pool, tenants)
    bounds = [pool.get("bound_units") or 0.0 for _, pool in _pools(gateways)]
    return Live(gateways, dict(tenants), _pool_rows(gateways), max(bounds, default=0.0))


def places(samples: Iterable[Sample], tenant: str) -> list[Place]:
    """Where one tenant waits or runs: by pool and lane, over all gateways."""
    found: dict[tuple[str, str], Place] = {}
    for model, pool in _pools(list(samples)):
        for name, lane in pool.get("lanes", {}).items():
            state = lane.get("tenants", {}).get(tenant)
            if state is not None:
                place = found.setdefault((model, name), Place(model, name))
                place.add(state, _weights(lane))
    return [found[key] for key in sorted(found)]


def _weights(lane: Mapping[str, Any]) -> float:
    return float(sum(state.get("weight", 0.0) for state in lane.get("tenants", {}).values()))


def _pools(samples: Iterable[Sample]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    for sample in samples:
        yield from sample.get("pools", {}).items()


def _note_debts(pool: Mapping[str, Any], tenants: Mapping[str, Standing]) -> None:
    for lane in pool.get("lanes", {}).values():
        for name, state in lane.get("tenants", {}).items():
            debt, standing = state.get("debt"), tenants[name]
            if debt is not None and (standing.debt is None or abs(debt) > abs(standing.debt)):
                standing.debt = debt


def _pool_rows(samples: list[Sample]) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for model, pool in _pools(samples):
        row = rows.setdefault(model, {"model": model, "endpoints": {}, "lanes": {}, "fault": ""})
        row["fault"] = row["fault"] or pool.get("tokenizer", {}).get("fault", "")
        for url, state in pool.get("endpoints", {}).items():
            _add_endpoint(row["endpoints"], url, state)
        for name, state in pool.get("lanes", {}).items():
            lane = row["lanes"].setdefault(
                name, {"name": name, "queued": 0, "running": 0, "wait": 0}
            )
            lane["queued"] += state.get("queued", 0)
            lane["running"] += state.get("running", 0)
            lane["wait"] = max(lane["wait"], state.get("oldest_wait_s") or 0)
    for row in rows.values():
        row["endpoints"] = list(row["endpoints"].values())
        row["lanes"] = list(row["lanes"].values())
    return [rows[model] for model in sorted(rows)]


def _add_endpoint(endpoints: dict[str, Any], url: str, state: Mapping[str, Any]) -> None:
    """Two gateways may both see an endpoint; their running requests add up, its limit is one,
    but each learns its own part of one that is learnt."""
    row = endpoints.setdefault(
        url, {"url": url, "available": True, "running": 0, "load": 0.0, "simulated": False}
    )
    row["running"] += state.get("running", 0)
    row["load"] += state.get("load", 0.0)
    row["available"] = row["available"] and state.get("available", True)
    row["simulated"] = row["simulated"] or state.get("simulated") is True
    row["priority_ignored"] = row.get("priority_ignored") or state.get("priority_ignored") is True
    for name in ("version", "fingerprint", "engine", "auto", "fault"):
        row[name] = state.get(name) or row.get(name)
    learnt = row.get("auto") is True
    for name in ("max_running", "max_load"):
        row[name] = state.get(name, 0) + (row.get(name, 0) if learnt else 0)
    row["part"] = max(
        row["running"] / row["max_running"] if row["max_running"] else 0.0,
        row["load"] / row["max_load"] if row["max_load"] else 0.0,
    )
