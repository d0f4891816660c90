"""What one scheduling decision costs, and what one waiting tenant weighs.

    .venv/bin/python -m tests.bench.scheduler

A decision is the whole life of a request: enqueue, pick (with its charge), settle. Every tenant
is backlogged throughout. `slots`: endpoints are full by their number of requests; `load`: by
load, with requests of many sizes, so that the one whose turn it is often does not fit.
"""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
from collections import deque

from scheduling.core.dispatcher import Core
from scheduling.core.model import (
    EndpointConfig,
    LaneConfig,
    PoolConfig,
    SchedulerConfig,
    TenantConfig,
    Ticket,
)

LANES = (
    LaneConfig("critical", 0, 0.3),
    LaneConfig("standard", 1, 0.2),
    LaneConfig("batch", 2, 0.1, 0.9),
)
DEPTH = 2  # requests that each tenant has waiting
DECISIONS = 500  # in a round
ROUNDS = 80


def config(tenants: int, max_load: float) -> SchedulerConfig:
    ends = tuple(EndpointConfig(f"e{i}", 16, max_load) for i in range(2))
    return SchedulerConfig(
        LANES,
        {"chat": PoolConfig("chat", ends)},
        {f"t{i}": TenantConfig(weight=1.0 + i % 4) for i in range(tenants)},
    )


def ticket(number: int, tenant: str) -> Ticket:
    cost = 100.0 + number * 7919 % 900  # spread, and the same in every run
    return Ticket(f"r{number}", "chat", "standard", tenant, "app", cost, cost)


def backlog(tenants: int, max_load: float) -> tuple[Core, int]:
    core = Core(config(tenants, max_load), 0.0)
    number = 0
    for _ in range(DEPTH):
        for tenant in range(tenants):
            core.enqueue(ticket(number, f"t{tenant}"), 0.0)
            number += 1
    return core, number


def microseconds(tenants: int, max_load: float) -> tuple[float, float]:
    """Median decision, and the mean of the best round (which has its part of tidying up and of
    garbage collection): whatever else the machine does can only add to either."""
    core, number = backlog(tenants, max_load)
    tenant_of = {t.request_id: t.tenant for t in core.waiting()}
    running = deque(grant.request_id for grant in core.dispatch(0.0))
    each: list[float] = []
    for _ in range(ROUNDS * DECISIONS):
        ended = running.popleft()
        tenant = tenant_of.pop(ended)
        new = ticket(number, tenant)
        tenant_of[new.request_id] = tenant
        number += 1
        began = time.perf_counter()
        core.enqueue(new, 0.0)
        core.settle(ended, 90.0 + number % 1000)
        grants = core.dispatch(0.0)
        each.append((time.perf_counter() - began) * 1e6)
        running.extend(grant.request_id for grant in grants)
    rounds = [each[i : i + DECISIONS] for i in range(0, len(each), DECISIONS)]
    return statistics.median(each), min(map(statistics.mean, rounds))


def bytes_per_tenant(tenants: int) -> float:
    """All that the core keeps for a tenant with one request waiting, its ticket included."""
    settings = config(tenants, 1e9)
    gc.collect()
    tracemalloc.start()
    core = Core(settings, 0.0)
    before = tracemalloc.get_traced_memory()[0]
    for number in range(tenants):
        core.enqueue(ticket(number, f"t{number}"), 0.0)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(core.waiting()) == tenants
    return (after - before) / tenants


def main() -> None:
    print("tenants   slots: median, best mean (µs)   load: median, best mean (µs)   bytes/tenant")
    for tenants in (10, 1_000, 10_000, 100_000):
        slots, load = microseconds(tenants, 1e9), microseconds(tenants, 8_000.0)
        print(
            f"{tenants:>7} {slots[0]:>16.1f} {slots[1]:>10.1f} {load[0]:>20.1f} {load[1]:>10.1f}"
            f" {bytes_per_tenant(tenants):>18.0f}"
        )


if __name__ == "__main__":
    main()
