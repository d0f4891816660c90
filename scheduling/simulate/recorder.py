"""What happens in a simulation, looked at at regular times, as series and as running figures.

1. Compared are tenants of one lane of one pool, by service ÷ weight: D = W_f/w_f − W_g/w_g.
2. Gap of a pair: how far D moved while both waited without a break, over any part of that time:
   the greatest D less the least. The bound of the VTC paper (Theorem 4.4) is about this.
3. Difference (the paper's measure for real traces): in a window, what a tenant got less than the
   tenant that got most, but no more than it had asked for; summed over the tenants, per second.
4. Only the FOLLOWED tenants with most requests are compared, so that pairs stay few.
5. When a series gets longer than LONGEST, every second sample is dropped and the pace halved.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

from scheduling.simulate.job import Key, Service

if TYPE_CHECKING:
    from scheduling.simulate.simulation import Simulation

SAMPLES = 600  # while requests arrive
LONGEST = 1600
WINDOW_S = 60.0
FOLLOWED = 40


@dataclass(slots=True)
class Stretch:
    """A pair that waits without a break since `since`."""

    since: float
    start: float
    least: float
    most: float


@dataclass(slots=True)
class Series:
    at: list[float] = field(default_factory=list)
    service: list[dict[str, float]] = field(default_factory=list)  # units by tenant
    gap: list[float] = field(default_factory=list)  # the widest pair's, since it began to wait
    running: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)  # part of the engines that compute
    batch: list[float] = field(default_factory=list)  # part of their sequences in use
    memory: list[float] = field(default_factory=list)  # part of their KV cache in use

    def thin(self) -> None:
        for name in self.__slots__:
            values = getattr(self, name)
            del values[1::2]


class Recorder:
    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.series = Series()
        self.offered_s = max(simulation.trace.seconds, 1e-9)
        self.every = self.offered_s / SAMPLES
        self.next_at = 0.0
        self.widest = 0.0  # gap
        self.jain: list[tuple[float, float]] = []  # (end of a window, index)
        self.differences: list[float] = []  # units per second, one per window while offered
        self.tokens_offered = 0  # delivered until the last arrival
        self.served_offered = Service(float)
        self._weights = {n: t.weight for n, t in simulation.scenario.scheduler.tenants.items()}
        self._followed = self._most_frequent()
        self._stretches: dict[tuple[Key, Key], Stretch] = {}
        self._window = min(WINDOW_S, self.offered_s / 10)
        self._window_at = 0.0
        self._window_served = Service(float)
        self._asked = Service(float)
        self._counted = 0  # jobs in `_asked`

    def sample(self) -> None:
        now, served = self.simulation.now, self.simulation.served()
        self._advance(now)
        self._note(now, served, self._gap(served))
        if now <= self.offered_s * (1 + 1e-9):
            self.served_offered = served
            self.tokens_offered = self._tokens()
        if now >= self._window_at + self._window:
            self._close_window(now, served)

    def _advance(self, now: float) -> None:
        if len(self.series.at) >= LONGEST:
            self.series.thin()
            self.every *= 2
        upcoming = now + self.every
        self.next_at = self.offered_s if now < self.offered_s < upcoming else upcoming

    def _note(self, now: float, served: Service, gap: float) -> None:
        series, rigs = self.series, self.simulation.rigs
        by_tenant: dict[str, float] = defaultdict(float)
        for (_, _, tenant), units in served.items():
            by_tenant[tenant] += units
        series.at.append(now)
        series.service.append(by_tenant)
        series.gap.append(gap)
        series.running.append(sum(rig.engine.running for rig in rigs))
        series.waiting.append(sum(self.simulation.waiting.values()))
        series.busy.append(sum(rig.engine.step is not None for rig in rigs) / len(rigs))
        sequences = sum(rig.engine.running / rig.engine.profile.max_num_seqs for rig in rigs)
        series.batch.append(sequences / len(rigs))
        series.memory.append(sum(rig.engine.kv.usage for rig in rigs) / len(rigs))

    # --- fairness ---------------------------------------------------------------------------

    def _most_frequent(self) -> frozenset[str]:
        counts = Counter(arrival.tenant for arrival in self.simulation.trace.arrivals)
        return frozenset(name for name, _ in counts.most_common(FOLLOWED))

    def _groups(self, keys: list[Key]) -> dict[tuple[str, str], list[Key]]:
        found = defaultdict(list)
        for key in keys:
            if key[2] in self._followed:
                found[key[:2]].append(key)
        return found

    def _gap(self, served: Service) -> float:
        since, weights = self.simulation.since, self._weights
        kept: dict[tuple[Key, Key], Stretch] = {}
        gap = 0.0
        for keys in self._groups(list(since)).values():
            for f, g in combinations(sorted(keys), 2):
                apart = served[f] / weights[f[2]] - served[g] / weights[g[2]]
                both = max(since[f], since[g])
                stretch = self._stretches.get((f, g))
                if stretch is None or stretch.since != both:
                    stretch = Stretch(both, apart, apart, apart)
                stretch.least, stretch.most = min(stretch.least, apart), max(stretch.most, apart)
                kept[f, g] = stretch
                gap = max(gap, abs(apart - stretch.start))
                self.widest = max(self.widest, stretch.most - stretch.least)
        self._stretches = kept
        return gap

    def _close_window(self, now: float, served: Service) -> None:
        begun, self._window_at = self._window_at, now
        before = self._window_served
        self._count_asked()
        self._window_served = served
        got = {key: (served[key] - before[key]) / self._weights[key[2]] for key in self._asked}
        missed = 0.0
        for keys in self._groups(list(got)).values():
            most = max(got[key] for key in keys)
            for key in keys:
                asked = (self._asked[key] - before[key]) / self._weights[key[2]]
                missed += max(0.0, min(most, asked) - got[key])
        if now <= self.offered_s * (1 + 1e-9):
            self.differences.append(missed / (now - begun))
        self._note_jain(begun, now, got)

    def _note_jain(self, begun: float, now: float, got: dict[Key, float]) -> None:
        since = self.simulation.since
        throughout = [key for key in since if since[key] <= begun]
        indices = []
        for keys in self._groups(throughout).values():
            shares = [got.get(key, 0.0) for key in keys]
            squares = sum(share * share for share in shares)
            if len(keys) > 1 and squares:
                indices.append(sum(shares) ** 2 / (len(shares) * squares))
        if indices:
            self.jain.append((now, min(indices)))

    def _count_asked(self) -> None:
        jobs = self.simulation.jobs
        for job in jobs[self._counted :]:
            if job.end not in ("refused", "too long"):
                self._asked[job.key] += job.price(job.arrival.output_tokens)
        self._counted = len(jobs)

    def _tokens(self) -> int:
        """Prompt and output tokens delivered until now."""
        total = self.simulation.finished_tokens
        for rig in self.simulation.rigs:
            ticks = rig.ticks(self.simulation.now)
            for job in rig.jobs.values():
                if job.sequence is not None and job.sequence.first_token_at is not None:
                    total += job.arrival.prompt_tokens + rig.output(job, ticks)
        return total
