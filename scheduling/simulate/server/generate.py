"""The routes that the engine's batch works for, streamed or not.

1. Whatever ends a call (its last token, the caller, a scripted fault), the engine has nothing of it
   left when this returns.
2. A caller that hangs up aborts its request at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from scheduling.simulate.server import http, messages, pooling, responses, wire
from scheduling.simulate.server.call import Call, Event
from scheduling.simulate.server.compose import Arrival, Composer
from scheduling.simulate.server.errors import ApiError, bad_request, busy
from scheduling.simulate.server.faults import Script
from scheduling.simulate.server.frames import (
    ChatFrames,
    Events,
    TextFrames,
    chat_body,
    text_body,
)
from scheduling.simulate.server.live import Live
from scheduling.simulate.server.metrics import Metrics
from scheduling.simulate.server.prompt import Prompt
from scheduling.simulate.server.received import Received


@dataclass(frozen=True, slots=True)
class Route:
    request: type[wire.Common]
    compose: Callable[[Composer, Any, Arrival], Call]
    body: Callable[[Call, Any], bytes]
    frames: Callable[[Call, bool], Events] | None = None  # None: it does not stream
    header: bool = True  # it reads the priority header
    error: Callable[[ApiError], bytes] = ApiError.body


CHAT = Route(wire.ChatRequest, Composer.chat, chat_body, ChatFrames)
COMPLETIONS = Route(wire.CompletionRequest, Composer.completion, text_body, TextFrames)


def _pooling(
    request: type[wire.Common],
    prompts: Callable[[Any], list[Prompt]],
    body: Callable[[Call, Any], bytes],
) -> Route:
    """As in vLLM, these know no priority header."""
    return Route(
        request,
        lambda composer, asked, arrival: composer.pooled(asked, prompts(asked), arrival),
        body,
        header=False,
    )


ROUTES: dict[str, Route] = {
    "/v1/chat/completions": CHAT,
    "/v1/completions": COMPLETIONS,
    "/v1/responses": Route(
        responses.ResponsesRequest,
        lambda composer, asked, arrival: composer.chat(responses.as_chat(asked), arrival),
        responses.body,
        responses.ResponseEvents,
    ),
    "/v1/messages": Route(
        messages.MessagesRequest,
        lambda composer, asked, arrival: composer.chat(messages.as_chat(asked), arrival),
        messages.body,
        messages.MessageEvents,
        error=messages.error_body,
    ),
    "/v1/embeddings": _pooling(
        pooling.EmbeddingRequest, pooling.embedding_prompts, pooling.embeddings_body
    ),
    "/v1/rerank": _pooling(pooling.RerankRequest, pooling.pair_prompts, pooling.rerank_body),
    "/v1/score": _pooling(pooling.ScoreRequest, pooling.pair_prompts, pooling.score_body),
}


class _Stop(Exception):
    """The script says that nothing more is sent and the connection closes."""


@dataclass(slots=True)
class Generate:
    live: Live
    composer: Composer
    metrics: Metrics
    max_queued: int | None
    open: int = 0  # calls being served
    released: asyncio.Event = field(default_factory=asyncio.Event)  # once another script is set

    def another_script(self) -> None:
        """Whoever waits by a script of before goes on."""
        self.released.set()
        self.released = asyncio.Event()

    async def serve(
        self,
        route: Route,
        received: Received,
        script: Script,
        receive: http.Receive,
        send: http.Send,
    ) -> None:
        hang_up = http.HangUp(receive)
        calls: list[Call] = []  # the one call, once there is one
        self.open += 1
        try:
            await self._serve(route, received, script, send, calls)
        except asyncio.CancelledError:
            if not hang_up.happened:
                raise
            received.closed_by_client = True
            asyncio.current_task().uncancel()  # type: ignore[union-attr]
        except _Stop:
            pass
        finally:
            hang_up.stop()
            self.open -= 1
            self._close(calls, received)

    def _close(self, calls: list[Call], received: Received) -> None:
        received.ended = self.live.now()
        for call in calls:
            self._abort(call)
            received.generated_tokens = sum(s.generated for p in call.parts for s in p.sequences)
            received.usage = {
                "prompt_tokens": call.prompt_tokens,
                "cached_tokens": call.cached_tokens,
                "completion_tokens": call.completion_tokens,
            }

    async def _serve(
        self,
        route: Route,
        received: Received,
        script: Script,
        send: http.Send,
        calls: list[Call],
    ) -> None:
        released = self.released
        if script.hold_s:
            await asyncio.sleep(script.hold_s)
        try:
            asked = self._read(route, received, script)
            call = self._submit(route, asked, received, script)
        except ApiError as error:
            received.status = error.status
            await http.respond(send, error.status, route.error(error), headers=error.headers)
            return
        calls.append(call)
        if script.hang_after == 0 or (script.hang_after is not None and not call.streams):
            await asyncio.Event().wait()
        if script.wait_after == 0 or (script.wait_after is not None and not call.streams):
            await released.wait()
        received.status = 200
        if call.streams and route.frames is not None:
            await self._stream(route, asked, call, received, send, released)
        else:
            await self._whole(route, asked, call, received, send)

    def _read(self, route: Route, received: Received, script: Script) -> Any:
        if script.status is not None:
            raise scripted_error(script)
        asked = wire.read(route.request, received.headers.get("content-type", ""), received.raw)
        if script.strict:
            wire.check_strictly(received.raw)
        return asked

    def _submit(self, route: Route, asked: Any, received: Received, script: Script) -> Call:
        header = received.headers.get("x-vllm-priority") if route.header else None
        priority = wire.priority_of(asked, header)
        received.priority, received.stream = priority, bool(asked.stream)
        request_id = received.headers.get("x-request-id")
        arrival = Arrival(self.live.now(), priority, request_id, script)
        call = route.compose(self.composer, asked, arrival)
        self._check_valve(len(call.answers))
        try:
            for part in call.parts:
                part.sequences = self.live.submit(part.request, part)
        except ValueError as error:
            self._abort(call)
            raise bad_request(str(error)) from None
        return call

    def _abort(self, call: Call) -> None:
        for part in call.parts:
            self.live.abort(part.request.id)

    def _check_valve(self, sequences: int) -> None:
        engine = self.live.engine
        if self.max_queued is None:
            return
        if engine.running + engine.waiting + sequences > self.max_queued:
            self.metrics.refused()
            raise busy(self.max_queued)

    async def _whole(
        self, route: Route, asked: wire.Common, call: Call, received: Received, send: http.Send
    ) -> None:
        while events := await call.events():
            for event in events:
                call.told(event)
        body = route.body(call, asked)
        if call.script.cut_after is not None:
            length = (b"content-length", str(len(body)).encode())
            await http.start(send, 200, http.JSON, [length])
            half = body[: len(body) // 2]
            await send({"type": "http.response.body", "body": half, "more_body": True})
            raise _Stop
        received.tokens_sent = call.completion_tokens
        await http.respond(send, 200, body)

    async def _stream(
        self,
        route: Route,
        asked: wire.Common,
        call: Call,
        received: Received,
        send: http.Send,
        released: asyncio.Event,
    ) -> None:
        options = asked.stream_options or wire.StreamOptions()
        script = call.script
        each = script.usage_every_chunk
        last = bool(options.include_usage) or each
        running = last and (bool(options.continuous_usage_stats) or each) and script.usage
        assert route.frames is not None
        stream = _Stream(route.frames(call, running), call, received, send, released)
        await http.start(send, 200, b"text/event-stream; charset=utf-8")
        await stream.tokens()
        ending = stream.frames.closing(last and script.usage).encode()
        await send({"type": "http.response.body", "body": ending})


@dataclass(slots=True)
class _Stream:
    frames: Events
    call: Call
    received: Received
    send: http.Send
    released: asyncio.Event

    async def tokens(self) -> None:
        """All that the engine gave for this call in one turn of the loop is one write."""
        opening = None
        while events := await self.call.events():
            if opening is None:  # now it is known what the cache had
                opening = self.frames.opening()
            if self.call.script.paced:
                await self._one_by_one(opening, events)
            else:
                await self._write(opening + "".join(map(self.frames.token, events)), events)
            opening = ""

    async def _one_by_one(self, opening: str, events: list[Event]) -> None:
        script = self.call.script
        for event in events:
            await self._fault(self.received.chunks_sent)
            if self.received.chunks_sent and script.gap_s:
                await asyncio.sleep(script.gap_s)
            await self._write(opening + self.frames.token(event), [event])
            opening = ""
        await self._fault(self.received.chunks_sent)

    async def _write(self, text: str, events: list[Event]) -> None:
        await self.send({"type": "http.response.body", "body": text.encode(), "more_body": True})
        for event in events:
            self.call.told(event)
        self.received.chunks_sent += len(events)
        self.received.tokens_sent = self.call.completion_tokens

    async def _fault(self, chunks: int) -> None:
        script = self.call.script
        if script.hang_after is not None and chunks >= script.hang_after:
            await asyncio.Event().wait()
        if script.wait_after is not None and chunks >= script.wait_after:
            await self.released.wait()
        if script.error_after is not None and chunks >= script.error_after:
            error = self.frames.error("simulated failure").encode()
            await self.send({"type": "http.response.body", "body": error})
            raise _Stop
        if script.cut_after is not None and chunks >= script.cut_after:
            raise _Stop


def scripted_error(script: Script) -> ApiError:
    error = ApiError(script.status or 500, "simulated failure")
    if script.retry_after is not None:
        error.headers.append((b"retry-after", str(script.retry_after).encode()))
    return error
