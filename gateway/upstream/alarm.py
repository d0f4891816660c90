"""A deadline that is moved often and seldom reached.

1. Moving it later, or lifting it, costs one assignment: the loop's timer stays armed and looks
   again when it fires. Only a move to before the armed timer makes a new timer.
2. It rings once per `set`, and never before its time.
3. Stopped, it is over for good and holds nobody: whoever holds an alarm that rings itself is freed
   as it is let go of, and need not wait for the collector.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf


def _nobody() -> None: ...


class Alarm:
    __slots__ = ("_armed_for", "_at", "_handle", "_loop", "_ring")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._at = inf
        self._armed_for = inf
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at: float) -> None:
        """Ring at `at`, on the loop's clock, instead of whenever it was to ring before."""
        self._at = at
        if at < self._armed_for:
            self._arm(at)

    def lift(self) -> None:
        """Do not ring until set again."""
        self._at = inf

    def stop(self) -> None:
        """Never ring again, and let go of the timer and of whom it would ring."""
        self._at = self._armed_for = inf
        self._ring = _nobody
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._armed_for = at
        self._handle = self._loop.call_at(at, self._look)

    def _look(self) -> None:
        self._handle = None
        self._armed_for = inf
        if self._at == inf:
            return
        if self._loop.time() < self._at:
            self._arm(self._at)
            return
        self._at = inf
        self._ring()
