"""Names of keys, and the scheduler's nouns as the functions take them (calls.lua)."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduling.core.model import SchedulerConfig, Ticket

Answer = list[Any]  # status, what this replica was granted, and what the function adds

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder().decode


class Keys:
    """`{pool}` is the hash tag: all that one pool holds lies in one slot. On a cluster a tenant's
    account does too, one for each pool, so that `max_running` holds per pool there."""

    def __init__(self, prefix: str = "fl:", *, cluster: bool = False) -> None:
        self.prefix = prefix
        self.cluster = cluster

    def of(self, pool: str) -> tuple[str, str]:
        """What every function takes.

        Raises:
            ValueError: a name that would break the tag; no policy document has one.
        """
        if not pool or "{" in pool or "}" in pool:
            raise ValueError(f"pool {pool!r}: the shared scheduler takes no name with {{ or }}")
        own = f"{self.prefix}{{{pool}}}:"
        return f"{own}pool", f"{own if self.cluster else self.prefix}accounts"

    def grants(self, replica: str) -> str:
        """The channel of a replica."""
        return f"{self.prefix}grants:{replica}"


def ticket_fields(ticket: Ticket) -> list[Any]:
    """Prefixes as text: they are 64 bits wide, and a number there is a double."""
    return [
        ticket.request_id,
        ticket.pool,
        ticket.lane,
        ticket.tenant,
        ticket.application,
        ticket.cost,
        ticket.load,
        str(ticket.prefix) if ticket.prefix else False,
    ]


def config_fields(config: SchedulerConfig, pools: set[str] | None = None) -> list[Any]:
    """Lanes, pools (those named, or all), tenants.

    Raises:
        ValueError: a name with a bar, which divides names in keys; no policy document has one.
    """
    applications = (name for tenant in config.tenants.values() for name in tenant.applications)
    for name in (*(lane.name for lane in config.lanes), *config.tenants, *applications):
        if "|" in name:
            raise ValueError(f"{name!r}: the shared scheduler takes no name with |")
    return [
        [[lane.name, lane.rank, lane.reserved_share, lane.ceiling] for lane in config.lanes],
        [
            [
                pool.name,
                pool.locality_quantum,
                [[e.id, e.max_running, e.max_load, e.available] for e in pool.endpoints],
            ]
            for pool in config.pools.values()
            if pools is None or pool.name in pools
        ],
        {
            name: [
                tenant.weight,
                False if tenant.max_running is None else tenant.max_running,
                dict(tenant.applications),
            ]
            for name, tenant in config.tenants.items()
        },
    ]
