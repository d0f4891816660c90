"""One request's way: every end that it can have, each settled and recorded once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from gateway import metrics
from gateway.errors import Outcome
from gateway.exchange import Exchange
from gateway.run import Run
from scheduling.core.model import DropReason
from tenants.core.snapshot import PolicySnapshot
from tests.unit.gateway.cast import A, B, snapshot
from tests.unit.gateway.world import Caller, Stream, World, full_stream, never, streamed, whole
from tests.unit.wire.frames import role

ONE_SLOT = {"endpoints": [{"url": A}], "capacity": {"max_running": 1, "max_running_tokens": 9999}}
HOURLY = {"name": "hourly", "kind": "sustained", "cost": 1, "period": "hour"}


def busy(**alice: Any) -> PolicySnapshot:
    """One slot, and a lane that waits for a moment only."""
    return snapshot(alice=alice, pool=ONE_SLOT, lane={"max_queue_seconds": 0.01})


def half(then: str) -> httpx.Response:
    headers = {"content-type": "application/json"}
    return httpx.Response(200, headers=headers, stream=Stream(b'{"choices": [', then=then))


async def ok(world: World) -> Caller:
    return await world.ask()


async def invalid(world: World) -> Caller:
    return await world.ask(body=b"[]")


async def too_long(world: World) -> Caller:
    return await world.ask(messages=[{"role": "user", "content": "x" * 1000}])


async def too_much_output(world: World) -> Caller:
    return await world.ask(max_tokens=51)


async def unknown_key(world: World) -> Caller:
    return await world.ask(key="who-knows")


async def suspended(world: World) -> Caller:
    return await world.ask(key="sam")


async def model_not_allowed(world: World) -> Caller:
    return await world.ask(key="bob", model="org/code")


async def lane_not_allowed(world: World) -> Caller:
    return await world.ask(key="bob", headers={"x-fairlane-lane": "critical"})


async def model_not_found(world: World) -> Caller:
    return await world.ask(model="gpt-9")


async def too_large(world: World) -> Caller:
    return await world.ask(body=b" " * 10_001)


async def over_the_rate(world: World) -> Caller:
    await world.ask()
    world.journal.records.clear()
    return await world.ask()


async def over_the_budget(world: World) -> Caller:
    return await over_the_rate(world)


async def hangs_up(world: World) -> Caller:
    caller = world.call(never)
    await world.until(lambda: world.asked)
    caller.hang_up()
    return await caller.end()


async def engine_refuses(world: World) -> Caller:
    return await world.ask(httpx.Response(500), httpx.Response(500))


async def engine_is_slow(world: World) -> Caller:
    return await world.ask(httpx.ReadTimeout("nothing arrived"))


async def engine_is_full(world: World) -> Caller:
    return await world.ask(httpx.Response(503), httpx.Response(429))


async def waits_too_long(world: World) -> Caller:
    first = world.call(never)
    await world.until(lambda: world.asked)
    second = await world.ask()
    record = world.record
    first.hang_up()
    await first.end()
    world.journal.records[:] = [record]
    return second


async def no_endpoint(world: World) -> Caller:
    world.down |= {A, B}
    return await world.ask()


LIMITED = {
    "limits": {"max_input_tokens": 100, "max_output_tokens": 50, "requests_per_minute": 1},
}
ENDS: dict[Outcome, tuple[PolicySnapshot, Callable[[World], Awaitable[Caller]]]] = {
    Outcome.OK: (snapshot(), ok),
    Outcome.INVALID_REQUEST: (snapshot(), invalid),
    Outcome.CONTEXT_LENGTH_EXCEEDED: (snapshot(alice=LIMITED), too_long),
    Outcome.OUTPUT_LIMIT_EXCEEDED: (snapshot(alice=LIMITED), too_much_output),
    Outcome.INVALID_API_KEY: (snapshot(), unknown_key),
    Outcome.TENANT_SUSPENDED: (snapshot(), suspended),
    Outcome.MODEL_NOT_ALLOWED: (snapshot(), model_not_allowed),
    Outcome.LANE_NOT_ALLOWED: (snapshot(), lane_not_allowed),
    Outcome.MODEL_NOT_FOUND: (snapshot(), model_not_found),
    Outcome.REQUEST_TOO_LARGE: (snapshot(), too_large),
    Outcome.RATE_LIMIT_EXCEEDED: (snapshot(alice=LIMITED), over_the_rate),
    Outcome.INSUFFICIENT_QUOTA: (snapshot(alice={"budgets": [HOURLY]}), over_the_budget),
    Outcome.CLIENT_CLOSED: (snapshot(), hangs_up),
    Outcome.ENGINE_ERROR: (snapshot(), engine_refuses),
    Outcome.ENGINE_TIMEOUT: (snapshot(), engine_is_slow),
    Outcome.OVERLOADED: (snapshot(), engine_is_full),
    Outcome.QUEUE_TIMEOUT: (busy(), waits_too_long),
    Outcome.NO_ENDPOINT: (snapshot(), no_endpoint),
}


def ended(outcome: Outcome) -> float:
    """How many requests ended so, whoever's they were."""
    return sum(
        sample.value
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "fairlane_requests_total" and sample.labels["outcome"] == outcome
    )


