"""All routes alike: whatever ends a call, it is answered in its shape, recorded once, and over."""

from __future__ import annotations

import asyncio
import json
from typing import Any, get_args

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.routes import ROUTES, Kind
from tests.fuzz import examples
from tests.unit.gateway.cast import snapshot
from tests.unit.gateway.world import ASKED, Caller, World, never, streamed
from tests.unit.wire.frames import STOPPED, begun, finish, said, token, told, typed

KINDS: tuple[Kind, ...] = get_args(Kind)
STREAMING: dict[Kind, tuple[bytes, bytes]] = {  # a piece of an answer, and its last event
    "chat": (token(), finish()),
    "completions": (token(), finish()),
    "responses": (
        typed("response.output_text.delta", delta="x"),
        typed("response.completed", response={"status": "completed"}),
    ),
    "messages": (begun(input_tokens=5, output_tokens=0) + said(), told(output_tokens=1) + STOPPED),
}


def call(world: World, kind: Kind, *replies: Any, **options: Any) -> Caller:
    return world.call(*replies, kind=kind, **options)


def message_of(caller: Caller, kind: Kind) -> str:
    """Whatever the shape of the error, it has one."""
    found = caller.error
    assert ("code" in found) is (kind != "messages")
    return str(found["message"])


def test_each_route_has_one_row() -> None:
    assert set(ROUTES) == set(KINDS)
    assert all(ROUTES[kind].kind == kind for kind in KINDS)
    assert len({route.path for route in ROUTES.values()}) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
async def test_an_answer_without_usage_is_charged_as_estimated(kind: Kind) -> None:
    world = World()
    caller = await call(world, kind, httpx.Response(200, json={"data": []})).end()
    assert caller.status == 200
    record = world.record
    assert record.usage_source == "estimated"
    assert record.prompt_tokens >= 1
    assert (record.completion_tokens > 0) is ROUTES[kind].generates
    assert world.is_empty


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("reply", "status"),
    [(404, 502), (405, 502), (501, 502), (400, 400), (401, 502), (500, 502), (503, 503)],
)
async def test_a_refusal_of_the_engine_costs_nothing(kind: Kind, reply: int, status: int) -> None:
    world = World()
    replies = [httpx.Response(reply, json={"detail": "x"}) for _ in range(2)]
    caller = await call(world, kind, *replies).end()
    assert (caller.status, world.record.status) == (status, status)
    assert world.record.cost == 0
    assert message_of(caller, kind)
    assert world.is_empty


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [404, 405, 501])
async def test_an_engine_that_lacks_the_endpoint_is_told_by_its_name(
    kind: Kind, status: int
) -> None:
    world = World()
    caller = await call(world, kind, httpx.Response(status, json={"detail": "Not Found"})).end()
    assert f"does not serve {ROUTES[kind].path} (HTTP {status})" in message_of(caller, kind)
    assert caller.headers["x-should-retry"] == "false"
    assert len(world.asked) == 1


async def test_an_engine_that_lacks_the_model_is_not_said_to_lack_the_endpoint() -> None:
    error = {"error": {"message": "The model `chat` does not exist.", "code": 404}}
    caller = await call(World(), "chat", httpx.Response(404, json=error)).end()
    assert "refused the gateway's call" in message_of(caller, "chat")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_caller_that_leaves_frees_its_place(kind: Kind) -> None:
    world = World()
    caller = call(world, kind, never)
    await world.until(lambda: world.asked)
    caller.hang_up()
    await caller.end()
    assert (world.record.status, world.record.finish_reason) == (499, "cancelled")
    assert world.is_empty


@pytest.mark.parametrize("kind", KINDS)
async def test_limits_hold_and_speak_the_shape_of_the_route(kind: Kind) -> None:
    world = World(snapshot(alice={"limits": {"requests_per_minute": 1}}))
    assert (await call(world, kind).end()).status == 200
    refused = await call(world, kind).end()
    assert refused.status == 429
    assert "requests_per_minute" in message_of(refused, kind)
    assert int(refused.headers["retry-after"]) >= 1
    assert [record.status for record in world.journal.records] == [200, 429]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"key": "wrong"}, 401),
        ({"key": "sam"}, 403),
        ({"model": "no-such"}, 404),
        ({"key": "bob", "model": "org/code"}, 403),
        ({"headers": {"x-fairlane-lane": "no-such"}}, 403),
        ({"body": b"{"}, 400),
        ({"body": b"x" * 20_000}, 413),
    ],
)
async def test_refusals_before_the_queue_have_the_shape_of_the_route(
    kind: Kind, options: dict[str, Any], status: int
) -> None:
    world = World()
    caller = await call(world, kind, **options).end()
    assert caller.status == status
    assert message_of(caller, kind)
    assert world.asked == []
    assert world.is_empty


