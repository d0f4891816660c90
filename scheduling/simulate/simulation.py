"""Replays a trace through a policy and simulated engines, in virtual time.

1. The policy `fairlane` is `scheduling.core` itself, with the same calls in the same order as the
   gateway makes: enqueue, dispatch, charge as output passes the estimate, settle.
2. Events happen in the order of their time; at one moment engines end steps first, then requests
   arrive, then who waited too long leaves, then the policy decides. So a run is a function of
   its arguments.
3. Each request of the trace ends once: served whole, refused, timed out, or too long to run.
4. An engine is stepped when its batch changes, never per token.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from math import inf
from typing import Protocol

from scheduling.core.model import Grant, Ticket
from scheduling.simulate.job import End, Job, Key, Service
from scheduling.simulate.policies import Entry
from scheduling.simulate.recorder import Recorder
from scheduling.simulate.rig import Rig
from scheduling.simulate.scenario import LaneRun, Scenario, coarse
from scheduling.simulate.trace import Arrival, Trace

SALT_BITS = 44  # block hashes are smaller: a tenant's number above them keeps tenants apart
PROGRESS_EVERY = 500  # arrivals


class Predictor(Protocol):
    """metering.core.predictor.OutputPredictor, which this room may not know."""

    def expect(self, application: str, model: str, max_tokens: int | None) -> int: ...

    def observe(self, application: str, model: str, tokens: int) -> None: ...


class Simulation:
    def __init__(
        self,
        scenario: Scenario,
        trace: Trace,
        entry: Entry,
        predictor: Predictor,
        progress: Callable[[float], None] = lambda _part: None,
    ) -> None:
        self.scenario = scenario
        self.trace = trace
        self.entry = entry
        self.jobs: list[Job] = []
        self.waiting: Counter[Key] = Counter()
        self.since: dict[Key, float] = {}  # when it began to wait without a break
        self.finished = Service(float)  # units of those that are over
        self.finished_tokens = 0
        self.now = 0.0
        self._predictor = predictor
        self._progress = progress
        self._rigs = self._engines()
        self._queued: dict[str, Job] = {}
        self._patience: dict[str, deque[Job]] = {lane: deque() for lane in scenario.lanes}
        self._salts = {name: n << SALT_BITS for n, name in enumerate(scenario.scheduler.tenants, 1)}
        self._policy = entry.build(scenario.scheduler, self._cached)
        self._recorder = Recorder(self)
        self._next = 0  # arrival

    @property
    def rigs(self) -> list[Rig]:
        return list(self._rigs.values())

    def run(self) -> Recorder:
        while (event := self._upcoming()) < inf:
            self.now = min(event, self._recorder.next_at)
            self._end_steps()
            self._arrive()
            self._time_out()
            self._dispatch()
            for rig in self._rigs.values():
                rig.begin(self.now)
            if self.now >= self._recorder.next_at:
                self._recorder.sample()
        assert not self._queued, "somebody waits and nothing runs"
        self._recorder.sample()
        self._progress(1.0)
        return self._recorder

    def served(self) -> Service:
        """Units delivered until now, those of running requests included."""
        found = self.finished.copy()
        for rig in self._rigs.values():
            ticks = rig.ticks(self.now)
            for job in rig.jobs.values():
                if job.sequence is not None and job.sequence.first_token_at is not None:
                    found[job.key] += job.service(rig.output(job, ticks))
        return found

    # --- events -----------------------------------------------------------------------------

    def _upcoming(self) -> float:
        arrivals = self.trace.arrivals
        at = arrivals[self._next].at if self._next < len(arrivals) else inf
        for rig in self._rigs.values():
            step = rig.engine.step
            if step is not None and step.end < at:
                at = step.end
        for lane, jobs in self._patience.items():
            while jobs and jobs[0].ticket.request_id not in self._queued:
                jobs.popleft()
            if jobs:
                at = min(at, jobs[0].arrival.at + self.scenario.lanes[lane].patience_s)
        return at

    def _end_steps(self) -> None:
        for rig in self._rigs.values():
            step = rig.engine.step
            if step is not None and step.end <= self.now:
                for job in rig.end()[1]:
                    self._settle(job)

    def _arrive(self) -> None:
        arrivals = self.trace.arrivals
        while self._next < len(arrivals) and arrivals[self._next].at <= self.now:
            if self._next % PROGRESS_EVERY == 0:
                self._progress(self._next / len(arrivals))
            self._enter(arrivals[self._next])
            self._next += 1

    def _enter(self, arrival: Arrival) -> None:
        pool = self.scenario.pools[arrival.model]
        job = Job(arrival, pool.cost, self._salts[arrival.tenant] if pool.isolated else 0)
        self.jobs.append(job)
        job.ticket = self._ticket(job)
        if job.tokens > min(pool.profile.kv_tokens, pool.profile.max_model_len):
            return self._close(job, "too long")
        refused = self._policy.arrive(job.ticket, self.now, arrival.interaction)
        if refused is not None:
            job.reason = refused
            return self._close(job, "refused")
        self._queued[job.ticket.request_id] = job
        self.waiting[job.key] += 1
        self.since.setdefault(job.key, self.now)
        if self.scenario.lanes.get(arrival.lane, LaneRun()).patience_s < inf:
            self._patience[arrival.lane].append(job)
        return None

    def _time_out(self) -> None:
        for lane, jobs in self._patience.items():
            patience = self.scenario.lanes[lane].patience_s
            while (
                jobs and jobs[0].arrival.at + patience <= self.now
            ):  # the sum that `_upcoming` has
                job = jobs.popleft()
                if self._policy.cancel(job.ticket.request_id):
                    self._leave(job)
                    self._close(job, "timed out")

    def _dispatch(self) -> None:
        if not self._queued:
            return
        self._charge()
        for grant in self._policy.dispatch(self.now):
            self._start(grant)

    def _start(self, grant: Grant) -> None:
        job = self._queued[grant.request_id]
        self._leave(job)
        job.granted_at = self.now
        lane = self.scenario.lanes.get(job.arrival.lane, LaneRun())
        self._rigs[job.ticket.pool, grant.endpoint].add(job, self.now, lane.engine_priority)

    def _charge(self) -> None:
        """What streamed past the estimates since the last decision."""
        for rig in self._rigs.values():
            for job, output in rig.past_estimate(rig.ticks(self.now)):
                self._policy.charge(job.ticket.request_id, job.service(output))

    def _settle(self, job: Job) -> None:
        units = job.service(job.arrival.output_tokens)
        self.finished[job.key] += units
        self.finished_tokens += job.tokens
        self._policy.settle(job.ticket.request_id, units)
        application = f"{job.arrival.tenant}/{job.arrival.application}"
        self._predictor.observe(application, job.arrival.model, job.arrival.output_tokens)
        self._close(job, "served")

    # --- inside -----------------------------------------------------------------------------

    def _engines(self) -> dict[tuple[str, str], Rig]:
        return {
            (name, end.id): Rig(name, end.id, coarse(self.scenario.pools[name].profile, self.trace))
            for name, pool in self.scenario.scheduler.pools.items()
            for end in pool.endpoints
        }

    def _ticket(self, job: Job) -> Ticket:
        arrival = job.arrival
        application = f"{arrival.tenant}/{arrival.application}"
        predicted = self._predictor.expect(application, arrival.model, None)
        forecasts = {"none": 0, "predicted": predicted, "oracle": arrival.output_tokens}
        job.expected = forecasts[self.entry.forecast]
        return Ticket(
            request_id=str(len(self.jobs)),
            pool=arrival.model,
            lane=arrival.lane,
            tenant=arrival.tenant,
            application=arrival.application,
            cost=job.price(job.expected),
            load=float(arrival.prompt_tokens + predicted),
            prefix=job.prefix,
        )

    def _cached(self, request_id: str, endpoint: str) -> int:
        job = self._queued[request_id]
        rig = self._rigs[job.ticket.pool, endpoint]
        size = rig.engine.profile.block_size
        return rig.engine.kv.match(job.blocks, job.arrival.prompt_tokens // size) * size

    def _leave(self, job: Job) -> None:
        """Out of the queue, whatever comes next."""
        del self._queued[job.ticket.request_id]
        self.waiting[job.key] -= 1
        if not self.waiting[job.key]:
            del self.waiting[job.key], self.since[job.key]

    def _close(self, job: Job, end: End) -> None:
        job.end, job.ended_at = end, self.now
        job.blocks = ()