def test_every_outcome_has_its_case_but_the_one_of_shared_state() -> None:
    """Nothing in one process can lose the shared state."""
    assert set(ENDS) == set(Outcome) - {Outcome.STATE_UNAVAILABLE}


@pytest.mark.parametrize("outcome", ENDS)
async def test_every_end_is_answered_recorded_and_counted_once_and_holds_nothing(
    outcome: Outcome,
) -> None:
    policy, case = ENDS[outcome]
    world = World(policy)
    before = ended(outcome)
    caller = await case(world)
    assert world.is_empty
    if outcome is Outcome.INVALID_API_KEY:  # nobody is known whose it could be
        assert world.journal.records == []
    else:
        assert world.record.status == outcome.answer.status
        assert ended(outcome) - before == 1
    if outcome is Outcome.CLIENT_CLOSED:
        assert caller.sent == []
        return
    assert caller.status == outcome.answer.status
    assert (b"retry-after" in dict(caller.sent[0]["headers"])) == outcome.answer.retry
    if outcome is not Outcome.OK:
        assert caller.error["code"] == outcome


@pytest.mark.parametrize("outcome", [o for o in ENDS if o is not Outcome.OK])
async def test_a_call_that_ended_badly_costs_nothing_unless_the_engine_had_begun(
    outcome: Outcome,
) -> None:
    policy, case = ENDS[outcome]
    world = World(policy)
    await case(world)
    cost = sum(record.cost for record in world.journal.records)
    assert (cost > 0) == (outcome is Outcome.CLIENT_CLOSED)


@pytest.mark.parametrize(
    ("outcome", "limit"),
    [
        (Outcome.CONTEXT_LENGTH_EXCEEDED, "max_input_tokens"),
        (Outcome.OUTPUT_LIMIT_EXCEEDED, "max_output_tokens"),
        (Outcome.RATE_LIMIT_EXCEEDED, "requests_per_minute"),
        (Outcome.QUEUE_TIMEOUT, "queue_timeout"),
        (Outcome.MODEL_NOT_FOUND, ""),
    ],
)
async def test_the_record_says_which_limit_refused(outcome: Outcome, limit: str) -> None:
    policy, case = ENDS[outcome]
    world = World(policy)
    await case(world)
    assert world.record.throttle_reason == limit
    assert (world.record.queue_ms > 0) == (outcome is Outcome.QUEUE_TIMEOUT)


async def test_an_answer_passes_as_the_engine_wrote_it() -> None:
    world = World()
    reply = whole(system_fingerprint="fp_1")
    sent = reply.content
    caller = await world.ask(reply)
    assert caller.body == sent
    assert caller.headers["x-request-id"] == world.record.request_id
    assert caller.headers["x-fairlane-lane"] == "standard"
    assert caller.headers["x-fairlane-queue-ms"].isdigit()


