"""Short chat, long contexts, long answers and agents at once, on an engine that cannot follow."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from scheduling.simulate.figures import Part, Result
from scheduling.simulate.trace import Arrival, Trace
from scheduling.simulate.workload import Stream, synthesise
from tests.unit.simulate.cast import A10G, asks, run, trace

SECONDS, CALLS, BLOCK = 120, 6, 16
STREAMS = (
    Stream("chat", 0.5, prompt=(20, 120), output=(20, 120), poisson=True),
    Stream("context", 0.6, prompt=(1000, 1500), output=(30, 150), poisson=True),
    Stream("writer", 1.2, prompt=(50, 200), output=(300, 900), poisson=True),
)


def agents(random: Random) -> Iterator[Arrival]:
    """Chains of calls, each with all that was said before in front of it."""
    for agent in range(SECONDS // 15):
        at, prompt = agent * 15 + random.random(), 200
        for call in range(CALLS):
            blocks = tuple(range(1000 * agent, 1000 * agent + prompt // BLOCK))
            more = {"interaction": f"a{agent}", "blocks": blocks, "block_tokens": BLOCK}
            yield asks("agent", at + 2 * call, prompt, random.randint(20, 80), **more)
            prompt += random.randint(100, 200)


@pytest.fixture(scope="module")
def mix() -> Trace:
    return trace(*synthesise("mixed", STREAMS, SECONDS).arrivals, *agents(Random(1)))


@pytest.fixture(scope="module")
def fair(mix: Trace) -> Result:
    return run(mix, "fairlane", profile=A10G)


@pytest.fixture(scope="module")
def first_come(mix: Trace) -> Result:
    return run(mix, "fcfs", profile=A10G)


def of(outcome: Result, tenant: str) -> Part:
    return next(part for part in outcome.tenants if part.name == tenant)


def test_all_of_it_is_served(mix: Trace, fair: Result) -> None:
    assert fair.ends == {"served": len(mix.arrivals)}


def test_who_asks_for_little_does_not_wait_for_who_asks_for_much(
    fair: Result, first_come: Result
) -> None:
    assert fair.within_bound
    for light in ("chat", "agent"):
        assert of(first_come, light).queue_s.p95 > 10  # the engine is overloaded
        assert of(fair, light).queue_s.p95 < of(first_come, light).queue_s.p95 / 5
        assert of(fair, light).ttft_s.p95 < of(first_come, light).ttft_s.p95 / 5


def test_it_costs_neither_throughput_nor_the_engines_batch(
    fair: Result, first_come: Result
) -> None:
    assert fair.tokens_per_s_to_end > 0.98 * first_come.tokens_per_s_to_end
    assert fair.batch > 0.95 * first_come.batch
    assert fair.memory > 0.95 * first_come.memory
