"""An engine's answer on its way to the caller, metered as it passes.

1. Nothing is sent before there is something to send: until then a failure is still an HTTP error.
2. After that a stream that breaks ends with an error event, never with a silent `[DONE]`.
3. `close` runs before the caller gets the last byte.
4. The pool's total time runs from the moment that an engine is asked, another one's time included,
   to the last byte. It bounds a caller that does not read, too: its slot is not its to keep.
5. What an engine says after `[DONE]` is not passed on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from gateway.dialects import DIALECTS
from gateway.errors import ApiError, Outcome
from gateway.exchange import Exchange
from gateway.run import Run
from gateway.upstream.client import Answer
from gateway.upstream.engines import (
    EngineFailed,
    Engines,
    TransportError,
    failure,
    told_refusal,
)
from gateway.wire.headers import Headers, first, ratelimit_headers, to_caller
from gateway.wire.meter import Meter
from gateway.wire.request import ParsedCall
from gateway.wire.usage import Report, finish_reason

MAX_ANSWER_BYTES = 64 * 2**20  # of a whole answer, which is held until it is complete
CHARGE_EVERY_TOKENS = 32  # past the expectation
UNREAD_S = 0.1  # past the deadline: where the engine is late, its own timer speaks first


class Relay:
    """One answer. `close` settles and records; `charge` tells the scheduler of output so far."""

    def __init__(
        self,
        engines: Engines,
        exchange: Exchange,
        run: Run,
        call: ParsedCall,
        charge: Callable[[Run, int], None],
        close: Callable[[Run], None],
    ) -> None:
        self._engines = engines
        self._exchange = exchange
        self._run = run
        self._call = call
        self._charge = charge
        self._close = close
        assert run.plan is not None
        self._pool = run.plan.pool
        self._charge_from = run.plan.estimate.output_tokens + CHARGE_EVERY_TOKENS
        self._deadline = run.deadline

    async def relay(self, answer: Answer) -> None:
        """Raises:
        ApiError: the answer failed before any of it was sent.
        """
        self._run.answering = True
        kind = content_type(answer)
        self._exchange.expect_read_by(self._deadline + UNREAD_S)
        try:
            if is_compressed(answer):
                said = "The engine compressed its answer, unasked."
                raise EngineFailed(Outcome.ENGINE_ERROR, said)
            if self._call.stream and kind.startswith(b"text/event-stream"):
                await self._stream(answer)
            else:
                await self._whole(answer)
        except EngineFailed as error:
            self._engines.let_down(self._run, error)
            raise

    async def _whole(self, answer: Answer) -> None:
        parts: list[bytes] = []
        size = 0
        try:
            async for part in self._pieces(answer):
                parts.append(part)
                size += len(part)
                if size > MAX_ANSWER_BYTES:
                    limit = f"more than {MAX_ANSWER_BYTES} bytes"
                    raise ApiError(Outcome.ENGINE_ERROR, f"The engine's answer has {limit}.")
        except TransportError as error:
            raise failure(error, self._run) from error
        body = b"".join(parts)
        run = self._run
        report = self._call.route.report(body, DIALECTS[self._pool.engine])
        if (refused := refusal_in(report, answer)) is not None:
            raise refused
        self._engines.accepted(run)
        run.usage, run.usage_is_exact = report.usage, report.exact
        run.finish = finish_reason(report.finish_reasons)
        self._close(run)
        await self._exchange.respond(200, self._headers(answer), body)

    async def _stream(self, answer: Answer) -> None:
        run, call = self._run, self._call
        assert call.route.meter is not None
        meter = call.route.meter(
            DIALECTS[self._pool.engine],
            asked_usage=call.include_usage,
            asked_running=call.running_usage,
            expected=call.choices,
            prompts=call.prompts,
        )
        try:
            broke = await self._pass_on(answer, meter)
            ending = meter.finish()
            if broke is None and not ending.complete:
                broke = EngineFailed(Outcome.ENGINE_ERROR, "The engine broke off its answer.")
        finally:
            run.note_stream(meter)
        if broke is None:
            self._close(run)
            await self._finish(answer, ending.rest)
        elif self._exchange.started:
            run.end(broke.outcome)
            self._close(run)
            # An error of its own was passed on.
            last = b"" if meter.error else call.route.voice.event(broke)
            await self._exchange.finish(ending.rest + last)
        else:
            try:
                raise broke
            finally:
                del broke  # else it and this frame hold each other until the collector comes

    async def _pass_on(self, answer: Answer, meter: Meter) -> ApiError | None:
        """Until the engine's stream ends; returns what broke it, if anything did."""
        run, exchange = self._run, self._exchange
        charge_at = self._charge_from
        try:
            async for chunk in self._pieces(answer, run.first_by):
                shown = meter.feed(chunk)
                if run.first_at is None and meter.first_content_seen:
                    run.first_at = time.monotonic()
                    run.begun()
                if meter.error is not None and not meter.tokens and not exchange.started:
                    return told_refusal(meter.error)
                if meter.done and meter.error is None:
                    run.note_stream(meter)
                    self._close(run)
                if not shown:
                    continue
                if not exchange.started:
                    await self._begin(answer)
                await exchange.write(shown)
                if meter.tokens >= charge_at:
                    charge_at = meter.tokens + CHARGE_EVERY_TOKENS
                    self._charge(run, meter.tokens)
        except TransportError as error:
            return None if meter.done else failure(error, run)
        except ApiError as error:
            return error
        return None

    async def _finish(self, answer: Answer, rest: bytes) -> None:
        if not self._exchange.started:
            await self._begin(answer)
        await self._exchange.finish(rest)

    async def _begin(self, answer: Answer) -> None:
        self._engines.accepted(self._run)
        await self._exchange.start(200, self._headers(answer))

    def _pieces(self, answer: Answer, first_by: float | None = None) -> AsyncIterator[bytes]:
        first_s = None
        if first_by is not None:
            first_s = max(0.0, first_by - asyncio.get_running_loop().time())
        return self._engines.client.iterate(
            answer, self._pool.timeouts.idle, self._deadline, first_s
        )

    def _headers(self, answer: Answer) -> Headers:
        return [*to_caller(answer.headers), *own_headers(self._run)]


def content_type(answer: Answer) -> bytes:
    return first(answer.headers, b"content-type").lower()


def refusal_in(report: Report, answer: Answer) -> ApiError | None:
    """What an engine, or a proxy before it, says under a 200 in the place of an answer: a page, a
    stream that nobody asked for, nothing at all, an error."""
    if not report.readable:
        sent = content_type(answer).partition(b";")[0].decode("latin-1") or "of no type"
        said = f"The engine's answer is not JSON ({sent})."
        return EngineFailed(Outcome.ENGINE_ERROR, said)
    if report.is_refusal:
        assert report.error is not None
        return told_refusal(report.error)
    return None


def is_compressed(answer: Answer) -> bool:
    """It could not be metered, and its caller would not be told how to read it."""
    return first(answer.headers, b"content-encoding").lower() not in (b"", b"identity")


def own_headers(run: Run) -> Headers:
    """What every answer of the gateway carries, as far as it is known."""
    request_id = run.shown_id.encode()
    found = [(name, request_id) for name in run.voice.ids]
    if run.lane:
        found.append((b"x-fairlane-lane", run.lane.encode()))
    if run.place is not None:
        found.append((b"x-fairlane-queue-ms", b"%d" % round(run.place.queue_s * 1000)))
    found += ratelimit_headers(run.rates)
    return found
