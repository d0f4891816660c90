"""The load of every endpoint, read again and again; and with `capacity: auto` what it can take.

1. An endpoint of an `auto` pool is read every `AUTO_S`, or as often as its dialect bears, others
   every `IDLE_S` for the console. One that tells nothing is asked every `SILENT_S`. Readings are
   jittered.
2. What is known of an endpoint that has stopped telling is shown no more, and nothing is learnt
   from it; what was learnt stays (scheduling.core.learning).
3. A changed policy keeps what was learnt, as long as it says `auto` of that endpoint.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from gateway.dialects import DIALECTS, Metrics
from gateway.policy import Learnt
from gateway.upstream import load
from gateway.upstream.client import EngineClient
from gateway.upstream.facts import read_short
from gateway.upstream.load import Load
from gateway.wire.headers import Headers
from scheduling.core.learning import Held, Learner, Reading
from tenants.core.snapshot import PolicySnapshot, PoolPolicy

AUTO_S, IDLE_S, SILENT_S = 0.5, 5.0, 15.0
JITTER = 0.2
PATIENCE_S = 2.0
MOST_BYTES = 8 * 2**20

log = logging.getLogger(__name__)

Key = tuple[str, str]  # pool, endpoint URL


class Places(Protocol):
    """What is asked of the scheduler (scheduling.seam.Scheduler)."""

    def held(self, pool: str, endpoint: str) -> Held | None: ...
    def set_capacity(self, pool: str, endpoint: str, max_running: int, max_load: float) -> None: ...


class LoadWatch:
    def __init__(
        self, client: EngineClient, key_of: Callable[[PoolPolicy], Headers], places: Places
    ) -> None:
        self._client = client
        self._key_of = key_of
        self._places = places
        self._watched: dict[Key, _Watched] = {}

    def configure(self, snapshot: PolicySnapshot) -> None:
        """Watch exactly the policy's endpoints; to be called before the scheduler takes the
        policy, which needs `learnt`."""
        wanted = {(p.model, e.url): p for p in snapshot.pools.values() for e in p.endpoints}
        for key in self._watched.keys() - wanted.keys():
            self._watched.pop(key).stop()
        for key, pool in wanted.items():
            names = DIALECTS[pool.engine].metrics
            watched = self._watched.get(key)
            if watched is None or watched.names != names:
                if watched is not None:
                    watched.stop()
                watched = self._watched[key] = _Watched(key, names, pool)
            watched.configure(pool)
            if watched.task is None and names:
                watched.task = asyncio.create_task(self._watch(watched), name=f"load {key[1]}")

    @property
    def learnt(self) -> Learnt:
        found = ((key, watched.learner) for key, watched in self._watched.items())
        return {key: (of.max_running, of.max_load) for key, of in found if of is not None}

    def refused(self, key: Key) -> None:
        """The endpoint answered a request that it is full. Of one that tells no load it counts for
        nothing: without readings the limit could never grow again."""
        watched = self._watched.get(key)
        held = self._places.held(*key)
        if watched is None or watched.learner is None or watched.now is None or held is None:
            return
        if watched.learner.refused(held):
            self._apply(watched)

    def live(self, key: Key) -> dict[str, Any]:
        """For the live state; the shape is in docs/architecture.md."""
        watched = self._watched.get(key)
        return {} if watched is None else watched.live()

    async def aclose(self) -> None:
        tasks = [w.task for w in self._watched.values() if w.task is not None]
        for watched in self._watched.values():
            watched.stop()
        self._watched.clear()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, watched: _Watched) -> None:
        while True:
            try:
                watched.note(await self._read(watched))
                held = self._places.held(*watched.key)
                if held is not None and watched.learn(held):
                    self._apply(watched)
            except Exception:  # whatever it is, the watch goes on
                log.exception("reading the load of %s failed", watched.key[1])
            await asyncio.sleep(watched.pause_s * random.uniform(1 - JITTER, 1 + JITTER))

    async def _read(self, watched: _Watched) -> Load | None:
        url = f"{watched.key[1].removesuffix('/v1')}/metrics"
        headers = self._key_of(watched.pool)
        try:
            answer = await self._client.send(
                "GET", url, headers, b"", connect_s=PATIENCE_S, first_byte_s=PATIENCE_S
            )
            text = await read_short(answer, PATIENCE_S, MOST_BYTES)
        except httpx.TransportError:
            return None
        if answer.status != 200:
            return None
        return load.read(text.decode("utf-8", "replace"), watched.names)

    def _apply(self, watched: _Watched) -> None:
        learner = watched.learner
        assert learner is not None
        self._places.set_capacity(*watched.key, learner.max_running, learner.max_load)


@dataclass(slots=True, eq=False)
class _Watched:
    key: Key
    names: Metrics
    pool: PoolPolicy
    learner: Learner | None = None
    now: Load | None = None
    hit_rate: float | None = None
    task: asyncio.Task[None] | None = None

    def configure(self, pool: PoolPolicy) -> None:
        self.pool = pool
        capacity = pool.capacity
        if not capacity.auto:
            self.learner = None
        elif self.learner is None:
            self.learner = Learner(capacity.max_running, float(capacity.max_running_tokens))

    def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()

    @property
    def pause_s(self) -> float:
        if self.now is None:
            return SILENT_S if self.learner is None else IDLE_S
        often = AUTO_S if self.learner is not None else IDLE_S
        return max(often, DIALECTS[self.pool.engine].quiet_s)

    def note(self, told: Load | None) -> None:
        rate = told.found_since(self.now) if told is not None else None
        if rate is not None or told is None:
            self.hit_rate = rate
        self.now = told

    def learn(self, held: Held) -> bool:
        """Whether the limits changed."""
        if self.learner is None:
            return False
        if self.now is None:
            self.learner.forget()
            return False
        return self.learner.observe(
            Reading(self.now.running, self.now.waiting, self.now.memory), held
        )

    def live(self) -> dict[str, Any]:
        said = self.now
        found: dict[str, Any] = {} if self.learner is None else {"auto": True}
        if said is None:
            return found
        engine = {
            "running": said.running,
            "waiting": said.waiting,
            "memory": said.memory,
            "preemptions": said.preemptions,
            "prefix_hit_rate": self.hit_rate,
        }
        return {**found, "engine": {k: v for k, v in engine.items() if v is not None}}
