"""Policy as the gateway's parts take it: snapshot in, each part's own configuration out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType

from gateway.errors import ApiError
from gateway.identity import identity_of
from gateway.run import Run
from scheduling.core.model import (
    DropReason,
    EndpointConfig,
    LaneConfig,
    PoolConfig,
    SchedulerConfig,
    TenantConfig,
)
from tenants.core.snapshot import PolicySnapshot, PoolPolicy

Learnt = Mapping[tuple[str, str], tuple[int, float]]  # by pool and endpoint: requests, load
NOTHING_LEARNT: Learnt = MappingProxyType({})


def scheduler_config(snapshot: PolicySnapshot, learnt: Learnt = NOTHING_LEARNT) -> SchedulerConfig:
    lanes = tuple(
        LaneConfig(lane.name, lane.rank, lane.reserved_share, lane.ceiling)
        for lane in snapshot.lanes
    )
    tenants = {
        name: TenantConfig(
            tenant.weight,
            tenant.limits.max_running,
            {app.name: app.weight for app in tenant.applications.values()},
        )
        for name, tenant in snapshot.tenants.items()
    }
    pools = {pool.model: pool_config(pool, learnt) for pool in snapshot.pools.values()}
    return SchedulerConfig(lanes, pools, tenants)


def pool_config(pool: PoolPolicy, learnt: Learnt = NOTHING_LEARNT) -> PoolConfig:
    given = pool.capacity.max_running, float(pool.capacity.max_running_tokens)
    endpoints = tuple(
        EndpointConfig(
            endpoint.url,
            *learnt.get((pool.model, endpoint.url), given),
            available=not endpoint.drain,
        )
        for endpoint in pool.endpoints
    )
    return PoolConfig(pool.model, endpoints, pool.locality_quantum)


def why_drop(snapshot: PolicySnapshot, run: Run, at: datetime) -> DropReason | None:
    """Whether a waiting request may wait on under a new policy: the key and the tenant are judged
    again; the scheduler itself looks after lanes and pools."""
    assert run.who is not None
    try:
        who = identity_of(snapshot, run.who.digest, at)
    except ApiError:
        gone = run.who.tenant.name not in snapshot.tenants
        return "tenant_removed" if gone else "key_revoked"
    return None if who.tenant.enabled else "tenant_suspended"
