"""Drives the engine model through a script of arrivals and aborts in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from scheduling.simulate.engine import Engine
from scheduling.simulate.profile import Profile, StepTime
from scheduling.simulate.sequence import Request, Sequence

# Powers of two make every sum of step times exact, so times can be compared with ==.
EXACT = StepTime(
    base_ms=15.625,
    prefill_token_us=15.2587890625,
    sequence_us=976.5625,
    kv_token_ns=59.604644775390625,
)


def profile(**changes: object) -> Profile:
    values: dict[str, object] = {
        "name": "test",
        "max_num_seqs": 4,
        "max_num_batched_tokens": 32,
        "num_gpu_blocks": 24,
        "block_size": 4,
        "max_model_len": 64,
        "step": EXACT,
    }
    return Profile(**(values | changes))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Arrive:
    at: float
    request: Request

    def apply(self, engine: Engine) -> list[Sequence]:
        return engine.add(self.request)


@dataclass(frozen=True)
class Abort:
    at: float
    request_id: str

    def apply(self, engine: Engine) -> list[Sequence]:
        engine.abort(self.request_id, self.at)
        return []


@dataclass
class Story:
    """What happened: every sequence, each step's victims with those that ran before it, and how
    many times the model was stepped."""

    sequences: list[Sequence] = field(default_factory=list)
    preempted: list[tuple[list[Sequence], set[Sequence]]] = field(default_factory=list)
    calls: int = 0

    def ends(self) -> list[tuple[object, ...]]:
        return [
            (s.request.id, s.index, s.state, s.generated, s.cached_tokens, s.preemptions,
             s.scheduled_at, s.first_token_at, s.ended_at)
            for s in self.sequences
        ]  # fmt: skip


def drive(
    engine: Engine,
    script: list[Arrive | Abort],
    at_most: int = 1,
    check: Callable[[Engine], None] = lambda engine: None,
) -> Story:
    story, todo = Story(), sorted(script, key=lambda event: event.at)
    while todo or engine.step:
        upcoming = todo[0].at if todo else inf
        if engine.step and engine.step.end > upcoming:
            engine.cut(upcoming)
        ends = engine.step is not None and engine.step.end <= upcoming
        now = engine.end().at if ends else upcoming
        while todo and todo[0].at <= now:
            story.sequences += todo.pop(0).apply(engine)
        check(engine)
        if engine.step is None:
            running = {s for s in story.sequences if s.running}
            step = engine.begin(now, at_most)
            story.calls += step is not None
            if step and step.preempted:
                story.preempted.append((step.preempted, running))
            check(engine)
    return story
