"""What a line in the log for each call costs (`FAIRLANE_LOG_CALLS`): none beside all, the latter as
text and as JSON.

    .venv/bin/python -m tests.bench.call_log [--rounds 15]

One `manage.py serve` each, before one scripted engine; plain calls, 16 at once, in turn. CPU is
user + system time of the serving process, pinned to one core. Medians, and what each round found
above `none`. Logs go to a file.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

import uvloop

from tests.bench.gateway import trials, ways
from tests.bench.gateway.ways import Way

COST = "plain, c=16: CPU, µs a request"
NONE = "none"
EACH = 100  # calls of each caller, few: what else the machine does changes within seconds
KINDS = {
    NONE: {"FAIRLANE_LOG_CALLS": "none"},
    "all, text": {"FAIRLANE_LOG_CALLS": "all", "FAIRLANE_LOG": "text"},
    "all, JSON": {"FAIRLANE_LOG_CALLS": "all", "FAIRLANE_LOG": "json"},
}


async def compare(found: list[Way], rounds: int) -> None:
    for _ in range(rounds):
        for way in found:
            await trials.plain(way, 16, EACH)


def extra(way: Way, none: Way) -> list[float]:
    """Its quartiles."""
    pairs = zip(way.figures[COST], none.figures[COST], strict=True)
    return statistics.quantiles([cost - base for cost, base in pairs], n=4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-bench-") as folder,
        ways.fairlanes(Path(folder), KINDS) as found,
    ):
        uvloop.run(compare(found, given.rounds))
        print(f"{'':12}{'µs a call':>12}{'extra: median, quartiles':>30}")
        for way in found:
            cost = statistics.median(way.figures[COST])
            low, middle, high = extra(way, found[0])
            print(f"{way.name:12}{cost:12.0f}{middle:20.0f}, {low:.0f} to {high:.0f}")
    print(f"load average {os.getloadavg()[0]:.1f}; {given.rounds} rounds of {16 * EACH} calls each")


if __name__ == "__main__":
    main()
