"""What a simulation comes to: figures and series as plain values, for table, JSON and report.

Units: seconds, tokens, and service units (of fairness, not money); gaps are service ÷ weight.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from scheduling.simulate.job import Job, Service
from scheduling.simulate.policies import QUANTUM, Entry
from scheduling.simulate.recorder import Recorder
from scheduling.simulate.scenario import Scenario
from scheduling.simulate.simulation import Predictor, Simulation
from scheduling.simulate.trace import Trace

PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds."""

    mean: float
    p50: float
    p95: float
    p99: float
    most: float


@dataclass(frozen=True, slots=True)
class Part:
    """What one tenant, or one lane, got of it."""

    name: str
    requests: int
    served: int
    refused: int
    timed_out: int
    service_units: float  # while requests arrived
    share: float  # of all service while requests arrived
    queue_s: Spread
    ttft_s: Spread
    response_s: Spread
    weight: float = 1.0  # a tenant's


@dataclass(frozen=True, slots=True)
class Result:
    policy: str
    about: str
    trace: str
    offered_s: float  # until the last arrival
    makespan_s: float
    requests: int
    ends: dict[str, int]
    reasons: dict[str, int]  # why requests were refused
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    tokens_per_s: float  # prompt and output, while requests arrived
    tokens_per_s_to_end: float  # the same until the last request ended
    gap_max: float
    gap_avg: float
    bound: float  # 2U
    difference_max: float  # units per second
    difference_avg: float
    jain: float
    busy: float  # parts, while requests arrived
    batch: float
    memory: float
    queue_s: Spread
    ttft_s: Spread
    response_s: Spread
    tenants: tuple[Part, ...]
    lanes: tuple[Part, ...]  # best rank first
    series: dict[str, Any]

    @property
    def within_bound(self) -> bool:
        return self.gap_max <= self.bound

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "within_bound": self.within_bound}


def simulate(
    scenario: Scenario,
    trace: Trace,
    entry: Entry,
    predictor: Predictor,
    progress: Callable[[float], None] = lambda _part: None,
) -> Result:
    """Replay `trace`, whose arrivals are placed on `scenario`, under one policy."""
    simulation = Simulation(scenario, trace, entry, predictor, progress)
    return result(simulation, simulation.run())


def result(simulation: Simulation, recorder: Recorder) -> Result:
    jobs, series = simulation.jobs, recorder.series
    done = [job for job in jobs if job.end == "served"]
    offered = sum(at <= recorder.offered_s * (1 + 1e-9) for at in series.at)
    tokens = sum(job.tokens for job in done)
    gaps = [gap for gap in series.gap if gap]
    return Result(
        policy=simulation.entry.name,
        about=simulation.entry.about,
        trace=simulation.trace.name,
        offered_s=recorder.offered_s,
        makespan_s=simulation.now,
        requests=len(jobs),
        ends=dict(Counter(str(job.end) for job in jobs)),
        reasons=dict(Counter(job.reason for job in jobs if job.reason)),
        prompt_tokens=sum(job.arrival.prompt_tokens for job in done),
        cached_tokens=sum(job.sequence.cached_tokens for job in done if job.sequence),
        output_tokens=sum(job.arrival.output_tokens for job in done),
        tokens_per_s=recorder.tokens_offered / recorder.offered_s,
        tokens_per_s_to_end=tokens / simulation.now if simulation.now else 0.0,
        gap_max=recorder.widest,
        gap_avg=_mean(gaps),
        bound=bound(simulation),
        difference_max=max(recorder.differences, default=0.0),
        difference_avg=_mean(recorder.differences),
        jain=_mean([index for _, index in recorder.jain]) if recorder.jain else 1.0,
        busy=_mean(series.busy[:offered]),
        batch=_mean(series.batch[:offered]),
        memory=_mean(series.memory[:offered]),
        queue_s=_queue(done),
        ttft_s=_ttft(done),
        response_s=_response(done),
        tenants=_tenants(jobs, recorder),
        lanes=_lanes(jobs, recorder),
        series=_series(recorder),
    )


