"""Few new calls at each turn of the event loop, in the order in which they came.

Between two turns the loop looks at its sockets. So what engines have begun to answer is passed on
before the rest of a burst is read, admitted and sent: without this, whoever was first of 64 that
came in one instant would wait for the work of the other 63.
"""

from __future__ import annotations

import asyncio
from collections import deque

A_TURN = 8


class Turns:
    """Belongs to one event loop."""

    def __init__(self, a_turn: int = A_TURN) -> None:
        self._a_turn = a_turn
        self._left = a_turn
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Wait until it is the caller's turn: at once, but in a burst."""
        loop = asyncio.get_running_loop()
        if self._left == self._a_turn:
            loop.call_soon(self._next)
        if self._left:
            self._left -= 1
            return
        mine = loop.create_future()
        self._waiting.append(mine)
        await mine

    def _next(self) -> None:
        self._left = self._a_turn
        while self._left and self._waiting:
            first = self._waiting.popleft()
            if not first.done():  # else its caller has left
                first.set_result(None)
                self._left -= 1
        if self._left < self._a_turn:
            asyncio.get_running_loop().call_soon(self._next)
