"""What a simulation runs on: the scheduler's configuration, and an engine behind each endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType

import msgspec

from scheduling.core.model import (
    EndpointConfig,
    LaneConfig,
    PoolConfig,
    SchedulerConfig,
    TenantConfig,
)
from scheduling.simulate.profile import Profile
from scheduling.simulate.trace import Trace
from tenants.core.snapshot import Cost

UNIT_COST = Cost()
POOL, LANE = "engines", "everybody"


@dataclass(frozen=True, slots=True)
class LaneRun:
    """What a lane means outside the scheduler."""

    engine_priority: int = 0
    patience_s: float = inf  # max_queue_seconds: who waited so long is sent away


@dataclass(frozen=True, slots=True)
class PoolRun:
    profile: Profile
    cost: Cost = UNIT_COST
    isolated: bool = False  # each tenant has its own prefix cache


@dataclass(frozen=True, slots=True)
class Scenario:
    """Every arrival of a trace that runs on it names a pool (its model), a lane and a tenant of
    `scheduler`."""

    scheduler: SchedulerConfig
    pools: Mapping[str, PoolRun]
    lanes: Mapping[str, LaneRun] = field(default_factory=lambda: MappingProxyType({}))

    def weight(self, tenant: str) -> float:
        return self.scheduler.tenants[tenant].weight


def plain(
    trace: Trace,
    profile: Profile,
    endpoints: int = 1,
    weights: Mapping[str, float] = MappingProxyType({}),
    cost: Cost = UNIT_COST,
    locality_quantum: float = 0.0,
    max_running: int | None = None,
) -> tuple[Scenario, Trace]:
    """One pool, one lane, nobody limited, and each engine filled as far as its memory goes; the
    trace with its arrivals put there."""
    ends = tuple(
        EndpointConfig(f"engine-{k}", max_running or profile.max_num_seqs, float(profile.kv_tokens))
        for k in range(1, endpoints + 1)
    )
    names = dict.fromkeys(arrival.tenant for arrival in trace.arrivals)
    scheduler = SchedulerConfig(
        lanes=(LaneConfig(LANE, 0),),
        pools={POOL: PoolConfig(POOL, ends, locality_quantum)},
        tenants={name: TenantConfig(weights.get(name, 1.0)) for name in names},
    )
    placed = tuple(replace(arrival, model=POOL, lane=LANE) for arrival in trace.arrivals)
    return Scenario(scheduler, {POOL: PoolRun(profile, cost)}), replace(trace, arrivals=placed)


def coarse(profile: Profile, trace: Trace) -> Profile:
    """The profile with KV blocks as large as those that the trace names: the same prefixes are
    found, and each sequence rounds its memory up a little further."""
    sizes = {arrival.block_tokens for arrival in trace.arrivals if arrival.blocks}
    if not sizes:
        return profile
    size = sizes.pop()
    return msgspec.structs.replace(
        profile, block_size=size, num_gpu_blocks=profile.kv_tokens // size
    )
