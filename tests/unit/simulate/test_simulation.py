"""A simulation serves each request once and whole, drives the real core, and can be repeated."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from scheduling.core.dispatcher import Core
from scheduling.core.model import EndpointConfig, PoolConfig
from scheduling.simulate import rig
from scheduling.simulate.policies import POLICIES
from scheduling.simulate.policies.fairlane import Fairlane
from scheduling.simulate.scenario import LANE, POOL, LaneRun, Scenario, plain
from scheduling.simulate.trace import Trace
from tenants.core.snapshot import Cost
from tests.unit.simulate.cast import A10G, OVERLOAD, SMALL, asks, run, service_of, simulation, trace


def mixed(count: int = 90, seed: int = 7) -> Trace:
    """Bursts of many lengths, prefixes among them, for an engine that must sometimes preempt."""
    random = Random(seed)
    arrivals = [
        asks(
            random.choice(["alice", "bob", "carol"]),
            at=random.random() * count / 8,
            prompt=random.randint(1, 200),
            output=random.randint(1, 200),
            application=random.choice(["", "bot"]),
            blocks=tuple(range(100 * (random.randrange(3)), 100 * random.randrange(3) + 4)),
            block_tokens=16,
        )
        for _ in range(count)
    ]
    return trace(*arrivals)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_ends_once_and_what_is_served_is_served_whole(policy: str) -> None:
    made = simulation(mixed(), policy, endpoints=2)
    made.run()
    served = [job for job in made.jobs if job.end == "served"]
    assert len(made.jobs) == 90
    assert all(job.end in ("served", "refused") for job in made.jobs)
    assert sum(job.tokens for job in served) == sum(
        rig.engine.totals.prompt + rig.engine.totals.generated for rig in made.rigs
    )
    assert sum(made.finished.values()) == sum(j.service(j.arrival.output_tokens) for j in served)
    assert all(rig.engine.kv.held == 0 and not rig.engine.running for rig in made.rigs)
    if policy in ("fairlane", "fcfs", "lcf", "dlpm"):
        assert len(served) == 90


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_trace_gives_the_same_figures(policy: str) -> None:
    assert run(mixed(60), policy) == run(mixed(60), policy)


def test_the_product_s_own_core_decides_and_is_left_clean() -> None:
    made = simulation(mixed(), "fairlane")
    made.run()
    policy = made._policy
    assert isinstance(policy, Fairlane)
    assert type(policy.core) is Core
    assert policy.core.idle
    shares = policy.core.pools[POOL].lanes.all[LANE].queue.shares
    for tenant in ("alice", "bob", "carol"):
        delivered = made.finished[POOL, LANE, tenant]
        assert shares[tenant].served == pytest.approx(delivered)


def test_stretches_of_steps_change_nothing_but_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    stretched = run(mixed(80), "fcfs")
    monkeypatch.setattr(rig, "UNTIL_CHANGE", 1)
    stepped = run(mixed(80), "fcfs")
    assert stepped.makespan_s == pytest.approx(stretched.makespan_s)
    assert stepped.queue_s.mean == pytest.approx(stretched.queue_s.mean)
    assert stepped.ttft_s.mean == pytest.approx(stretched.ttft_s.mean)
    assert stepped.response_s.mean == pytest.approx(stretched.response_s.mean)


def test_output_past_the_estimate_is_charged_while_it_streams() -> None:
    """A tenant whose answers run long must not fill the pool before its counter moves."""
    long = [asks("alice", 0.0, output=400) for _ in range(12)]
    short = [asks("bob", 0.0, output=20) for _ in range(200)]
    assert (
        run(trace(*long, *short), "vtc").gap_max < run(trace(*long, *short), "round-robin").gap_max
    )


def test_a_request_larger_than_the_engine_is_turned_away() -> None:
    outcome = run(trace(asks("alice", 0.0, prompt=600), asks("bob", 1.0)))
    assert outcome.ends == {"too long": 1, "served": 1}


def test_who_waits_past_the_lane_s_patience_is_sent_away() -> None:
    scenario, placed = plain(trace(*[asks("alice", 0.0, output=200) for _ in range(20)]), SMALL)
    impatient = Scenario(scenario.scheduler, scenario.pools, {LANE: LaneRun(patience_s=5.0)})
    outcome = run((impatient, placed))
    assert outcome.ends["timed out"] > 0
    assert outcome.ends["served"] + outcome.ends["timed out"] == 20
    assert outcome.queue_s.most <= 5.0


@pytest.mark.parametrize("patience", [0.1, 1 / 3, 3.7])
def test_no_moment_is_too_odd_to_give_up_at(patience: float) -> None:
    """Sums and differences of times round differently; waiting for the one that never comes is
    waiting for ever."""
    arrivals = [asks("alice", 0.1 * k + 1 / (k + 3), output=150) for k in range(60)]
    scenario, placed = plain(trace(*arrivals), SMALL)
    lanes = {LANE: LaneRun(patience_s=patience)}
    outcome = run((Scenario(scenario.scheduler, scenario.pools, lanes), placed))
    assert sum(outcome.ends.values()) == 60
    assert outcome.ends["timed out"] > 0


def test_weights_divide_what_two_overloaded_tenants_get() -> None:
    outcome = run(OVERLOAD, profile=A10G, weights={"alice": 1.0, "bob": 3.0})
    assert service_of(outcome, "bob") / service_of(outcome, "alice") == pytest.approx(3, rel=0.15)
    assert outcome.within_bound


def test_more_endpoints_serve_more() -> None:
    one, two = run(OVERLOAD, profile=A10G), run(OVERLOAD, profile=A10G, endpoints=2)
    assert two.tokens_per_s > 1.7 * one.tokens_per_s


def test_cached_prompts_are_found_and_priced_as_the_pool_says() -> None:
    turns = [
        asks("alice", 5.0 * k, prompt=160, blocks=tuple(range(10)), block_tokens=16)
        for k in range(4)
    ]
    full, cheap = (
        simulation(plain(trace(*turns), SMALL, cost=cost))
        for cost in (Cost(), Cost(cached_input=0))
    )
    for made in (full, cheap):
        made.run()
    cached = sum(job.sequence.cached_tokens for job in full.jobs if job.sequence)
    assert cached == 3 * 144  # one block is left to compute: an answer comes of it
    alice = POOL, LANE, "alice"
    assert full.finished[alice] - cheap.finished[alice] == cached


def test_tenants_of_an_isolated_pool_share_no_prefix() -> None:
    turns = [asks(name, 5.0 * k, prompt=160, blocks=tuple(range(10)), block_tokens=16)
             for k, name in enumerate(["alice", "bob", "alice"])]  # fmt: skip
    scenario, placed = plain(trace(*turns), SMALL)
    alone = {POOL: replace(scenario.pools[POOL], isolated=True)}
    assert run((scenario, placed)).cached_tokens == 2 * 144
    assert run((Scenario(scenario.scheduler, alone), placed)).cached_tokens == 144


def test_a_draining_endpoint_takes_nothing() -> None:
    scenario, placed = plain(mixed(30), SMALL, endpoints=2)
    ends = scenario.scheduler.pools[POOL].endpoints
    config = PoolConfig(POOL, (ends[0], replace(ends[1], available=False)))
    made = simulation(
        (replace(scenario, scheduler=replace(scenario.scheduler, pools={POOL: config})), placed)
    )
    made.run()
    assert made.rigs[1].engine.totals.steps == 0
    assert EndpointConfig("engine-2", 4, 1024.0, available=False) in config.endpoints


def test_progress_goes_from_nothing_to_all() -> None:
    seen: list[float] = []
    made = simulation(OVERLOAD, "fcfs", profile=A10G)
    made._progress = seen.append
    made.run()
    assert seen[0] == 0.0
    assert seen[-1] == 1.0
    assert seen == sorted(seen)
