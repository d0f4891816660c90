"""How fast a pool serves while requests wait for it: the base of every predicted wait.

Only time with a backlog counts: an idle pool is slow because nobody asks, not because it can't.
Both sums fade with the same half-life, so their quotient follows changes and needs no reset.
"""

from __future__ import annotations

from math import exp

MEMORY_S = 60.0  # seconds with a backlog after which a measurement weighs 1/e
ENOUGH_S = 1.0  # less than this has been seen: the rate is not known


class Meter:
    __slots__ = ("_busy", "_seen", "_units", "_until")

    def __init__(self, now: float) -> None:
        self._until = now
        self._busy = False
        self._seen = 0.0
        self._units = 0.0

    def advance(self, now: float, busy: bool) -> None:
        """Time has come to `now`; `busy` says whether a backlog stands from here on."""
        passed = max(0.0, now - self._until)  # a clock that steps back adds nothing
        if self._busy and passed:
            kept = exp(-passed / MEMORY_S)
            self._seen = self._seen * kept + MEMORY_S * (1 - kept)
            self._units *= kept
        self._until = now
        self._busy = busy

    def served(self, units: float) -> None:
        if self._busy:
            self._units += units

    @property
    def units_per_second(self) -> float | None:
        if self._seen < ENOUGH_S or self._units <= 0:
            return None
        return self._units / self._seen
