"""Calls to the functions, in the order in which they were made.

1. One batch is under way at a time, in one pipeline; what comes meanwhile makes up the next. So
   each call costs one round trip, a busy replica sends few large batches, and a request's end can
   never overtake its beginning.
2. Every function may be called twice with the same effect as once, so a batch whose connection
   broke is sent again as it is. What must not be lost waits for Redis as long as it takes; the
   rest fails with StateUnavailable once Redis has been out of reach for `patience_s`.
3. A server that does not know the library (restarted empty, another release) is given it.
4. A server that answers but takes no call at the moment (its memory is full, it follows another or
   lacks followers, it may not be asked) is out of reach like one that is silent. Only what a
   function itself refuses ends with its call.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import structlog
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as TooSlow

from scheduling.shared.ending import end
from scheduling.shared.library import Library
from scheduling.shared.trouble import in_words
from scheduling.shared.wire import Answer, decode

MOST = 256  # calls in a batch
PAUSE_S = (0.02, 0.5)  # before a batch is sent again: first, and at most
OUT_OF_REACH = (LostConnection, TooSlow, OSError)
NAMES_FUNCTION = " script: "  # "user_function:3: … script: settle_…, on @user_function:3."
OTHER_LAYOUT = "LAYOUT"  # as the error of state.lua begins

log = structlog.get_logger()


class StateUnavailable(Exception):
    """The shared state is out of reach; whether the call was carried out is not known."""


class Call(msgspec.Struct):
    function: str
    keys: tuple[str, ...]
    payload: Callable[[], bytes]  # made when it is sent: who calls may have changed
    then: Callable[[Answer], None]
    failed: Callable[[Exception], None] | None  # None: it is sent until it arrives


class Link:
    def __init__(self, redis: Redis, library: Library, patience_s: float) -> None:
        self._redis = redis
        self._library = library
        self._patience_s = patience_s
        self._calls: deque[Call] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._sent_all: Callable[[], None] = lambda: None
        self.down_since: float | None = None
        self.trouble = ""  # what was last in the way
        self.refused = ""  # why no call is answered though the server does: its records are others'

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="calls to redis")

    async def close(self, patience_s: float = 1.0) -> None:
        """Send what is left, as long as Redis takes it."""
        sent = asyncio.Event()
        self._sent_all = sent.set
        if self._calls and self.down_since is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(sent.wait(), patience_s)
        if self._task is not None:
            await end([self._task])

    @property
    def pending(self) -> int:
        """Calls that have not been answered."""
        return len(self._calls)

    def send(self, call: Call) -> None:
        self._calls.append(call)
        self._wake.set()

    async def _run(self) -> None:
        pause_s = PAUSE_S[0]
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._calls:
                batch = [self._calls[i] for i in range(min(MOST, len(self._calls)))]
                try:
                    answers = await self._ask(batch)
                except Exception as error:
                    if not isinstance(error, (*OUT_OF_REACH, RedisError)):  # it goes on
                        log.exception("calls to redis failed")
                    self._out_of_reach(error)
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, PAUSE_S[1])
                    continue
                self.down_since, pause_s = None, PAUSE_S[0]
                for call, answer in zip(batch, answers, strict=True):
                    self._calls.popleft()
                    self._tell(call, answer)
            self._sent_all()

    async def _ask(self, batch: list[Call]) -> list[Any]:
        answers = await self._pipeline(batch)
        unknown = [i for i, answer in enumerate(answers) if is_unknown(answer)]
        if unknown:
            await self._library.load(self._redis)
            again = await self._pipeline([batch[i] for i in unknown])
            for i, answer in zip(unknown, again, strict=True):
                answers[i] = answer
        for answer in answers:
            if isinstance(answer, Exception) and not is_of_function(answer):
                raise answer
        return answers

    async def _pipeline(self, batch: list[Call]) -> list[Any]:
        pipeline = self._redis.pipeline(transaction=False)
        for call in batch:
            name = self._library.function(call.function)
            pipeline.execute_command("FCALL", name, len(call.keys), *call.keys, call.payload())
        try:
            answers: list[Any] = await pipeline.execute(raise_on_error=False)
        except RuntimeError as error:  # uvloop's, of a write to a connection that has just ended
            raise LostConnection(str(error)) from error
        return answers

    def _tell(self, call: Call, answer: Any) -> None:
        if isinstance(answer, Exception):
            self._refused(call, str(answer))
            if call.failed is not None:
                call.failed(StateUnavailable(str(answer)))
            return
        try:
            call.then(
                [*decode(answer[0]), decode(answer[1])]
                if isinstance(answer, list)
                else decode(answer)
            )
        except Exception:
            log.exception("an answer of the shared scheduler was not taken", call=call.function)

    def _refused(self, call: Call, error: str) -> None:
        if OTHER_LAYOUT not in error:
            log.error("shared scheduler refused a call", call=call.function, error=error)
        elif not self.refused:
            self.refused = "is kept by another release, whose records have another layout"
            log.error("another release's records are on this server", error=error)

    def _out_of_reach(self, error: Exception) -> None:
        now, why = time.monotonic(), in_words(error)
        self.trouble = f"is out of reach: {why}"
        if self.down_since is None:
            self.down_since = now
            log.warning("shared scheduler out of reach", error=why)
        if now - self.down_since < self._patience_s:
            return
        kept = deque(call for call in self._calls if call.failed is None)
        failed, self._calls = [c for c in self._calls if c.failed is not None], kept
        for call in failed:
            assert call.failed is not None
            call.failed(StateUnavailable(why))


def is_of_function(error: Exception) -> bool:
    """Whether a function failed, and not the server that was to run it: Redis and Valkey add which
    function it was, where one that was run may not do what it does as well."""
    return isinstance(error, ResponseError) and NAMES_FUNCTION in str(error)


def is_unknown(answer: object) -> bool:
    return isinstance(answer, ResponseError) and "Function not found" in str(answer)
