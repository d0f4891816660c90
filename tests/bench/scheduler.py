"""What one scheduling decision costs, and what one waiting tenant weighs.

    .venv/bin/python -m tests.bench.scheduler

A decision is the whole life of a request: enqueue, pick (with its charge), settle. Every tenant
is backlogged throughout. `slots`: endpoints are full by their number of requests; `load`: by
load, with requests of many sizes, so that the one whose turn it is often does not fit;
`locality`: as `load`, with a quantum of eight requests, and five times as many prefixes as the
endpoints can hold.
"""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
from collections import deque
from dataclasses import dataclass
from math import inf

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
PREFIXES = 150


@dataclass(frozen=True)
class Case:
    name: str
    max_load: float
    quantum: float = 0.0


SLOTS = Case("slots", 1e9)
CASES = (SLOTS, Case("load", 8_000.0), Case("locality", 8_000.0, 5_000.0))


def config(tenants: int, case: Case) -> SchedulerConfig:
    ends = tuple(EndpointConfig(f"e{i}", 16, case.max_load) for i in range(2))
    return SchedulerConfig(
        LANES,
        {"chat": PoolConfig("chat", ends, case.quantum)},
        {f"t{i}": TenantConfig(weight=1.0 + i % 4) for i in range(tenants)},
    )


def ticket(number: int, tenant: str, case: Case) -> Ticket:
    cost = 100.0 + number * 7919 % 900  # spread, and the same in every run
    prefix = 1 + number * 31 % PREFIXES if case.quantum else 0
    return Ticket(f"r{number}", "chat", "standard", tenant, "app", cost, cost, prefix)


def backlog(tenants: int, case: Case) -> tuple[Core, int]:
    core = Core(config(tenants, case), 0.0)
    number = 0
    for _ in range(DEPTH):
        for tenant in range(tenants):
            core.enqueue(ticket(number, f"t{tenant}", case), 0.0)
            number += 1
    return core, number


def microseconds(tenants: int, case: Case) -> tuple[float, float]:
    """Median decision; and CPU time a decision of the best round, which has its part of tidying
    up, of garbage collection and of making the ticket. What else the machine does adds to both."""
    core, number = backlog(tenants, case)
    tenant_of = {t.request_id: t.tenant for t in core.waiting()}
    running = deque(grant.request_id for grant in core.dispatch(0.0))
    each: list[float] = []
    best = inf
    for _ in range(ROUNDS):
        cpu_began = time.process_time()
        for _ in range(DECISIONS):
            ended = running.popleft()
            tenant = tenant_of.pop(ended)
            new = ticket(number, tenant, case)
            tenant_of[new.request_id] = tenant
            number += 1
            began = time.perf_counter()
            core.enqueue(new, 0.0)
            core.settle(ended, 90.0 + number % 1000)
            grants = core.dispatch(0.0)
            each.append((time.perf_counter() - began) * 1e6)
            running.extend(grant.request_id for grant in grants)
        best = min(best, (time.process_time() - cpu_began) / DECISIONS * 1e6)
    return statistics.median(each), best


def bytes_per_tenant(tenants: int) -> float:
    """All that the core keeps for a tenant with one request waiting, its ticket included."""
    settings = config(tenants, SLOTS)
    gc.collect()
    tracemalloc.start()
    core = Core(settings, 0.0)
    before = tracemalloc.get_traced_memory()[0]
    for number in range(tenants):
        core.enqueue(ticket(number, f"t{number}", SLOTS), 0.0)
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(core.waiting()) == tenants
    return (after - before) / tenants


def main() -> None:
    heads = "".join(f"{case.name + ': median, CPU':>26}" for case in CASES)
    print(f"tenants{heads}   bytes/tenant   (µs a decision; CPU: of the best round)")
    for tenants in (10, 1_000, 10_000, 100_000):
        costs = [microseconds(tenants, case) for case in CASES]
        shown = "".join(f"{median:>19.1f} {best:>6.1f}" for median, best in costs)
        print(f"{tenants:>7}{shown} {bytes_per_tenant(tenants):>14.0f}", flush=True)


if __name__ == "__main__":
    main()
