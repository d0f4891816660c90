"""Small engines, small workloads, and one call that runs them."""

from __future__ import annotations

from collections.abc import Mapping

from metering.core.predictor import OutputPredictor
from scheduling.simulate.figures import Result, result
from scheduling.simulate.policies import entry
from scheduling.simulate.profile import Profile, StepTime, load
from scheduling.simulate.scenario import Scenario, plain
from scheduling.simulate.simulation import Simulation
from scheduling.simulate.trace import Arrival, Trace
from scheduling.simulate.workload import Stream, synthesise

A10G = load("7b-a10g")
SMALL = Profile(
    name="small",
    max_num_seqs=4,
    max_num_batched_tokens=256,
    num_gpu_blocks=64,
    block_size=16,
    max_model_len=512,
    step=StepTime(base_ms=10, prefill_token_us=100, sequence_us=100, kv_token_ns=100),
)
OVERLOAD = synthesise("overload", (Stream("alice", 1.5), Stream("bob", 3.0)), 120)


def asks(tenant: str, at: float, prompt: int = 64, output: int = 16, **more: object) -> Arrival:
    return Arrival(at, tenant, prompt, output, **more)  # type: ignore[arg-type]


def trace(*arrivals: Arrival) -> Trace:
    return Trace("test", tuple(sorted(arrivals, key=lambda arrival: arrival.at)))


def simulation(
    what: Trace | tuple[Scenario, Trace],
    policy: str = "fairlane",
    profile: Profile = SMALL,
    endpoints: int = 1,
    weights: Mapping[str, float] | None = None,
) -> Simulation:
    placed = what
    if isinstance(placed, Trace):
        placed = plain(placed, profile, endpoints, weights or {})
    chosen = entry(policy)
    assert chosen is not None
    return Simulation(*placed, chosen, OutputPredictor())


def run(what: Trace | tuple[Scenario, Trace], policy: str = "fairlane", **more: object) -> Result:
    made = simulation(what, policy, **more)  # type: ignore[arg-type]
    return result(made, made.run())


def service_of(outcome: Result, tenant: str) -> float:
    return next(t.service_units for t in outcome.tenants if t.name == tenant)


def order_of_service(made: Simulation) -> list[str]:
    """Tenants in the order in which their requests were given a place."""
    granted = [job for job in made.jobs if job.granted_at is not None]
    return [j.arrival.tenant for j in sorted(granted, key=lambda job: job.granted_at or 0.0)]
