"""What the shared scheduler costs Redis, and how far one Redis goes.

    .venv/bin/python -m tests.bench.shared_scheduler

A request is one `acquire` and one `settle`, which grants the next. Every tenant is backlogged
throughout, as in tests.bench.scheduler, whose cases and policy these are. At once: so many requests
in a pipeline. Redis CPU is the server's own account of its process (used_cpu_user + used_cpu_sys)
in the best round. `core` is what the same takes in this process, measured right after: on a busy
machine both are slower, and their quotient says more than either.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Any

import valkey

from scheduling.shared.library import Library
from scheduling.shared.wire import Keys, config_fields, decode, encode, ticket_fields
from tests.bench.scheduler import CASES, SLOTS, Case, config, microseconds, ticket
from tests.redis_server import redis_server

LIBRARY = Library()
KEYS = Keys().of("chat")
REQUESTS, ROUNDS, DEPTH = 1_000, 8, 2


@dataclass
class Figures:
    redis_us: float  # of Redis CPU a request
    client_us: float
    a_second: float


class Driver:
    def __init__(self, client: valkey.Valkey, tenants: int, case: Case) -> None:
        self.client = client
        self.case = case
        self.tenant_of: dict[str, str] = {}
        self.running: deque[str] = deque()
        self.numbers = count()
        client.flushall()
        client.function_load(LIBRARY.text, replace=True)
        self.do([self.call("configure", 1, *config_fields(config(tenants, case)))])
        self.do([self.call("beat", 1e9, True)])
        for _ in range(DEPTH):
            for first in range(0, tenants, 500):
                those = range(first, min(tenants, first + 500))
                self.do([self.ask(f"t{tenant}") for tenant in those])

    def call(self, name: str, *given: Any) -> tuple[Any, ...]:
        return ("FCALL", LIBRARY.function(name), 2, *KEYS, encode([False, "bench.0", *given]))

    def ask(self, tenant: str) -> tuple[Any, ...]:
        new = ticket(next(self.numbers), tenant, self.case)
        self.tenant_of[new.request_id] = tenant
        return self.call("acquire", ticket_fields(new), True)

    def do(self, calls: list[tuple[Any, ...]]) -> None:
        pipeline = self.client.pipeline(transaction=False)
        for call in calls:
            pipeline.execute_command(*call)
        for answer in pipeline.execute():
            self.running.extend(id for id, _ in decode(answer)[1])

    def requests(self, number: int, at_once: int) -> None:
        for _ in range(0, number, at_once):
            calls = []
            for _ in range(min(at_once, len(self.running))):
                ended = self.running.popleft()
                calls.append(self.ask(self.tenant_of.pop(ended)))
                calls.append(self.call("settle", ended, 90.0 + next(self.numbers) % 1000))
            self.do(calls)


def spent_us(client: valkey.Valkey) -> float:
    cpu: Any = client.info("cpu")
    return float((cpu["used_cpu_user"] + cpu["used_cpu_sys"]) * 1e6)


def measure(client: valkey.Valkey, tenants: int, case: Case, at_once: int) -> Figures:
    driver = Driver(client, tenants, case)
    best = Figures(inf, inf, 0.0)
    for _ in range(ROUNDS):
        before, own, began = spent_us(client), time.process_time(), time.perf_counter()
        driver.requests(REQUESTS, at_once)
        took, own = time.perf_counter() - began, time.process_time() - own
        best = Figures(
            min(best.redis_us, (spent_us(client) - before) / REQUESTS),
            min(best.client_us, own * 1e6 / REQUESTS),
            max(best.a_second, REQUESTS / took),
        )
    return best


def main() -> None:
    print("case      tenants  at once   Redis CPU   client     core   requests/s   (µs a request)")
    with redis_server() as server, server.client() as client:
        for case in CASES:
            for tenants in (10, 1_000, 10_000):
                for at_once in (1, 16) if case is SLOTS else (16,):
                    it = measure(client, tenants, case, at_once)
                    core_us = microseconds(tenants, case)[1]
                    print(
                        f"{case.name:<9}{tenants:>8}{at_once:>9}{it.redis_us:>12.0f}"
                        f"{it.client_us:>9.0f}{core_us:>9.1f}{it.a_second:>13.0f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
