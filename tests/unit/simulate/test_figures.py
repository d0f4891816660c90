"""Figures and tables say what happened."""

from __future__ import annotations

import json

import pytest

from scheduling.simulate import recorder, table
from scheduling.simulate.figures import spread
from tests.unit.simulate.cast import A10G, OVERLOAD, asks, run, simulation, trace


def test_spreads_are_of_the_values_given() -> None:
    values = spread(range(100, 0, -1))
    assert (values.mean, values.p50, values.p95, values.p99, values.most) == (50.5, 50, 95, 99, 100)
    assert spread([]).most == 0
    assert spread([3.0]).p99 == 3.0


def test_a_lone_request_is_timed_by_hand() -> None:
    outcome = run(trace(asks("alice", 0.0, prompt=64, output=3)))
    first = 0.010 + 64 * 100e-6 + 100e-6 + 64 * 100e-9
    more = 2 * (0.010 + 100e-6) + (65 + 66) * 100e-9
    assert outcome.ttft_s.mean == pytest.approx(first)
    assert outcome.response_s.mean == pytest.approx(first + more)
    assert outcome.queue_s.mean == 0


def test_tokens_are_counted_until_the_last_arrival_and_to_the_end() -> None:
    outcome = run(OVERLOAD, profile=A10G)
    total = sum(arrival.prompt_tokens + arrival.output_tokens for arrival in OVERLOAD.arrivals)
    assert outcome.tokens_per_s_to_end == pytest.approx(total / outcome.makespan_s)
    assert outcome.prompt_tokens + outcome.output_tokens == total
    assert 0 < outcome.tokens_per_s * outcome.offered_s < total
    assert outcome.busy > 0.99


def test_the_bound_follows_the_paper() -> None:
    """10 000 tokens of cache, an output token costs 2, weights of 1: 2·2·10 000."""
    assert run(OVERLOAD, profile=A10G).bound == 40_000
    assert run(OVERLOAD, profile=A10G, weights={"alice": 0.5}).bound == 80_000
    assert run(OVERLOAD, "vtc-local", profile=A10G).bound == 60_000


def test_tenants_that_never_wait_together_have_no_gap() -> None:
    apart = trace(*(asks("alice", 0.0) for _ in range(20)), *(asks("bob", 60.0) for _ in range(9)))
    assert run(apart, "fcfs").gap_max == 0
    together = trace(
        *(asks("alice", 0.0) for _ in range(20)), *(asks("bob", 0.0) for _ in range(9))
    )
    assert run(together, "fcfs").gap_max > 0


def test_a_long_tail_is_seen_at_a_coarser_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "SAMPLES", 20)
    monkeypatch.setattr(recorder, "LONGEST", 40)
    made = simulation(trace(*(asks("alice", 0.01 * k, output=100) for k in range(60))), "fcfs")
    kept = made.run()
    assert len(kept.series.at) <= 41
    assert kept.series.at == sorted(set(kept.series.at))
    assert kept.series.at[-1] == made.now
    assert len(kept.series.gap) == len(kept.series.at)


def test_results_are_plain_json() -> None:
    outcome = run(OVERLOAD, profile=A10G)
    again = json.loads(json.dumps(outcome.as_json()))
    assert again["gap_max"] == outcome.gap_max
    assert again["within_bound"] is True
    assert len(again["series"]["at_s"]) == len(again["series"]["service_units"]["bob"])


def test_tables_line_up() -> None:
    rows = table.policies([run(OVERLOAD, profile=A10G)])
    assert len({len(line) for line in table.aligned(rows)}) == 1
    head, rule, *lines = table.markdown(rows)
    assert head.count("|") == rule.count("|") == lines[0].count("|")
