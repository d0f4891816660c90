"""What the scheduler shows of itself: live state, fairness debt, and the bound on unfairness.

1. Debt of a waiting tenant: w·(V̄ − v), V̄ the weight-averaged v of those waiting in its lane. The
   debts of a lane add up to zero. A parked tenant is held back by its own limit: it is owed
   nothing.
2. Bound: any two tenants that both wait through an interval were served within
   2·max(costliest request, most that can run at once) / least weight of each other, each service
   divided by its weight (Sheng et al., Theorem 4.4, in the weighted form of docs/scheduling.md).
"""

from __future__ import annotations

from heapq import nlargest
from typing import Any

from scheduling.core.counters import Share
from scheduling.core.dispatcher import Core
from scheduling.core.lanes import Lane
from scheduling.core.pool import Pool
from scheduling.core.vtc import FairQueue

MOST_TENANTS = 500  # shown per lane, those with the most queued and running first


def debts(queue: FairQueue) -> dict[str, float]:
    """Service units by tenant; positive: is owed."""
    competing = {
        name: share
        for name, share in queue.shares.items()
        if share.queued and share.account.running < share.account.limit
    }
    weights = sum(share.account.weight for share in competing.values())
    if not weights:
        return {}
    mean = sum(share.account.weight * share.v for share in competing.values()) / weights
    return {name: s.account.weight * (mean - s.v) for name, s in competing.items()}


def bound_units(pool: Pool) -> float:
    """Invariant 2 for the pool's lanes as they stand; 0 before anything was asked of it."""
    largest, ends = pool.lanes.largest, pool.endpoints
    at_once = min(ends.max_load * pool.units_per_load, ends.max_running * largest)
    weights = [
        share.account.weight
        for lane in pool.lanes.by_rank
        for share in lane.queue.shares.values()
        if share.queued
    ]
    return 2 * max(largest, at_once) / min(weights, default=1.0)


def live(core: Core, now: float) -> dict[str, Any]:
    """docs/architecture.md, "Live state"."""
    return {
        "pools": {name: _pool(pool, now) for name, pool in core.pools.items() if not pool.removed},
        "tenants": {
            account.name: {"running": account.running, "queued": account.queued}
            for account in core.accounts.values()
        },
    }


def _pool(pool: Pool, now: float) -> dict[str, Any]:
    return {
        "endpoints": {
            endpoint.id: {
                "available": endpoint.available,
                "running": endpoint.running,
                "load": endpoint.load,
                "max_running": endpoint.max_running,
                "max_load": endpoint.max_load,
            }
            for endpoint in pool.endpoints.all.values()
        },
        "lanes": {lane.name: _lane(lane, now) for lane in pool.lanes.by_rank if not lane.removed},
        "bound_units": bound_units(pool),
        "units_per_second": pool.meter.units_per_second,
    }


def _lane(lane: Lane, now: float) -> dict[str, Any]:
    queue = lane.queue
    heads = [f.head.since for s in queue.shares.values() for f in s.flows if f.head is not None]
    owed = debts(queue)
    shown = nlargest(MOST_TENANTS, queue.shares.items(), key=lambda i: i[1].queued + i[1].running)
    return {
        "queued": queue.queued,
        "running": lane.running,
        "oldest_wait_s": max(0.0, now - min(heads, default=now)),
        "credit": lane.credit,
        "served": lane.served,
        "tenants": {name: _share(share, owed.get(name, 0.0)) for name, share in shown},
    }


def _share(share: Share, debt: float) -> dict[str, Any]:
    return {
        "queued": share.queued,
        "running": share.running,
        "counter": share.v,
        "served": share.served,
        "debt": debt,
        "weight": share.account.weight,
    }
