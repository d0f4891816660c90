"""Which endpoints can be used: asked of each one now and then, and learnt from failed requests.

1. An endpoint is taken for healthy until it is known not to be; only changes are reported.
2. It leaves after `FAILURES` failed checks in a row, or at once when a request could not connect.
   It comes back by the first check that succeeds.
3. One that passes its checks and fails requests (`FAULTS` in a row) is left too, for `EJECT_S`,
   twice as long each time that it fails again at once, `EJECT_MOST_S` at most: it fails quickly, so
   that it would be the emptiest and get them all. The last endpoint of a pool is never left for
   that: the requests may be at fault.
4. Checks are jittered, so that endpoints and replicas do not fall into step; of an endpoint that
   failed they come soon, then ever later, up to the interval.
5. `/health` decides where an engine has it; elsewhere any answer of `/models` that is not a server
   error will do (an engine that asks for a key is alive).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping
from math import inf

import httpx

from gateway.upstream.client import EngineClient

log = logging.getLogger(__name__)

OnChange = Callable[[str, str, bool, str], None]
Key = tuple[str, str]  # pool, endpoint URL

FAILURES = 2
FAULTS = 5
FAILING = f"{FAULTS} requests in a row failed there"
EJECT_S, EJECT_MOST_S = 5.0, 60.0
FIRST_RETRY_S = 0.5
JITTER = 0.2


class EndpointProber:
    """Calls `on_change(pool, endpoint_url, healthy, reason)` on the event loop it runs on."""

    def __init__(
        self,
        on_change: OnChange,
        client: EngineClient,
        *,
        interval_s: float = 5.0,
        timeout_s: float = 3.0,
        eject_s: float = EJECT_S,
    ) -> None:
        self._on_change = on_change
        self._interval_s = interval_s
        self._eject_s = eject_s
        self._draining: frozenset[Key] = frozenset()
        self._check = _Check(client, timeout_s)
        self._watches: dict[Key, _Watch] = {}

    def configure(self, pools: Mapping[str, Iterable[str]], draining: Iterable[Key] = ()) -> None:
        """Watch exactly these; what is watched already keeps its state. `draining` ones are
        watched, and nothing is sent to them."""
        self._draining = frozenset(draining)
        wanted = {(pool, url) for pool, urls in pools.items() for url in urls}
        for key in self._watches.keys() - wanted:
            self._watches.pop(key).stop()
        for key in wanted - self._watches.keys():
            self._watches[key] = _Watch(
                key, self._check, self._interval_s, self._eject_s, self._on_change
            )

    def failed(self, pool: str, url: str, reason: str = "a request could not connect") -> None:
        """A request met a dead endpoint: out with it now, and look again soon."""
        watch = self._watches.get((pool, url))
        if watch is not None:
            watch.condemn(reason)

    def answered(self, pool: str, url: str) -> None:
        watch = self._watches.get((pool, url))
        if watch is not None:
            watch.faults = watch.ejections = 0

    def faulty(self, pool: str, url: str) -> None:
        """A request failed there, though the endpoint could be connected to."""
        watch = self._watches.get((pool, url))
        if watch is None:
            return
        watch.faults += 1
        if watch.faults >= FAULTS and any(
            other.is_healthy
            for key, other in self._watches.items()
            if key[0] == pool and other is not watch and key not in self._draining
        ):
            watch.eject()

    def is_healthy(self, pool: str, url: str) -> bool:
        watch = self._watches.get((pool, url))
        return watch is None or watch.is_healthy

    def fault(self, pool: str, url: str) -> str:
        """Why it takes no requests; or what it does to those that it takes, the last in service."""
        watch = self._watches.get((pool, url))
        if watch is None or (watch.is_healthy and watch.faults < FAULTS):
            return ""
        return FAILING if watch.is_healthy else watch.reason

    async def aclose(self) -> None:
        """Stop watching. The client stays open: it is its owner's."""
        tasks = [watch.stop() for watch in self._watches.values()]
        self._watches.clear()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Watch:
    def __init__(
        self,
        key: Key,
        check: _Check,
        interval_s: float,
        eject_s: float,
        on_change: OnChange,
    ) -> None:
        self.is_healthy = True
        self.reason = ""  # of what was found last
        self.faults = 0  # requests that failed in a row
        self.ejections = 0  # in a row, no request answered in between
        self._ejected_until = -inf
        self._eject_s = eject_s
        self._key = key
        self._check = check
        self._interval_s = interval_s
        self._on_change = on_change
        self._misses = 0
        self._soon = asyncio.Event()
        self._task = asyncio.create_task(self._watch(), name=f"probe {key[1]}")

    def stop(self) -> asyncio.Task[None]:
        self._task.cancel()
        return self._task

    def condemn(self, reason: str) -> None:
        self._misses = max(self._misses, FAILURES)
        self._turn(False, reason)
        self._soon.set()

    def eject(self) -> None:
        """Out for a while, whatever its checks say. When it is back it has one request to show."""
        if not self.is_healthy:
            return
        pause_s = min(EJECT_MOST_S, self._eject_s * 2.0 ** min(self.ejections, 16))
        self.ejections += 1
        self._ejected_until = asyncio.get_running_loop().time() + pause_s
        self.faults = FAULTS - 1
        self._turn(False, FAILING)

    async def _watch(self) -> None:
        while True:
            self._soon.clear()
            self._judge(await self._check.ailment(self._key[1]))
            await self._rest()

    def _judge(self, reason: str | None) -> None:
        if reason is None:
            self._misses = 0
            if asyncio.get_running_loop().time() < self._ejected_until:
                return
            self._turn(True, "its check succeeded")
            return
        self._misses += 1
        if self._misses >= FAILURES:
            self.reason = reason
            self._turn(False, reason)

    def _turn(self, healthy: bool, reason: str) -> None:
        if healthy != self.is_healthy:
            self.is_healthy, self.reason = healthy, reason
            try:
                self._on_change(*self._key, healthy, reason)
            except Exception:  # a listener's fault must not end the watch
                log.exception("on_change failed for %s", self._key[1])

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self._pause_s()):
                await self._soon.wait()
        except TimeoutError:
            return
        # Woken by a failed request. The engine may be restarting: not in the same instant.
        await asyncio.sleep(min(FIRST_RETRY_S, self._interval_s))

    def _pause_s(self) -> float:
        pause_s = self._interval_s
        if self._misses:
            pause_s = min(pause_s, FIRST_RETRY_S * 2.0 ** min(self._misses - 1, 16))
        return pause_s * random.uniform(1 - JITTER, 1 + JITTER)


class _Check:
    def __init__(self, client: EngineClient, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    async def ailment(self, url: str) -> str | None:
        """Why the endpoint cannot be used, or None."""
        try:
            async with asyncio.timeout(self._timeout_s):
                status = await self._status(f"{url.removesuffix('/v1')}/health")
                if 400 <= status < 500:
                    status = await self._status(f"{url}/models")
        except TimeoutError:
            return f"its check took longer than {self._timeout_s:g} s"
        except httpx.TransportError as error:
            return f"its check failed: {error}"
        except Exception as error:  # whatever it is: unusable, and the watch goes on
            return f"its check failed: {type(error).__name__}: {error}"
        return None if status < 500 else f"its check answered {status}"

    async def _status(self, url: str) -> int:
        limit_s = self._timeout_s
        answer = await self._client.send(
            "GET", url, [], b"", connect_s=limit_s, first_byte_s=limit_s
        )
        await answer.aclose()
        return answer.status
