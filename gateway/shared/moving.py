"""Who waits for a place, and asks anew where the mode changes under it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from gateway.admission import Plan
from gateway.governor import Place
from scheduling.shared.link import StateUnavailable


class Moving:
    def __init__(self) -> None:
        self._waiting: set[asyncio.Timeout] = set()

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