def bound(simulation: Simulation) -> float:
    """2U of the widest pool: 2·max(c_in·L_in, c_out·M) ÷ the least weight, and its quantum. M is
    what its endpoints can run at once by their limits of requests, tokens and memory."""
    widest = 0.0
    scenario = simulation.scenario
    for name, pool in scenario.scheduler.pools.items():
        ran = [job for job in simulation.jobs if job.arrival.model == name and job.end == "served"]
        longest = max((job.tokens for job in ran), default=0)
        prompt = max((job.arrival.prompt_tokens for job in ran), default=0)
        run = scenario.pools[name]
        at_once = sum(
            min(end.max_load, run.profile.kv_tokens, end.max_running * longest)
            for end in pool.endpoints
        )
        weight = min((scenario.weight(job.arrival.tenant) for job in ran), default=1.0)
        input_cost = max(run.cost.input, run.cost.cached_input)
        units = 2 * max(input_cost * prompt, run.cost.output * at_once)
        local = QUANTUM if simulation.entry.name == "vtc-local" else pool.locality_quantum
        widest = max(widest, units / weight + local)
    return widest


def spread(values: Iterable[float]) -> Spread:
    ordered = sorted(values)
    if not ordered:
        return Spread(0.0, 0.0, 0.0, 0.0, 0.0)
    p50, p95, p99 = (ordered[-(-len(ordered) * part // 100) - 1] for part in PERCENTILES)
    return Spread(_mean(ordered), p50, p95, p99, ordered[-1])


def _tenants(jobs: list[Job], recorder: Recorder) -> tuple[Part, ...]:
    parts = _parts(jobs, recorder.served_offered, 2)
    weight = recorder.simulation.scenario.weight
    return tuple(replace(part, weight=weight(part.name)) for part in parts)


def _lanes(jobs: list[Job], recorder: Recorder) -> tuple[Part, ...]:
    ranks = {lane.name: lane.rank for lane in recorder.simulation.scenario.scheduler.lanes}
    return tuple(sorted(_parts(jobs, recorder.served_offered, 1), key=lambda p: ranks[p.name]))


def _parts(jobs: list[Job], service: Service, field: int) -> list[Part]:
    """By one field of the jobs' keys."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.key[field], []).append(job)
    units: dict[str, float] = defaultdict(float)
    for key, got in service.items():
        units[key[field]] += got
    total = sum(units.values()) or 1.0
    return [_part(n, own, units[n], units[n] / total) for n, own in sorted(groups.items())]


def _part(name: str, jobs: list[Job], units: float, share: float) -> Part:
    ends = Counter(job.end for job in jobs)
    done = [job for job in jobs if job.end == "served"]
    return Part(
        name=name,
        requests=len(jobs),
        served=ends["served"],
        refused=ends["refused"] + ends["too long"],
        timed_out=ends["timed out"],
        service_units=units,
        share=share,
        queue_s=_queue(done),
        ttft_s=_ttft(done),
        response_s=_response(done),
    )


def _queue(jobs: list[Job]) -> Spread:
    return spread(j.granted_at - j.arrival.at for j in jobs if j.granted_at is not None)


def _ttft(jobs: list[Job]) -> Spread:
    firsts = ((job, job.sequence.first_token_at) for job in jobs if job.sequence)
    return spread(first - job.arrival.at for job, first in firsts if first is not None)


def _response(jobs: list[Job]) -> Spread:
    return spread(job.ended_at - job.arrival.at for job in jobs if job.ended_at is not None)


def _series(recorder: Recorder) -> dict[str, Any]:
    series = recorder.series
    names = sorted({name for services in series.service for name in services})
    return {
        "at_s": series.at,
        "service_units": {name: [s.get(name, 0.0) for s in series.service] for name in names},
        "gap": series.gap,
        "running": series.running,
        "waiting": series.waiting,
        "busy": series.busy,
        "batch": series.batch,
        "memory": series.memory,
        "jain": {"at_s": [at for at, _ in recorder.jain], "index": [j for _, j in recorder.jain]},
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
