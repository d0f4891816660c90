"""`capacity: auto` against fixed settings: where the queue stands, and how full the batch is.

    .venv/bin/python -m tests.bench.auto_capacity

One overloaded engine behind the scheduler's core, in virtual time: the same on every machine. After
a warm-up its metrics are read twice a second, as the gateway does. Prints the table of
docs/benchmarks.md, "Learnt capacity".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from statistics import mean

from metering.core.predictor import OutputPredictor
from scheduling.core.learning import Learner, Reading
from scheduling.simulate.policies import POLICIES
from scheduling.simulate.policies.fairlane import Fairlane
from scheduling.simulate.profile import Profile, load
from scheduling.simulate.scenario import POOL, plain
from scheduling.simulate.simulation import Simulation
from scheduling.simulate.trace import Trace
from scheduling.simulate.workload import Stream, synthesise

READ_S = 0.5
WARM_UP_S, LASTS_S = 60.0, 240.0
START = (16, 60_000.0)
FIXED = (4, 8, 16, 32, 64, 128, 256, 512)
CASES = {
    "demo": Stream("alice", 6.0, prompt=(50, 400), output=(20, 200), poisson=True),
    "7b-a10g": Stream("alice", 4.0, prompt=(50, 400), output=(20, 400), poisson=True),
    "7b-a10g, long": Stream("alice", 1.0, prompt=(800, 1600), output=(50, 300), poisson=True),
    "8b-h100": Stream("alice", 90.0, prompt=(100, 1000), output=(50, 400), poisson=True),
}


class Watched(Simulation):
    """Reads the engine's metrics; learns from them where it is told to."""

    learner: Learner | None = None
    read_at = 0.0

    def _upcoming(self) -> float:
        upcoming = super()._upcoming()
        return upcoming if upcoming == inf else min(upcoming, self.read_at)

    def _dispatch(self) -> None:
        if self.now >= self.read_at:
            self.read_at += READ_S
            self._read()
        super()._dispatch()

    def _read(self) -> None:
        [rig] = self.rigs
        engine = rig.engine
        if self.learner is not None:
            policy = self._policy
            assert isinstance(policy, Fairlane)
            held = policy.core.held(POOL, rig.endpoint)
            assert held is not None
            reading = Reading(engine.running, engine.waiting, engine.kv.usage)
            if self.learner.observe(reading, held):
                limits = self.learner.max_running, self.learner.max_load
                policy.core.set_capacity(POOL, rig.endpoint, *limits)
        if WARM_UP_S <= self.now <= LASTS_S:
            totals = engine.totals
            self.seen.append(
                Seen(
                    self.now,
                    engine.running,
                    engine.waiting,
                    totals.prompt + totals.generated,
                    totals.preemptions,
                )
            )

    seen: list[Seen]


@dataclass(frozen=True, slots=True)
class Seen:
    at: float
    running: int
    waiting: int
    tokens: int
    preemptions: int


@dataclass(frozen=True, slots=True)
class Row:
    setting: str
    tokens_per_s: float
    running: float
    waiting: float
    most_waiting: int
    preemptions: int


def run(profile: Profile, trace: Trace, fixed: int | None) -> Row:
    scenario, placed = plain(trace, profile, max_running=fixed or START[0])
    learner = None
    if fixed is None:
        learner = Learner(*START)
        pools = scenario.scheduler.pools
        ends = tuple(replace(end, max_load=START[1]) for end in pools[POOL].endpoints)
        learnt = {POOL: replace(pools[POOL], endpoints=ends)}
        scenario = replace(scenario, scheduler=replace(scenario.scheduler, pools=learnt))
    simulation = Watched(scenario, placed, POLICIES["fairlane"], OutputPredictor())
    simulation.learner, simulation.seen = learner, []
    simulation.run()
    seen = simulation.seen
    first, last = seen[0], seen[-1]
    return Row(
        f"auto: {learner.max_running}" if learner else str(fixed),
        (last.tokens - first.tokens) / (last.at - first.at),
        mean(each.running for each in seen),
        mean(each.waiting for each in seen),
        max(each.waiting for each in seen),
        last.preemptions - first.preemptions,
    )


def main() -> None:
    heads = ("engine", "requests at once", "tokens/s", "of the best fixed", "batch", "waiting",
             "most waiting", "preempted")  # fmt: skip
    print("| " + " | ".join(heads) + " |\n|" + " --- |" * 2 + " ---: |" * 6)
    for name, stream in CASES.items():
        profile = load(name.partition(",")[0])
        trace = synthesise(name, (stream, replace(stream, tenant="bob")), LASTS_S)
        fixed = [run(profile, trace, n) for n in FIXED if n <= 2 * profile.max_num_seqs]
        best = max(row.tokens_per_s for row in fixed)
        for row in [*fixed, run(profile, trace, None)]:
            cells = (name, row.setting, f"{row.tokens_per_s:.0f}", f"{row.tokens_per_s / best:.1%}",
                     f"{row.running:.1f}", f"{row.waiting:.2f}", str(row.most_waiting),
                     str(row.preemptions))  # fmt: skip
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