@pytest.mark.parametrize("kind", ["embeddings", "rerank", "score"])
async def test_what_generates_nothing_needs_room_for_its_prompt_only(kind: Kind) -> None:
    limits = {"tokens_per_minute": 60, "max_output_tokens": 5, "max_input_tokens": 50}
    world = World(snapshot(alice={"limits": limits}))
    assert (await call(world, kind).end()).status == 200
    fields = dict.fromkeys(("input", "query", "text_1"), "x" * 400)
    caller = await call(world, kind, **fields).end()
    assert caller.status == 400
    assert caller.error["code"] == "context_length_exceeded"
    assert caller.error["param"] == ROUTES[kind].prompt_field


@pytest.mark.parametrize("kind", ["chat", "completions", "responses", "messages"])
async def test_the_output_limit_is_held_by_the_field_of_the_route(kind: Kind) -> None:
    field = ROUTES[kind].bounds[0]
    world = World(snapshot(alice={"limits": {"max_output_tokens": 10}}))
    caller = await call(world, kind, **{field: 11}).end()
    assert caller.status == 400
    assert f"{field} is 11" in message_of(caller, kind)
    if kind != "messages":  # which demands one of its own
        await call(world, kind).end()
        assert json.loads(world.asked[0].content)[field] == 10


@pytest.mark.parametrize("kind", STREAMING)
async def test_a_stream_that_breaks_ends_with_an_error_of_its_shape(kind: Kind) -> None:
    world = World()
    piece, _ = STREAMING[kind]
    caller = await call(world, kind, streamed(piece, then="break"), stream=True).end()
    assert caller.status == 200
    assert "broke off" in message_of(caller, kind)
    assert caller.body.startswith(piece)
    assert (world.record.status, world.record.completion_tokens) == (502, 1)
    assert world.record.usage_source == "counted"
    assert world.is_empty


@pytest.mark.parametrize("kind", STREAMING)
async def test_a_stream_that_ends_before_its_last_event_has_broken(kind: Kind) -> None:
    world = World()
    piece, last = STREAMING[kind]
    await call(world, kind, streamed(piece), stream=True).end()
    assert world.record.status == 502
    await call(world, kind, streamed(piece, last), stream=True).end()
    assert world.journal.records[-1].status == 200
    assert world.is_empty


@pytest.mark.parametrize("kind", ["responses", "messages"])
async def test_a_stream_that_begins_with_an_error_is_tried_elsewhere(kind: Kind) -> None:
    world = World()
    piece, last = STREAMING[kind]
    full = typed("error", error={"type": "overloaded_error", "message": "full"})
    caller = await call(world, kind, streamed(full), streamed(piece, last), stream=True).end()
    assert caller.body == piece + last
    assert len(world.asked) == 2
    caller = await call(world, kind, streamed(full), streamed(full), stream=True).end()
    assert caller.status == 503
    assert world.is_empty


async def test_a_stopping_gateway_takes_leave_in_the_shape_of_the_route() -> None:
    world = World()
    piece, _ = STREAMING["messages"]
    caller = call(world, "messages", streamed(piece, then="wait"), stream=True)
    await world.until(lambda: caller.sent)
    caller.task.cancel()
    await asyncio.gather(caller.task, return_exceptions=True)
    assert caller.error["type"] == "overloaded_error"


async def test_estimates_of_prompts_do_not_learn_from_counting() -> None:
    world = World()
    await call(world, "tokenize", httpx.Response(200, json={"count": 5000})).end()
    assert world.record.prompt_tokens == 50
    assert world.estimates.prompt.estimate("chat", 400) == 100


scalars = st.none() | st.booleans() | st.integers(-3, 2**40) | st.floats() | st.text(max_size=6)
names = st.sampled_from(
    [
        *("model", "messages", "input", "prompt", "query", "documents", "text_1", "text_2"),
        *("system", "instructions", "max_tokens", "max_output_tokens", "stream", "tools", "n"),
        *("role", "content", "type", "text", "output", "items", "stream_options", "id"),
    ]
)
values = st.recursive(
    scalars | st.sampled_from(["chat", "user", "Hello"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=8,
)
answers = st.builds(lambda value: httpx.Response(200, json=value), st.one_of(
    st.none(), st.text(max_size=5), st.dictionaries(st.sampled_from(
        ["usage", "choices", "status", "output", "count", "stop_reason", "error", "data"]
    ), st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(
        inner, max_size=3) | st.dictionaries(st.sampled_from(
            ["prompt_tokens", "total_tokens", "input_tokens", "output_tokens", "message"]
        ), inner), max_leaves=6))
))  # fmt: skip


@examples(60)
@given(st.sampled_from(KINDS), st.dictionaries(names, values, max_size=6), st.booleans(), answers)
def test_no_body_breaks_the_gateway_or_keeps_its_place(
    kind: Kind, body: dict[str, Any], filled: bool, answer: httpx.Response
) -> None:
    async def scene() -> None:
        world = World()
        said = {"model": "chat", **ASKED[kind], **body} if filled else body
        caller = await world.call(answer, kind=kind, body=json.dumps(said).encode()).end()
        assert caller.status < 500, caller.body
        assert len(world.journal.records) == 1
        assert world.is_empty
        world.calls.counter.close()

    asyncio.run(scene())