async def test_what_the_engine_counted_is_what_is_recorded() -> None:
    world = World()
    await world.ask(whole(prompt=50, completion=9))
    record = world.record
    assert (record.prompt_tokens, record.completion_tokens, record.usage_source) == (
        50,
        9,
        "engine",
    )
    assert (record.cost, record.endpoint, record.lane) == (68.0, A, "standard")


async def test_rates_are_told_with_an_answer_and_with_a_refusal() -> None:
    world = World(snapshot(alice={"limits": {"requests_per_minute": 1}}))
    served, refused = await world.ask(), await world.ask()
    for caller, left in ((served, "0"), (refused, "0")):
        assert caller.headers["x-ratelimit-limit-requests"] == "1"
        assert caller.headers["x-ratelimit-remaining-requests"] == left
    assert world.journal.records[1].throttle_reason == "requests_per_minute"


async def test_the_engine_gets_the_lanes_priority_and_our_id_and_never_the_callers_key() -> None:
    world = World()
    headers = {"x-vllm-priority": "-9", "x-tenant-id": "bob", "x-request-id": "mine"}
    await world.ask(headers=headers, priority=-9)
    [asked] = world.asked
    assert asked.headers["x-vllm-priority"] == "7"
    assert asked.headers["x-request-id"] == world.record.request_id
    assert "authorization" not in asked.headers
    assert "x-tenant-id" not in asked.headers
    assert b"priority" not in asked.content


async def test_a_call_without_a_bound_gets_its_tenants() -> None:
    world = World(snapshot(alice={"limits": {"max_output_tokens": 50}}))
    await world.ask()
    await world.ask(max_tokens=7)
    assert [httpx.Response(200, content=a.content).json()["max_tokens"] for a in world.asked] == [
        50,
        7,
    ]


# --- another endpoint ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [httpx.Response(500), httpx.Response(503), httpx.ReadError("gone"), httpx.ConnectError("no")],
)
async def test_an_engine_that_fails_before_it_answers_is_left_for_another(failure: Any) -> None:
    world = World()
    caller = await world.ask(failure, whole())
    assert caller.status == 200
    assert [str(a.url).removesuffix("/chat/completions") for a in world.asked] == [A, B]
    assert (world.record.endpoint, world.record.cost) == (B, 18.0)  # once
    assert world.is_empty


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("then", ["break", "end"])
async def test_an_engine_that_breaks_off_before_its_first_byte_is_left_for_another(
    stream: bool, then: str
) -> None:
    """It had said 200; the caller has nothing of it."""
    world = World()
    other = streamed(*full_stream()) if stream else whole(prompt=12, completion=2)
    broken = streamed(then=then) if stream else half(then="break")
    caller = await world.ask(broken, other, stream=stream)
    assert caller.status == 200
    assert [str(a.url).removesuffix("/chat/completions") for a in world.asked] == [A, B]
    record = world.record
    assert (record.endpoint, record.prompt_tokens, record.completion_tokens) == (B, 12, 2)
    assert (record.usage_source, record.status, len(world.journal.entries)) == ("engine", 200, 1)
    assert world.is_empty


async def test_what_breaks_off_everywhere_before_its_first_byte_costs_nothing() -> None:
    for stream in (False, True):
        world = World()
        reply = streamed if stream else half
        caller = await world.ask(reply(then="break"), reply(then="break"), whole(), stream=stream)
        assert (caller.status, caller.error["code"], len(world.asked)) == (502, "engine_error", 2)
        assert (world.record.cost, world.record.finish_reason) == (0, "error")
        assert world.is_empty


async def test_a_caller_that_leaves_in_the_second_attempt_is_cancelled_and_charged_once() -> None:
    world = World()
    caller = world.call(streamed(then="break"), never, stream=True)
    await world.until(lambda: len(world.asked) == 2)
    caller.hang_up()
    await caller.end()
    assert (world.record.status, world.record.endpoint) == (499, B)
    assert world.is_empty


async def test_both_attempts_share_the_time_of_the_call() -> None:
    async def slow(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0.03)
        return httpx.Response(500)

    asked: list[float] = []

    async def timed(request: httpx.Request) -> httpx.Response:
        asked.append(request.extensions["timeout"]["read"])
        return whole()

    timeouts = {"connect": 1, "first_token": 60, "idle": 60, "total": 60}
    world = World(snapshot(pool={"timeouts": timeouts}))
    await world.ask(slow, timed)
    assert asked[0] <= 60 - 0.029


