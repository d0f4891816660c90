"""How much one endpoint takes at once, learnt from what its engine tells (`capacity: auto`).

The queue should stand in the gateway, where policy rules it, and the engine's batch should still be
full. So the engine's own queue is held at about one request: the one that is there when a place in
the batch becomes free.

1. Limits change by the median of `READINGS` readings taken under the present limits: a burst that
   waits for one step moves nothing, nor does a single odd reading.
2. Nothing waits in the engine, its memory has room, and the endpoint was full by its limits while
   requests waited here: the limit that held them back (requests, or load) grows, by a quarter until
   something has waited in the engine for the first time, by a sixteenth from then on.
3. More than `STANDING` wait there: the limits shrink by as many as are too many, at most by half.
   Where the engine's memory is full it is the load that shrinks, else the number of requests.
   An engine that several gateways fill is left by each in proportion to what it holds there.
4. Without readings the last limits stay. They never pass LEAST and MOST.

Additive increase, multiplicative decrease (Chiu and Jain, 1989), but that the engine tells how many
are too many, so that nothing has to be found out by halving.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

READINGS = 3
STANDING = 2  # requests that may wait in the engine
LEAST, MOST = 1, 8192  # requests
MOST_LOAD = 1e9
MEMORY_LOW, MEMORY_FULL = 0.90, 0.97  # parts of the engine's memory in use
FAST, SLOW = 1 / 4, 1 / 16


@dataclass(frozen=True, slots=True)
class Reading:
    """What an engine holds, from all who ask it. `memory`: the part of its KV cache in use; None
    where it does not tell."""

    running: float
    waiting: float
    memory: float | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """What this gateway has on the endpoint; `wanted`: more waits for it here."""

    running: int
    load: float
    wanted: bool


class Learner:
    def __init__(self, max_running: int, max_load: float) -> None:
        self.max_running = max_running
        self.max_load = max_load
        self._has_waited = False  # something, in the engine
        self._told_full = False  # since the last reading
        self._seen: list[tuple[Reading, Held]] = []

    def forget(self) -> None:
        """There was no reading: what was seen before is too old to decide on."""
        self._seen.clear()

    def refused(self, held: Held) -> bool:
        """The engine said that it is full, to a request that was within the limits; whether they
        changed. Of several that it refused since the last reading one counts."""
        if self._told_full:
            return False
        self._has_waited = self._told_full = True
        return self._set(min(self.max_running, held.running - 1), self.max_load)

    def observe(self, reading: Reading, held: Held) -> bool:
        """Whether the limits changed."""
        self._told_full = False
        self._seen.append((reading, held))
        if len(self._seen) < READINGS:
            return False
        seen = self._seen[-READINGS:]
        waiting = median(r.waiting for r, _ in seen)
        memory = median(r.memory or 0.0 for r, _ in seen)
        wanted = all(held.wanted and self._is_full(held) for _, held in seen)
        if waiting >= 1:
            self._has_waited = True
        if waiting > STANDING and held.running:
            return self._shrink(waiting, memory)
        if wanted and waiting < 1 and memory < MEMORY_LOW:
            return self._grow(held)
        del self._seen[:-READINGS]
        return False

    def _is_full(self, held: Held) -> bool:
        """One request more like those that run is past a limit."""
        return held.running >= self.max_running or (
            held.running > 0 and held.load * (1 + 1 / held.running) > self.max_load
        )

    def _grow(self, held: Held) -> bool:
        part = SLOW if self._has_waited else FAST
        if held.running >= self.max_running:
            return self._set(self.max_running + max(1, int(self.max_running * part)), self.max_load)
        return self._set(self.max_running, self.max_load * (1 + part))

    def _shrink(self, waiting: float, memory: float) -> bool:
        """As many less as wait beyond the one that should; this gateway's part of them."""
        reading, held = self._seen[-1]
        there = max(1.0, reading.running + waiting, held.running)
        too_many = (waiting - 1) * held.running / there
        part = min(0.5, too_many / max(1, held.running))
        if memory >= MEMORY_FULL:
            load = min(self.max_load, held.load) * (1 - part)
            return self._set(self.max_running, max(load, self.max_load / 2))
        running = min(self.max_running, held.running) * (1 - part)
        return self._set(max(round(running), self.max_running // 2), self.max_load)

    def _set(self, max_running: int, max_load: float) -> bool:
        """Readings under other limits say nothing of these."""
        before = self.max_running, self.max_load
        self.max_running = max(LEAST, min(MOST, max_running))
        self.max_load = max(1.0, min(MOST_LOAD, max_load))
        self._seen.clear()
        return before != (self.max_running, self.max_load)
