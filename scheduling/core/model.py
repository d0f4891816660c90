"""The nouns of the scheduler. Cost and load are plain numbers here; what a token is, is unknown.

`cost` is service in the pool's units (what fairness shares); `load` is how much of an endpoint's
capacity a request occupies while it runs. What is made for each request is a msgspec.Struct: a
frozen dataclass costs twenty times as much to make.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import msgspec

DropReason = Literal[
    "pool_removed",
    "lane_removed",
    "tenant_removed",
    "queue_timeout",
    "tenant_suspended",
    "key_revoked",
    "shutting_down",
]


@dataclass(frozen=True, slots=True)
class LaneConfig:
    name: str
    rank: int  # 0 is served first; unique
    reserved_share: float = 0.0  # of every unit the pool serves while the lane is backlogged
    ceiling: float = 1.0  # part of capacity that this lane and those below it may fill


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    id: str
    max_running: int
    max_load: float
    available: bool = True  # False: draining, takes nothing new


@dataclass(frozen=True, slots=True)
class PoolConfig:
    name: str
    endpoints: tuple[EndpointConfig, ...]
    locality_quantum: float = 0.0


@dataclass(frozen=True, slots=True)
class TenantConfig:
    weight: float = 1.0
    max_running: int | None = None  # over all pools
    applications: Mapping[str, float] = field(  # name -> weight; 1 for any other
        default_factory=lambda: MappingProxyType({})
    )


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    lanes: tuple[LaneConfig, ...]
    pools: Mapping[str, PoolConfig]
    tenants: Mapping[str, TenantConfig]


class Ticket(msgspec.Struct, frozen=True):
    """One admitted request that waits for, or holds, a place on an endpoint."""

    request_id: str
    pool: str
    lane: str
    tenant: str
    application: str
    cost: float  # expected service, units
    load: float  # capacity it will occupy
    prefix: int = 0  # hash of its leading content; 0: unknown


class Grant(msgspec.Struct, frozen=True):
    request_id: str
    endpoint: str


class Dropped(msgspec.Struct, frozen=True):
    """A queued request that a new configuration no longer has a place for."""

    request_id: str
    reason: DropReason