async def test_a_call_whose_time_is_over_is_not_tried_elsewhere() -> None:
    async def slow(_: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0.5)
        return httpx.Response(500)

    timeouts = {"connect": 1, "first_token": 60, "idle": 60, "total": 0.4}
    world = World(snapshot(pool={"timeouts": timeouts}))
    caller = await world.ask(slow, whole())
    assert (caller.status, caller.error["code"], len(world.asked)) == (504, "engine_timeout", 1)
    assert world.is_empty


async def test_it_is_left_once_only() -> None:
    world = World()
    caller = await world.ask(httpx.Response(500), httpx.Response(500), whole())
    assert (caller.status, len(world.asked)) == (502, 2)
    assert world.is_empty


async def test_without_another_endpoint_the_failure_is_told() -> None:
    world = World(snapshot(pool=ONE_SLOT))
    caller = await world.ask(httpx.Response(500), whole())
    assert (caller.status, caller.error["code"], len(world.asked)) == (502, "engine_error", 1)
    assert world.is_empty


@pytest.mark.parametrize("failure", [httpx.ReadTimeout("slow"), httpx.Response(400)])
async def test_a_slow_engine_and_a_wrong_request_are_not_tried_elsewhere(failure: Any) -> None:
    world = World()
    await world.ask(failure, whole())
    assert len(world.asked) == 1
    assert world.is_empty


async def test_only_what_could_not_be_connected_to_is_called_dead() -> None:
    world = World()
    await world.ask(httpx.ConnectError("refused"), httpx.ReadError("broke off"))
    assert world.unreachable == [A]


async def test_the_engines_own_refusal_says_that_it_is_the_engines() -> None:
    world = World()
    error = {"error": {"message": "temperature must be at least 0", "param": "temperature"}}
    caller = await world.ask(httpx.Response(400, json=error))
    assert (caller.status, caller.headers["x-fairlane-source"]) == (400, "engine")
    assert caller.error["message"] == "temperature must be at least 0"
    assert caller.error["param"] == "temperature"


async def test_an_engine_that_does_not_know_the_gateway_is_not_the_callers_fault() -> None:
    caller = await World().ask(httpx.Response(401, json={"error": {"message": "bad key sk-1"}}))
    assert (caller.status, caller.error["code"]) == (502, "engine_error")
    assert b"sk-1" not in caller.body


@pytest.mark.parametrize("status", [204, 302, 404])
async def test_an_answer_that_is_neither_200_nor_an_error_of_the_call_is_the_pools_fault(
    status: int,
) -> None:
    world = World()
    caller = await world.ask(httpx.Response(status, headers={"location": "http://elsewhere/"}))
    assert (caller.status, len(world.asked), world.record.cost) == (502, 1, 0.0)
    assert "location" not in caller.headers


# --- waiting ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "status", "code"),
    [
        ("tenant_suspended", 403, "tenant_suspended"),
        ("key_revoked", 401, "invalid_api_key"),
        ("pool_removed", 503, "no_endpoint"),
        ("shutting_down", 503, "overloaded"),
    ],
)
async def test_who_waits_and_loses_the_place_hears_why(
    reason: DropReason, status: int, code: str
) -> None:
    world = World(snapshot(pool=ONE_SLOT))
    first = world.call(never)
    await world.until(lambda: world.asked)
    second = world.call()
    await world.until(world.scheduler.waiting)
    [waiting] = world.scheduler.waiting()
    assert world.calls.waiting.keys() == {waiting.request_id}
    world.scheduler.drop(waiting.request_id, reason)
    await second.end()
    assert (second.status, second.error["code"]) == (status, code)
    assert world.record.throttle_reason == reason
    first.hang_up()
    await first.end()
    assert world.is_empty


