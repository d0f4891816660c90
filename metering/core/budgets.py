"""One burst bucket and one sustained counter: what is used, what is held, what still fits.

1. One rule of room, for every kind and level (`room`): a budget that is exactly used up refuses;
   otherwise a request fits while used + held + its need stays within the limit.
2. A need larger than the whole limit counts as the limit, so that a large request can run when
   the budget is untouched (cases R07).
3. A request alone on a sustained budget is let in on its expected cost; its worst case is bounded
   by what is left. So at most one request can overrun it, and callers that name no `max_tokens`
   are not refused while budget is left. Beside others the worst case must fit.
4. A burst bucket is at every moment what it would be had each settled request taken its actual
   cost at once when it was let in; a cost above the hold is charged when it becomes known.
   So a refund can't give back what refilling had already given back.
5. Limits come in with every call: a new policy holds at once and what is used stays.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime

from metering.core.windows import Window, window_at
from tenants.core.snapshot import BudgetPolicy

EXACT = 1e-9  # part of a limit that is rounding, not use
MOST_LOWS = 256


def room(limit: float, taken: float, need: float) -> bool:
    slack = limit * EXACT
    return taken < limit - slack and taken + min(need, limit) <= limit + slack


class BurstBucket:
    """`used` falls by the refill rate to zero; `limit − used` is what may still be taken."""

    __slots__ = ("_lows", "_next", "holds", "refill", "reserved", "touched", "used")

    def __init__(self, now: float) -> None:
        self.used = 0.0
        self.reserved = 0.0  # the part of `used` that is estimates of running requests
        self.holds = 0
        self.touched = now
        self.refill = 0.0
        # How low `used` has been before the hold numbered first, and after all before it: numbers
        # and values both rise, so the first entry past a hold's number is the least since then.
        self._lows: list[tuple[int, float]] = []
        self._next = 0

    def drain(self, refill: float, now: float) -> None:
        self.refill = refill
        if now > self.touched:
            self.used = max(0.0, self.used - refill * (now - self.touched))
            self.touched = now

    def idle(self, now: float) -> bool:
        if self.holds:
            return False
        self.drain(self.refill, now)
        return not self.used

    def fits(self, policy: BudgetPolicy, cost: float) -> bool:
        return room(policy.cost, self.used, cost)

    def wait_s(self, policy: BudgetPolicy, cost: float) -> float:
        """Seconds until `cost` fits, if nothing else is taken meanwhile."""
        over = self.used - policy.cost + max(min(cost, policy.cost), policy.cost * EXACT * 2)
        return over / policy.refill_per_second if policy.refill_per_second > 0 else float("inf")

    def take(self, cost: float) -> int:
        """Returns the hold's number, for `settle`."""
        self._note_low()
        number = self._next
        self._next += 1
        self.holds += 1
        self.used += cost
        self.reserved += cost
        return number

    def charge(self, more: float) -> None:
        """One of the holds turns out larger than it was. What of it is given back in the end is
        bounded like a refund of the hold: never too much."""
        self._note_low()
        self.used += more
        self.reserved += more

    def settle(self, number: int, held: float, actual: float) -> None:
        self.holds -= 1
        self.reserved = self.reserved - held if self.holds else 0.0
        if actual >= held:
            self._note_low()
            self.used += actual - held
        else:
            self._refund(number, held - actual)
        if not self.holds:
            self._lows.clear()

    def _note_low(self) -> None:
        lows = self._lows
        while lows and lows[-1][1] >= self.used:
            lows.pop()
        lows.append((self._next, self.used))
        if len(lows) > MOST_LOWS:  # fewer, and never too high
            lows[:] = [(lows[i + 1][0], lows[i][1]) for i in range(0, len(lows) - 1, 2)]

    def _refund(self, number: int, amount: float) -> None:
        lows = self._lows
        since = bisect_right(lows, (number, float("inf")))
        least = lows[since][1] if since < len(lows) else self.used
        back = min(amount, least, self.used)
        self.used -= back
        later = [(n, low - back) for n, low in lows[since:]]
        del lows[since:]
        while later and lows and lows[-1][1] >= later[0][1]:
            lows.pop()
        lows.extend(later)


class Counter:
    """One window of one sustained budget."""

    __slots__ = ("holds", "made", "reserved", "shape", "used", "window")

    def __init__(self, policy: BudgetPolicy, window: Window, now: float, used: float = 0.0) -> None:
        self.window = window
        self.shape = (policy.period, policy.timezone)
        self.made = now
        self.used = used
        self.reserved = 0.0
        self.holds = 0

    def need(self, policy: BudgetPolicy, cost: float, ceiling: float) -> float | None:
        """How much to hold for a request; None when it does not fit."""
        if room(policy.cost, self.used + self.reserved, ceiling):
            return min(ceiling, policy.cost)
        if not self.holds and room(policy.cost, self.used, cost):
            return policy.cost - self.used
        return None

    def only_held(self, policy: BudgetPolicy, cost: float) -> bool:
        """It would fit but for requests that are running now."""
        return self.holds > 0 and room(policy.cost, self.used, cost)

    def take(self, amount: float) -> None:
        self.reserved += amount
        self.holds += 1

    def charge(self, held: float, cost: float) -> float:
        """A hold turns out to be for no less than `cost`; returns what it is now."""
        if cost <= held:
            return held
        self.reserved += cost - held
        return cost

    def settle(self, held: float, actual: float) -> None:
        self.holds -= 1
        self.reserved = self.reserved - held if self.holds else 0.0
        self.used += actual

    def stale(self, now: float) -> bool:
        """It has really ended, by the clock that is never set back."""
        return now - self.made >= (self.window.end - self.window.start).total_seconds()


class SustainedAccount:
    """The two latest windows: a request counts in the one it arrived in, though it may be let in
    just after that has ended."""

    __slots__ = ("counters",)

    def __init__(self) -> None:
        self.counters: list[Counter] = []  # oldest first

    def counter(self, policy: BudgetPolicy, at: datetime, now: float) -> Counter:
        shape = (policy.period, policy.timezone)
        for counter in reversed(self.counters):
            if counter.window.start <= at < counter.window.end and counter.shape == shape:
                return counter
        return self._open(policy, at, now)

    def _open(self, policy: BudgetPolicy, at: datetime, now: float) -> Counter:
        assert policy.period is not None
        window = window_at(policy.period, policy.timezone, at)
        if self.counters and self.counters[-1].shape != (policy.period, policy.timezone):
            self._reshape(policy, window, at)
            return self.counters[0] if self.counters else self._add(policy, window, now)
        if self.counters and at < self.counters[0].window.start:
            if not self.counters[0].stale(now):  # the clock was set back: no fresh budget for it
                return self.counters[0]
            self.counters.clear()
        return self._add(policy, window, now)

    def _add(self, policy: BudgetPolicy, window: Window, now: float) -> Counter:
        counter = Counter(policy, window, now)
        self.counters.append(counter)
        self.counters.sort(key=lambda c: c.window.start)
        del self.counters[:-2]
        return counter

    def _reshape(self, policy: BudgetPolicy, window: Window, at: datetime) -> None:
        """Another period or zone: the running window becomes the new one, with all it counted."""
        running = next((c for c in reversed(self.counters) if at in c.window), None)
        self.counters = [running] if running else []
        if running:
            running.window = window
            running.shape = (policy.period, policy.timezone)

    def idle(self, at: datetime, now: float) -> bool:
        return all(not c.holds and at >= c.window.end and c.stale(now) for c in self.counters)
