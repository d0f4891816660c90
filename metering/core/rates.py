"""Requests and tokens a minute: a sliding window of 60 seconds in slots of one second.

1. What was added in any 60 seconds is never more than the window counts at their end: a slot
   leaves only when its last moment is 60 seconds old, so 61 slots are counted.
2. An amount is corrected in the slot it was taken in; once that has left, there is nothing to
   correct.
3. Memory is at most 61 slots, whatever the traffic.
4. Time never runs backwards here: an earlier `now` counts as the latest one seen.
"""

from __future__ import annotations

from math import floor

SPAN = 61  # seconds from a slot's first moment until it leaves


class SlidingWindow:
    __slots__ = ("_latest", "_slots", "total")

    def __init__(self) -> None:
        self.total = 0
        self._slots: dict[int, int] = {}  # second -> amount, oldest first
        self._latest = -SPAN

    def advance(self, now: float) -> int:
        """Let old slots leave; the current slot."""
        if now < self._latest + 1:
            return self._latest
        slot = floor(now)
        if slot > self._latest:
            self._latest = slot
            self._drop_until(slot - SPAN)
        return self._latest

    def _drop_until(self, last: int) -> None:
        slots = self._slots
        while slots and (oldest := next(iter(slots))) <= last:
            self.total -= slots.pop(oldest)

    def add(self, now: float, amount: int) -> int:
        """Returns the slot, for a later `correct`."""
        slot = self._latest if now < self._latest + 1 else self.advance(now)
        self._slots[slot] = self._slots.get(slot, 0) + amount
        self.total += amount
        return slot

    def correct(self, slot: int, change: int) -> None:
        if slot in self._slots:
            self._slots[slot] += change
            self.total += change

    def wait_s(self, now: float, most: int) -> float:
        """Seconds until no more than `most` is left in the window."""
        self.advance(now)
        left, wait = self.total, 0.0
        for slot, amount in self._slots.items():
            if left <= most:
                break
            left -= amount
            wait = slot + SPAN - now
        return max(0.0, wait)

    def reset_s(self, now: float) -> float:
        """Seconds until the window is empty; what was given back leaves nothing to wait for."""
        for slot in reversed(self._slots):
            if self._slots[slot]:
                return max(0.0, slot + SPAN - now)
        return 0.0
