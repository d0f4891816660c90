"""One simulated engine of a simulation, and the requests on it."""

from __future__ import annotations

from heapq import heappop, heappush

from scheduling.simulate.engine import UNTIL_CHANGE, Engine, Outcome
from scheduling.simulate.job import Job
from scheduling.simulate.profile import Profile


class Rig:
    """Steps are stretches that last until the batch changes; what happens within one is
    interpolated, since all of its steps last about as long."""

    def __init__(self, pool: str, endpoint: str, profile: Profile) -> None:
        self.pool = pool
        self.endpoint = endpoint
        self.engine = Engine(profile)
        self.jobs: dict[str, Job] = {}
        self.calls = 0  # stretches that were begun
        self._due: list[tuple[int, str, Job]] = []  # tick by which its output passes the estimate
        self._over: dict[str, Job] = {}  # those whose output has

    def add(self, job: Job, now: float, priority: int) -> None:
        self.engine.cut(now)
        request = job.request(priority)
        job.sequence = self.engine.add(request)[0]
        self.jobs[request.id] = job

    def begin(self, now: float) -> None:
        if self.engine.step is None and (self.engine.running or self.engine.waiting):
            self.engine.begin(now, UNTIL_CHANGE)
            self.calls += 1

    def end(self) -> tuple[Outcome, list[Job]]:
        """Finish the step; returns the requests that are complete."""
        outcome = self.engine.end()
        for sequence in outcome.started:
            self._watch(self.jobs[sequence.request.id], self.engine.tick, sequence.generated)
        ended = [self.jobs.pop(sequence.request.id) for sequence in outcome.finished]
        for job in ended:
            self._over.pop(job.ticket.request_id, None)
        return outcome, ended

    def ticks(self, now: float) -> int:
        """Of the stretch under way, those that have passed."""
        step = self.engine.step
        if step is None or step.steps == 1:
            return 0
        return int((now - step.start) / (step.end - step.start) * step.steps)

    def output(self, job: Job, ticks: int) -> int:
        """Tokens that it has generated, `ticks` into the stretch under way."""
        sequence = job.sequence
        assert sequence is not None
        if sequence.batch is None:
            return sequence.generated
        return min(sequence.length, sequence.generated + ticks)

    def past_estimate(self, ticks: int) -> list[tuple[Job, int]]:
        """Those that run and whose output has passed what was expected; with the output."""
        tick = self.engine.tick + ticks
        while self._due and self._due[0][0] <= tick:
            job = heappop(self._due)[2]
            if job.ended_at is not None:
                continue
            output = self.output(job, ticks)
            if output > job.expected:
                self._over[job.ticket.request_id] = job
            else:
                self._watch(job, tick, output)  # it was preempted meanwhile
        return [(job, self.output(job, ticks)) for job in self._over.values()]

    def _watch(self, job: Job, tick: int, output: int) -> None:
        if job.arrival.output_tokens > job.expected:
            due = tick + max(1, job.expected + 1 - output)
            heappush(self._due, (due, job.ticket.request_id, job))
