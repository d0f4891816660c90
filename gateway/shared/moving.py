"""Who waits for a place, and asks anew where the mode changes under it.

While a gateway comes back nobody is let in: the server must know of all that runs before it gives
a place away. That takes a moment; where it takes longer, calls go on as before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from gateway.admission import Plan
from gateway.governor import Place
from scheduling.shared.link import StateUnavailable


class Moving:
    def __init__(self) -> None:
        self._waiting: set[asyncio.Timeout] = set()
        self._open = asyncio.Event()
        self._open.set()

    async def passed(self) -> None:
        await self._open.wait()

    @contextmanager
    def held(self, most_s: float) -> Iterator[None]:
        """Nobody passes, and who waits comes to wait here."""
        self._open.clear()
        self.move()
        timer = asyncio.get_running_loop().call_later(most_s, self._open.set)
        try:
            yield
        finally:
            timer.cancel()
            self._open.set()

    async def wait(self, way: Callable[[Plan], Awaitable[Place]], plan: Plan) -> Place:
        """
        Raises:
            StateUnavailable: also where the mode has changed meanwhile.
        """
        moved = asyncio.timeout(None)
        try:
            async with moved:
                self._waiting.add(moved)
                return await way(plan)
        except TimeoutError:
            if moved.expired():
                raise StateUnavailable("moved") from None
            raise
        finally:
            self._waiting.discard(moved)

    def move(self) -> None:
        now = asyncio.get_running_loop().time()
        for each in self._waiting:
            each.reschedule(now)
        self._waiting.clear()
