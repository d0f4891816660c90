"""Runs the engine model in real time on an asyncio loop.

1. One timer at a time, set for the end of the step that runs; none while the engine is idle.
2. Steps follow each other at the times the model gives, not at those the timer fires at, so that
   late timers don't add up. Only past MAX_LAG_S does the engine give up on catching up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from scheduling.simulate.engine import Engine
from scheduling.simulate.sequence import Request, Sequence

MAX_LAG_S = 1.0
EARLY_S = 0.0005  # uvloop's timers count whole milliseconds and may fire that much early
BURST = 32  # steps run at once when behind, before other tasks have their turn


class Sink(Protocol):
    def moved(self, sequence: Sequence) -> None:
        """A sequence has one token more, or has ended."""

    def finish_reason(self, sequence: Sequence) -> str:
        """Why one that has ended did."""


class Live:
    """`speed` 2 means twice as fast as the profile says. Model time is seconds since the start."""

    def __init__(
        self,
        engine: Engine,
        speed: float = 1.0,
        on_finish: Callable[[Sequence, str], None] = lambda sequence, reason: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine = engine
        self.speed = speed
        self._on_finish = on_finish
        self._sinks: dict[str, Sink] = {}
        self._clock = clock
        self._origin = clock()
        self._timer: asyncio.Handle | None = None

    @property
    def idle(self) -> bool:
        """Nothing runs and no timer is set."""
        return self._timer is None and self.engine.step is None

    def now(self) -> float:
        return (self._clock() - self._origin) * self.speed

    def submit(self, request: Request, sink: Sink) -> list[Sequence]:
        """Raises ValueError where the engine can never run it."""
        sequences = self.engine.add(request)
        self._sinks[request.id] = sink
        if self._timer is None:
            # Not at once: what else has arrived in this turn of the loop joins the same step.
            self._timer = asyncio.get_running_loop().call_soon(self._start)
        return sequences

    def abort(self, request_id: str) -> None:
        if self._sinks.pop(request_id, None) is not None:
            self.engine.abort(request_id, self.now())

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _start(self) -> None:
        self._timer = None
        if self.engine.begin(self.now()) is not None:
            self._wait()

    def _wait(self) -> None:
        assert self.engine.step is not None
        delay = max(0.0, self.engine.step.end - self.now()) / self.speed
        self._timer = asyncio.get_running_loop().call_later(delay, self._due)

    def _due(self) -> None:
        self._timer = None
        now = self.now()
        for _ in range(BURST):
            if self.engine.step is None:
                return  # idle
            if self.engine.step.end > now + EARLY_S * self.speed:
                break
            self._end(now)
        self._wait()

    def _end(self, now: float) -> None:
        outcome = self.engine.end()
        for sequence in self.engine.decoding:
            self._sinks[sequence.request.id].moved(sequence)
        for sequence in outcome.finished:
            self._finished(sequence)
        for sequence in outcome.finished:
            if not self.engine.sequences(sequence.request.id):
                self._sinks.pop(sequence.request.id, None)
        self.engine.begin(max(outcome.at, now - MAX_LAG_S * self.speed))

    def _finished(self, sequence: Sequence) -> None:
        sink = self._sinks[sequence.request.id]
        sink.moved(sequence)
        self._on_finish(sequence, sink.finish_reason(sequence))
