"""Real time: steps follow the model's times, whatever the timers do."""

from __future__ import annotations

import asyncio

from scheduling.simulate.engine import Engine
from scheduling.simulate.profile import StepTime
from scheduling.simulate.sequence import Request, Sequence, State
from scheduling.simulate.server.live import MAX_LAG_S, Live
from tests.unit.engine.driving import Arrive, drive, profile

STEPS = profile(step=StepTime(base_ms=2), num_gpu_blocks=64)


class Clock:
    """Stands still unless told; each look may be late by `late_s` more than the one before."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.late_s = 0.0

    def __call__(self) -> float:
        self.seconds += self.late_s
        return self.seconds


class Watcher:
    def __init__(self) -> None:
        self.moves: list[int] = []
        self.ended = asyncio.Event()

    def moved(self, sequence: Sequence) -> None:
        self.moves.append(sequence.generated)
        if sequence.state is State.FINISHED:
            self.ended.set()

    def finish_reason(self, sequence: Sequence) -> str:
        return "stop"


async def run(late_s: float) -> tuple[Live, Sequence, Watcher]:
    clock, watcher = Clock(), Watcher()
    live = Live(Engine(STEPS), clock=clock)
    (sequence,) = live.submit(Request("a", 8, (20,)), watcher)
    clock.late_s = late_s
    async with asyncio.timeout(60):
        await watcher.ended.wait()
    return live, sequence, watcher


async def test_late_timers_do_not_add_up():
    exact = drive(Engine(STEPS), [Arrive(0.0, Request("a", 8, (20,)))]).sequences[0]
    _, sequence, watcher = await run(late_s=0.0101)  # each look at the clock is five steps late
    lasted = sequence.ended_at - sequence.scheduled_at
    assert abs(lasted - (exact.ended_at - exact.scheduled_at)) < 1e-9
    assert watcher.moves == list(range(1, 21))


async def test_an_engine_that_is_hopelessly_late_gives_up_on_catching_up():
    _, sequence, watcher = await run(late_s=3 * MAX_LAG_S)
    assert sequence.ended_at - sequence.scheduled_at > MAX_LAG_S
    assert watcher.moves == list(range(1, 21))


async def test_it_is_idle_before_and_after():
    live, _, _ = await run(late_s=0.0101)
    assert live.idle
    assert Live(Engine(STEPS)).idle