async def test_who_hangs_up_while_waiting_leaves_the_queue_and_pays_nothing() -> None:
    world = World(snapshot(pool=ONE_SLOT))
    first = world.call(never)
    await world.until(lambda: world.asked)
    second = world.call()
    await world.until(world.scheduler.waiting)
    second.hang_up()
    await second.end()
    assert not world.scheduler.waiting()
    assert (world.record.status, world.record.cost, len(world.asked)) == (499, 0.0, 1)
    first.hang_up()
    await first.end()
    assert world.is_empty


async def test_a_predicted_wait_past_the_lanes_limit_is_shed_where_the_tier_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(snapshot(alice={"on_overload": "reject"}))
    monkeypatch.setattr(world.scheduler, "expected_wait_s", lambda pool, lane: 75.0)
    caller = await world.ask()
    assert (caller.status, caller.error["code"]) == (503, "overloaded")
    assert caller.headers["retry-after"] == "15"
    assert world.record.throttle_reason == "predicted_wait"
    assert world.record.queue_ms == 0.0
    assert world.is_empty


async def test_a_running_call_ends_under_the_policy_that_it_began_with() -> None:
    world = World(snapshot(revision=1))
    caller = world.call(never)
    await world.until(lambda: world.asked)
    world.calls.snapshot = snapshot(without=("alice",), revision=2)
    caller.hang_up()
    await caller.end()
    assert world.record.policy_revision == 1
    assert (await world.ask()).status == 401


# --- the unexpected --------------------------------------------------------------------------


async def test_a_fault_of_our_own_is_an_answer_and_leaves_no_slot_taken() -> None:
    world = World()
    caller = await world.ask(ZeroDivisionError("a bug"))
    assert (caller.status, caller.error["code"]) == (502, "engine_error")
    assert b"a bug" not in caller.body
    assert world.record.status == 502
    assert world.is_empty


async def test_a_server_that_stops_says_so_and_the_slot_is_free() -> None:
    world = World()
    caller = world.call(never)
    await world.until(lambda: world.asked)
    caller.task.cancel()
    await caller.task
    assert (caller.status, caller.error["code"]) == (503, "overloaded")
    assert (world.record.status, world.record.finish_reason) == (503, "error")
    assert world.is_empty


async def test_the_record_is_written_before_the_last_byte_is_sent() -> None:
    world = World()
    await world.ask()
    assert world.log == ["opened", "ended", "start", "last"]
    world.log.clear()
    await world.ask(streamed(*full_stream()), stream=True)
    assert world.log[:2] == ["opened", "start"]
    assert world.log[world.log.index("ended") :] == ["ended", "done", "last"]


async def test_what_is_opened_before_an_engine_is_asked_settles_the_call_after_a_crash() -> None:
    world = World(snapshot(alice={"budgets": [HOURLY | {"cost": 10_000}]}))
    await world.ask()
    [entry] = world.journal.entries
    record = world.record
    assert entry.request_id == record.request_id
    assert entry.estimated_cost == record.estimated_cost > 0
    assert entry.accounts == record.accounts == ("tenant:alice/hourly",)


@pytest.mark.parametrize("how", ["whole", "streamed", "refused", "broken off", "hung up"])
async def test_nothing_of_a_call_waits_for_the_collector(how: str) -> None:
    """Else each call's memory, and its policy's, stays until a collection of the oldest comes."""
    world = World()
    gc.collect()
    before = sum(type(each) in (Run, Exchange) for each in gc.get_objects())
    gc.disable()
    try:
        if how == "whole":
            await world.ask(whole())
        elif how == "streamed":
            await world.ask(streamed(*full_stream()), stream=True)
        elif how == "refused":
            await world.ask(httpx.Response(400, json={"error": {"message": "no"}}))
        elif how == "broken off":
            await world.ask(streamed(then="break"), streamed(then="break"), stream=True)
        else:
            caller = world.call(streamed(role(), then="wait"), stream=True)
            await world.until(lambda: len(caller.sent) > 1)
            caller.hang_up()
            await caller.end()
            del caller
        await asyncio.sleep(0)
        assert sum(type(each) in (Run, Exchange) for each in gc.get_objects()) == before
    finally:
        gc.enable()
