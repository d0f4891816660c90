"""An engine's answer on its way: what passes, what is counted, and what a break looks like."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from gateway import relay
from gateway.upstream.client import EngineClient
from gateway.wire.routes import ROUTES, Kind
from tests.unit.gateway.cast import A, B, snapshot
from tests.unit.gateway.world import SSE, Stream, World, full_stream, streamed, whole
from tests.unit.wire.frames import DONE, counts, event, finish, role, token, usage

ALONE = {"endpoints": [{"url": A}]}
HASTY = {"connect": 1, "first_token": 0.02, "idle": 0.02, "total": 5}


async def test_a_stream_passes_without_the_usage_that_was_not_asked_for() -> None:
    world = World()
    caller = await world.ask(streamed(*full_stream()), stream=True)
    assert caller.status == 200
    assert caller.body == b"".join((role(), token("Hi"), token(" there"), finish(), DONE))
    assert caller.headers["content-type"].startswith("text/event-stream")
    assert (world.record.prompt_tokens, world.record.completion_tokens) == (12, 2)
    assert (world.record.usage_source, world.record.status) == ("engine", 200)
    assert world.record.ttft_ms is not None


async def test_a_stream_that_comes_in_one_piece_has_a_first_token_too() -> None:
    world = World()
    await world.ask(streamed(b"".join(full_stream())), stream=True)
    assert world.record.ttft_ms is not None


async def test_a_stream_keeps_the_usage_that_was_asked_for() -> None:
    options = {"include_usage": True}
    caller = await World().ask(streamed(*full_stream()), stream=True, stream_options=options)
    assert usage(12, 2) in caller.body


async def test_a_stream_without_any_usage_is_counted() -> None:
    world = World()
    await world.ask(streamed(role(), token(), token(), token(), finish(), DONE), stream=True)
    assert (world.record.completion_tokens, world.record.usage_source) == (3, "counted")


async def test_a_stream_that_ends_with_its_last_choice_but_without_done_is_complete() -> None:
    world = World()
    caller = await world.ask(streamed(token(), finish("length")), stream=True)
    assert caller.body == token() + finish("length")
    assert (world.record.status, world.record.finish_reason) == (200, "length")
    assert world.log[-2:] == ["ended", "last"]
    assert world.is_empty


@pytest.mark.parametrize("then", ["break", "end"])
async def test_a_stream_that_breaks_before_its_first_byte_is_still_an_http_error(
    then: str,
) -> None:
    world = World(snapshot(pool=ALONE))
    caller = await world.ask(streamed(then=then), stream=True)
    assert (caller.status, caller.error["code"]) == (502, "engine_error")
    assert caller.headers["content-type"] == "application/json"
    assert world.record.status == 502
    assert world.is_empty


@pytest.mark.parametrize("then", ["break", "end"])
async def test_a_stream_that_breaks_after_it_ends_with_an_error_event_and_no_done(
    then: str,
) -> None:
    world = World()
    caller = await world.ask(streamed(role(), token(), token(), then=then), stream=True)
    assert caller.status == 200
    assert caller.body.startswith(role() + token() + token())
    assert caller.error["code"] == "engine_error"
    assert DONE not in caller.body
    record = world.record
    assert (record.status, record.finish_reason) == (502, "error")
    assert (record.completion_tokens, record.usage_source) == (2, "counted")
    assert world.log[-2:] == ["ended", "last"]
    assert world.is_empty


async def test_what_was_delivered_is_not_asked_of_another_engine() -> None:
    world = World()
    await world.ask(streamed(token(), then="break"), whole(), stream=True)
    assert len(world.asked) == 1


async def test_half_an_event_is_never_passed_on() -> None:
    caller = await World().ask(streamed(token(), token()[:9], then="break"), stream=True)
    assert caller.body.startswith(token() + b'data: {"error"')


async def test_the_engines_own_error_event_is_not_followed_by_another() -> None:
    world = World()
    said = event({"error": {"message": "out of memory", "type": "server_error", "code": 500}})
    caller = await world.ask(streamed(token(), said), stream=True)
    assert caller.body == token() + said
    assert world.record.status == 502
    assert world.is_empty


@pytest.mark.parametrize("code", [500, "500", None, "out_of_memory", 99])
async def test_a_stream_that_begins_with_an_error_is_a_failure_before_any_answer(code: Any) -> None:
    said = event({"error": {"message": "out of memory", "type": "server_error", "code": code}})
    world = World()
    caller = await world.ask(streamed(said, DONE), streamed(*full_stream()), stream=True)
    assert (caller.status, len(world.asked)) == (200, 2)
    assert b"out of memory" not in caller.body
    assert (world.record.endpoint, world.record.completion_tokens) == (B, 2)
    assert world.is_empty


async def test_a_stream_that_begins_with_the_callers_own_fault_is_that_fault() -> None:
    said = event({"error": {"message": "temperature must be 0 or more", "code": 400}})
    world = World()
    caller = await world.ask(streamed(said, DONE), stream=True)
    assert (caller.status, caller.error["code"], len(world.asked)) == (400, "invalid_request", 1)
    assert caller.error["message"] == "temperature must be 0 or more"
    assert (world.record.cost, world.is_empty) == (0, True)


async def test_a_break_after_done_is_no_break() -> None:
    world = World()
    caller = await world.ask(streamed(*full_stream(), then="break"), stream=True)
    assert caller.body.endswith(DONE)
    assert world.record.status == 200
    assert world.is_empty


@pytest.mark.parametrize("together", [True, False])
async def test_what_an_engine_says_after_done_reaches_nobody(together: bool) -> None:
    """Else it would be output that nobody counts."""
    pieces = [*full_stream(), token("more"), usage(900, 900), token("and more")]
    world = World()
    caller = await world.ask(
        streamed(b"".join(pieces)) if together else streamed(*pieces), stream=True
    )
    assert caller.body.endswith(DONE)
    assert b"more" not in caller.body
    assert (world.record.prompt_tokens, world.record.completion_tokens) == (12, 2)


async def test_head_and_body_of_a_whole_answer_share_one_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked_at = deadline = 0.0

    async def slow_head(_: httpx.Request) -> httpx.Response:
        nonlocal asked_at
        asked_at = asyncio.get_running_loop().time()
        await asyncio.sleep(0.05)
        return httpx.Response(200, stream=Stream(b"{", then="wait"))

    def iterate(*given: Any) -> Any:
        nonlocal deadline
        deadline = given[3]
        return real(*given)

    real = EngineClient.iterate
    monkeypatch.setattr(EngineClient, "iterate", iterate)
    times = {"connect": 1, "first_token": 5, "idle": 5, "total": 0.1}
    world = World(snapshot(pool={**ALONE, "timeouts": times}))
    caller = await world.ask(slow_head)
    assert (caller.status, caller.error["code"]) == (504, "engine_timeout")
    assert deadline <= asked_at + 0.1
    assert world.record.cost == 0
    assert world.is_empty


async def test_the_slot_is_free_as_soon_as_the_engine_is_done() -> None:
    """Not when it closes its connection: some wait with that."""
    world = World()
    caller = world.call(streamed(*full_stream(), then="wait"), stream=True)
    await world.until(lambda: DONE in caller.body)
    assert world.is_empty
    assert world.record.status == 200
    caller.hang_up()
    await caller.end()
    assert world.record.status == 200


@pytest.mark.parametrize("given", [(), (token(),)])
async def test_a_stream_that_falls_silent_is_timed_out(given: tuple[bytes, ...]) -> None:
    patience = {**HASTY, "first_token": 60} if given else HASTY  # the machine may be slow, too
    world = World(snapshot(pool={**ALONE, "timeouts": patience}))
    caller = await world.ask(streamed(*given, then="wait"), stream=True)
    assert caller.error["code"] == "engine_timeout"
    assert caller.status == (200 if given else 504)
    assert (world.record.status, world.record.finish_reason) == (504, "timeout")
    assert world.is_empty


async def test_a_caller_that_hangs_up_in_mid_stream_closes_the_engines_connection() -> None:
    world = World()
    stream = Stream(role(), token(), token(), then="wait")
    caller = world.call(httpx.Response(200, headers=SSE, stream=stream), stream=True)
    await world.until(lambda: token() * 2 in caller.body)
    caller.hang_up()
    await caller.end()
    assert stream.is_closed
    assert (world.record.status, world.record.finish_reason) == (499, "cancelled")
    assert (world.record.completion_tokens, world.record.usage_source) == (2, "counted")
    assert world.is_empty


async def test_a_whole_answer_that_breaks_off_is_an_http_error_and_nothing_of_it_is_sent() -> None:
    world = World(snapshot(pool=ALONE))
    json = {"content-type": "application/json"}
    stream = Stream(b'{"choices": [', then="break")
    caller = await world.ask(httpx.Response(200, headers=json, stream=stream))
    assert (caller.status, caller.error["code"]) == (502, "engine_error")
    assert stream.is_closed
    assert world.is_empty


async def test_a_whole_answer_to_a_streaming_call_passes_whole() -> None:
    world = World()
    caller = await world.ask(whole(), stream=True)
    assert (caller.status, caller.headers["content-type"]) == (200, "application/json")
    assert world.record.usage_source == "engine"


PAGE = {"content-type": "text/html; charset=utf-8"}
NO_ANSWERS: dict[str, Callable[[], httpx.Response]] = {
    "a login page": lambda: httpx.Response(200, headers=PAGE, stream=Stream(b"<html>Sign in")),
    "nothing": lambda: httpx.Response(200, stream=Stream()),
    "half an answer": lambda: httpx.Response(200, stream=Stream(b'{"choices": [')),
    "a text": lambda: httpx.Response(200, json="Hi"),
    "an error": lambda: httpx.Response(200, json={"error": {"message": "CUDA", "code": 500}}),
    "a flat error": lambda: httpx.Response(200, json={"object": "error", "message": "CUDA"}),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ROUTES)
@pytest.mark.parametrize("sent", NO_ANSWERS)
async def test_what_is_no_answer_is_a_failed_engine_whatever_its_status(
    sent: str, kind: Kind, stream: bool
) -> None:
    world = World()
    streams = stream and ROUTES[kind].meter is not None
    caller = await world.ask(NO_ANSWERS[sent](), NO_ANSWERS[sent](), kind=kind, stream=streams)
    code = caller.error["type" if kind == "messages" else "code"]
    assert (caller.status, code) == (502, "api_error" if kind == "messages" else "engine_error")
    assert (len(world.asked), world.record.cost, world.is_empty) == (2, 0, True)
    assert world.record.finish_reason == "error"
    assert "CUDA" not in caller.body.decode(), "an engine's own words are not the caller's business"


async def test_who_gets_no_answer_is_served_by_another_engine() -> None:
    world = World()
    caller = await world.ask(NO_ANSWERS["a login page"](), whole())
    assert (caller.status, world.record.usage_source) == (200, "engine")
    failed, answered = world.heard
    assert {failed[0], answered[0]} == {A, B}
    assert (failed[1], answered[1]) == ("failed", "answered")


@pytest.mark.parametrize(
    ("error", "status"),
    [({"message": "no such tool", "code": 400}, 400), ({"message": "busy", "code": 429}, 503)],
)
async def test_an_error_under_a_200_is_what_its_code_says(error: Any, status: int) -> None:
    world = World(snapshot(pool=ALONE))
    caller = await world.ask(httpx.Response(200, json={"error": error}))
    assert (caller.status, world.record.cost) == (status, 0)


async def test_a_response_that_failed_costs_nothing() -> None:
    world = World(snapshot(pool=ALONE))
    said = {"status": "failed", "error": {"code": "server_error", "message": "CUDA"}, "usage": None}
    caller = await world.ask(httpx.Response(200, json=said), kind="responses")
    assert (caller.status, world.record.cost) == (502, 0)


async def test_a_list_is_an_answer_and_so_is_one_whose_error_is_null() -> None:
    ranks = [{"index": 0, "score": 0.5}]
    caller = await World().ask(httpx.Response(200, json=ranks), kind="rerank")
    assert (caller.status, json.loads(caller.body)) == (200, ranks)
    assert (await World().ask(whole(error=None))).status == 200


async def test_a_stream_that_nobody_asked_for_is_no_answer() -> None:
    world = World(snapshot(pool=ALONE))
    caller = await world.ask(streamed(*full_stream()))
    assert (caller.status, world.record.cost) == (502, 0)
    assert "not JSON (text/event-stream)" in caller.error["message"]


@pytest.mark.parametrize("code", ["²", "٤٢٩", "9" * 5000, "", None, 4.29, [429]])
async def test_an_error_code_may_be_anything(code: Any) -> None:
    world = World(snapshot(pool=ALONE))
    broken = streamed(event({"error": {"message": "x", "code": code}}))
    with capture_logs() as lines:
        caller = await world.ask(broken, stream=True)
    assert (caller.status, world.record.cost) in ((502, 0), (503, 0))
    assert [line["event"] for line in lines if line["event"] == "request failed"] == []


@pytest.mark.parametrize("done", [DONE, b"data:[DONE]\n\n", b"data: [DONE]\r\n\r\n"])
@pytest.mark.parametrize("together", [True, False])
async def test_no_done_follows_an_error(done: bytes, together: bool) -> None:
    broken = event({"error": {"message": "CUDA"}})
    last = [broken + done] if together else [broken, done]
    caller = await World().ask(streamed(role(), token(), *last), stream=True)
    assert caller.body == role() + token() + broken


async def test_a_whole_answer_that_says_nothing_of_usage_is_estimated() -> None:
    world = World()
    await world.ask(httpx.Response(200, json={"choices": [{"finish_reason": "length"}]}))
    record = world.record
    assert (record.usage_source, record.finish_reason) == ("estimated", "length")
    assert record.cost == record.estimated_cost > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_compressed_answer_is_no_answer_as_nobody_could_read_it(stream: bool) -> None:
    world = World(snapshot(pool=ALONE))
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    squeezed = Stream(gzip.compress(b"{}"))
    caller = await world.ask(httpx.Response(200, headers=headers, stream=squeezed), stream=stream)
    assert (caller.status, caller.error["code"]) == (502, "engine_error")
    assert (world.record.cost, squeezed.is_closed, world.is_empty) == (0, True, True)


async def test_who_gets_a_compressed_answer_is_served_by_another_engine() -> None:
    squeezed = httpx.Response(200, headers={"content-encoding": "br"}, stream=Stream(b"x"))
    world = World()
    assert (await world.ask(squeezed, whole())).status == 200
    assert [what for _, what in world.heard] == ["failed", "answered"]


async def test_a_whole_answer_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "MAX_ANSWER_BYTES", 100)
    world = World(snapshot(pool=ALONE))
    stream = Stream(*[b"x" * 60] * 2, then="wait")
    caller = await world.ask(httpx.Response(200, stream=stream))
    assert (caller.status, caller.error["code"]) == (502, "engine_error")
    assert (stream.is_closed, world.is_empty) == (True, True)


async def test_what_streams_past_the_expectation_is_charged_as_it_comes() -> None:
    world = World()
    pieces = [token()] * 400  # more than the 256 that nothing is known of
    caller = world.call(streamed(role(), *pieces, then="wait"), stream=True)

    def served() -> float:
        lanes = world.scheduler.live()["pools"]["chat"]["lanes"]
        return float(lanes["standard"]["served"])

    await world.until(lambda: caller.body.count(token()) == 400)
    [entry] = world.journal.entries
    assert served() > entry.estimated_cost
    assert served() <= entry.prompt_tokens + 2 * 400
    caller.hang_up()
    await caller.end()
    assert served() == world.record.cost


async def test_the_engines_private_headers_stay_behind() -> None:
    world = World()
    reply = whole()
    reply.headers.update(
        {"server": "uvicorn", "set-cookie": "a=b", "x-ratelimit-limit-tokens": "1"}
    )
    caller = await world.ask(reply)
    assert {"server", "set-cookie", "x-ratelimit-limit-tokens"}.isdisjoint(caller.headers)


async def test_a_caller_that_reads_slowly_holds_up_nobody_but_itself() -> None:
    world = World()
    stream = Stream(*full_stream())
    slow = world.call(httpx.Response(200, headers=SSE, stream=stream), stream=True)
    slow.reads.clear()
    await world.until(lambda: world.asked)
    assert (await world.ask()).status == 200
    assert not slow.sent
    assert not slow.task.done()
    slow.reads.set()
    await slow.end()
    assert slow.body.endswith(DONE)
    assert world.is_empty


async def test_a_caller_that_never_reads_loses_its_slot_when_its_time_is_over() -> None:
    times = {"connect": 1, "first_token": 60, "idle": 60, "total": 0.4}
    world = World(snapshot(pool={**ALONE, "timeouts": times}))
    caller = world.call(streamed(*full_stream()), stream=True)
    caller.reads.clear()
    await caller.end()
    assert (world.record.status, world.record.finish_reason) == (499, "timeout")
    assert not caller.sent
    assert world.is_empty


async def test_usage_that_was_told_on_the_way_counts_for_what_was_cut_off() -> None:
    world = World()
    told = [token(usage=counts(30, number)) for number in (1, 2)]
    await world.ask(streamed(role(), *told, then="break"), stream=True)
    record = world.record
    assert (record.prompt_tokens, record.completion_tokens) == (30, 2)
    assert (record.usage_source, record.status) == ("counted", 502)


async def test_the_rates_of_a_whole_answer_are_those_after_it() -> None:
    world = World(snapshot(alice={"limits": {"tokens_per_minute": 1000}}))
    caller = await world.ask(whole(prompt=10, completion=5))
    assert caller.headers["x-ratelimit-remaining-tokens"] == "985"
