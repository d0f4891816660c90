"""`capacity: auto` against the simulated engine, in virtual time (tests/bench/auto_capacity.py)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduling.simulate.profile import load
from scheduling.simulate.workload import synthesise
from tests.bench.auto_capacity import CASES, LASTS_S, run


@pytest.mark.parametrize(("name", "best"), [("demo", 16), ("7b-a10g, long", 8)])
def test_the_queue_stands_in_the_gateway_and_the_batch_is_full(name: str, best: int) -> None:
    """One engine is bounded by its requests, the other by its memory."""
    profile = load(name.partition(",")[0])
    trace = synthesise(name, (CASES[name], replace(CASES[name], tenant="bob")), LASTS_S)
    fixed, learnt = run(profile, trace, best), run(profile, trace, None)
    assert learnt.tokens_per_s >= 0.9 * fixed.tokens_per_s
    assert learnt.running >= 0.9 * fixed.running
    assert learnt.waiting <= 2
