"""Synthetic workloads: those of the VTC paper's section 5.2, and ramps. Same seed, same arrivals.

Rates, lengths and durations are those of the paper's artifact (Ying1123/VTC-artifact,
fair_bench/exp_suite.py), for which the shipped engine profile `7b-a10g` is about the right size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from scheduling.simulate.trace import Arrival, Trace

Lengths = tuple[int, int]  # from, to (both possible)


@dataclass(frozen=True, slots=True)
class Stream:
    """One tenant's arrivals. Of a `period` of on and off, only the first half is on."""

    tenant: str
    per_second: float
    to_per_second: float | None = None  # a ramp ends at this rate
    prompt: Lengths = (256, 256)
    output: Lengths = (256, 256)
    begins_at: float = 0.0  # of the duration, 0 to 1
    ends_at: float = 1.0
    period_s: float | None = None
    poisson: bool = False

    def arrivals(self, seconds: float, random: Random) -> Iterator[Arrival]:
        at, end = self.begins_at * seconds, self.ends_at * seconds
        at += 0.0 if self.poisson else random.random() / self._rate(at / seconds)
        while True:
            gap = 1 / self._rate(min(1.0, at / seconds))
            at += random.expovariate(1 / gap) if self.poisson else gap
            if at >= end:
                return
            prompt, output = random.randint(*self.prompt), random.randint(*self.output)
            if self.period_s is None or at % self.period_s < self.period_s / 2:
                yield Arrival(at, self.tenant, prompt, output)

    def _rate(self, part: float) -> float:
        if self.to_per_second is None:
            return self.per_second
        return self.per_second + (self.to_per_second - self.per_second) * part


def synthesise(name: str, streams: tuple[Stream, ...], seconds: float, seed: int = 1) -> Trace:
    found = [
        arrival
        for stream in streams
        for arrival in stream.arrivals(seconds, Random(f"{seed} {stream.tenant}"))
    ]
    return Trace(name, tuple(sorted(found, key=lambda arrival: arrival.at)))


MIXED = (16, 512)
WORKLOADS: Mapping[str, tuple[str, float, tuple[Stream, ...]]] = {
    "two-overloaded": (
        "two tenants, both over their share, one asking twice as often",
        360,
        (Stream("alice", 1.5), Stream("bob", 3.0)),
    ),
    "short-and-long": (
        "two overloaded tenants: many short requests against few long ones, Poisson",
        600,
        (
            Stream("alice", 8.0, prompt=(64, 64), output=(64, 64), poisson=True),
            Stream("bob", 1.5, poisson=True),
        ),
    ),
    "in-and-out": (
        "two overloaded tenants: long prompts with short answers against the reverse, Poisson",
        600,
        (
            Stream("alice", 8.0, prompt=(512, 512), output=(32, 32), poisson=True),
            Stream("bob", 1.5, prompt=(32, 32), output=(512, 512), poisson=True),
        ),
    ),
    "joins-and-leaves": (
        "two overloaded tenants, and a third that is there for the middle third",
        600,
        (
            Stream("alice", 1.5),
            Stream("bob", 3.0),
            Stream("carol", 2.0, begins_at=1 / 3, ends_at=2 / 3),
        ),
    ),
    "on-off": (
        "an overloaded tenant beside one that is on for a minute and off for a minute",
        600,
        (Stream("alice", 0.5, period_s=120), Stream("bob", 2.0)),
    ),
    "on-off-overload": (
        "the same, but who is on asks for more than its share",
        600,
        (Stream("alice", 2.0, period_s=120), Stream("bob", 3.0)),
    ),
    "poisson-on-off": (
        "on and off with Poisson arrivals and mixed lengths",
        600,
        (
            Stream("alice", 0.5, prompt=MIXED, output=MIXED, period_s=120, poisson=True),
            Stream("bob", 2.0, prompt=MIXED, output=MIXED, poisson=True),
        ),
    ),
    "ramp": (
        "a steady tenant within its share, and one that asks ever more",
        600,
        (Stream("alice", 0.5), Stream("bob", 0.2, to_per_second=2.0)),
    ),
    "eight": (
        "eight tenants, all over their share",
        360,
        tuple(Stream(f"tenant-{k}", 0.4 if k < 4 else 0.6) for k in range(1, 9)),
    ),
}


def named(name: str, seed: int = 1, seconds: float | None = None) -> Trace:
    """One of WORKLOADS, for as long as it lasts in the paper or for so many seconds."""
    _, lasts, streams = WORKLOADS[name]
    return synthesise(name, streams, seconds or lasts, seed)
