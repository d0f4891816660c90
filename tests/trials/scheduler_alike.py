"""The scheduler on a server beside the core, at length: the same calls to both, and every grant
and every counter compared. `tests/integration/shared/test_scheduler_alike.py` is the short one.

    .venv/bin/python -m tests.trials.scheduler_alike [events] [seed]
"""

from __future__ import annotations

import sys
from random import Random

from tests.integration.shared.twins import LIBRARY, Twins
from tests.redis_server import redis_server

ROUND = 1_000  # events with one set of tenants, after which everything is served and compared


def main() -> None:
    events, seed = (int(given) for given in [*sys.argv[1:], *("10000", "1")[len(sys.argv) - 1 :]])
    granted = asked = 0
    with redis_server() as server, server.client() as client:
        client.function_load(LIBRARY.text, replace=True)
        for number in range(-(-events // ROUND)):
            client.flushall()
            twins = Twins(client, Random(seed + number), (3, 10, 40, 150)[number % 4])
            twins.run(ROUND)
            granted, asked = granted + twins.granted, asked + twins.number
            print(f"{(number + 1) * ROUND} events, {asked} requests, {granted} grants: alike")


if __name__ == "__main__":
    main()
