"""Priority, hang-ups and metrics, seen through the socket."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from scheduling.simulate.engine import Policy
from scheduling.simulate.profile import Profile, StepTime
from tests.fakes import RunningEngine, engine_client, running_engine
from tests.integration.engine.asking import CHAT, chat, metric

LONG = 8000  # tokens: longer than any test


def one_at_a_time(**changes: object) -> Profile:
    values: dict[str, object] = {
        "name": "one",
        "max_num_seqs": 1,
        "max_num_batched_tokens": 4096,
        "num_gpu_blocks": 1024,
        "max_model_len": 16384,
        "step": StepTime(base_ms=10),
    }
    return Profile(**(values | changes))  # type: ignore[arg-type]


async def finishing_order(policy: Policy, asks: list[tuple[str, dict]]) -> list[str]:
    """Names in the order in which they are answered, asked one after the other while the
    engine's only place is taken."""
    order: list[str] = []
    async with (
        running_engine(one_at_a_time(), policy=policy) as engine,
        engine_client(engine) as http,
        asyncio.TaskGroup() as group,
    ):

        async def ask(name: str, options: dict) -> None:
            answer = await http.post(
                CHAT, json=chat(max_tokens=3, **options.get("body", {})),
                headers=options.get("headers", {}),
            )  # fmt: skip
            assert answer.status_code == 200
            order.append(name)

        blocker = group.create_task(http.post(CHAT, json=chat(max_tokens=LONG, ignore_eos=True)))
        await engine.until(lambda: engine.running == 1)
        for count, (name, options) in enumerate(asks, start=1):
            group.create_task(ask(name, options))
            await engine.until(lambda count=count: engine.waiting == count)
        blocker.cancel()
    return order


async def test_waiting_requests_go_by_priority_and_the_header_wins_over_the_body():
    asks = [
        ("low by header", {"headers": {"x-vllm-priority": "9"}, "body": {"priority": -9}}),
        ("none", {}),
        ("high by body", {"body": {"priority": -1}}),
        ("body, for the header is no number", {"headers": {"x-vllm-priority": "urgent"}, "body": {"priority": -2}}),  # noqa: E501
        ("highest by header", {"headers": {"x-vllm-priority": "-5"}}),
    ]  # fmt: skip
    assert await finishing_order("priority", asks) == [
        "highest by header",
        "body, for the header is no number",
        "high by body",
        "none",
        "low by header",
    ]


async def test_under_fcfs_priority_is_ignored_without_a_word():
    asks = [
        ("first", {"headers": {"x-vllm-priority": "9"}}),
        ("second", {"headers": {"x-vllm-priority": "-9"}}),
        ("third", {"body": {"priority": -20}}),
    ]
    assert await finishing_order("fcfs", asks) == ["first", "second", "third"]


async def test_a_priority_past_int64_is_a_500_with_an_empty_message(http):
    answer = await http.post(CHAT, json=chat(), headers={"x-vllm-priority": str(2**63)})
    assert answer.status_code == 500
    assert answer.json()["error"]["message"] == ""
    assert (await http.post(CHAT, json=chat())).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_hangs_up_aborts_at_once(engine, http, stream):
    async with engine_client(engine) as leaving:
        body = chat(max_tokens=LONG, ignore_eos=True, stream=stream, n=2)
        call = asyncio.create_task(leaving.post(CHAT, json=body))
        await engine.until(lambda: engine.running == 2)
        call.cancel()
    await engine.until(lambda: engine.open == 0)
    assert (engine.running, engine.waiting) == (0, 0)
    assert engine.app.engine.kv.held == 0
    assert engine.requests[-1].closed_by_client
    assert await metric(http, "vllm:request_success_total") == 0


async def test_a_client_that_hangs_up_while_it_waits_leaves_the_queue():
    async with running_engine(one_at_a_time()) as engine, engine_client(engine) as http:
        first = asyncio.create_task(http.post(CHAT, json=chat(max_tokens=LONG, ignore_eos=True)))
        await engine.until(lambda: engine.running == 1)
        second = asyncio.create_task(http.post(CHAT, json=chat()))
        await engine.until(lambda: engine.waiting == 1)
        second.cancel()
        await engine.until(lambda: engine.waiting == 0)
        assert engine.running == 1
        first.cancel()


async def test_metrics_tell_what_was_served(http):
    await http.post(CHAT, json=chat(max_tokens=7, ignore_eos=True))
    await http.post(CHAT, json=chat(max_tokens=5000))
    text = (await http.get("/metrics")).text
    assert (
        'vllm:request_success_total{engine="0",finished_reason="length",model_name="demo-chat"} 1.0'
        in text
    )
    assert (
        'vllm:request_success_total{engine="0",finished_reason="stop",model_name="demo-chat"} 1.0'
        in text
    )
    assert await metric(http, "vllm:generation_tokens_total") > 7
    assert await metric(http, "vllm:prompt_tokens_total") == 2 * await prompt_tokens(http)
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time"):
        assert await metric(http, f"vllm:{name}_seconds_count") >= 2
    assert await metric(http, "vllm:kv_cache_usage_perc") == 0


async def prompt_tokens(http: httpx.AsyncClient) -> int:
    body = {"messages": chat()["messages"]}
    return int((await http.post("/tokenize", json=body)).json()["count"])


async def test_gauges_follow_what_runs_and_waits():
    async with running_engine(one_at_a_time()) as engine, engine_client(engine) as http:
        body = chat(max_tokens=LONG, ignore_eos=True)
        calls = [asyncio.create_task(http.post(CHAT, json=body)) for _ in range(3)]
        await engine.until(lambda: (engine.running, engine.waiting) == (1, 2))
        assert await metric(http, "vllm:num_requests_running") == 1
        assert await metric(http, "vllm:num_requests_waiting") == 2
        assert await metric(http, "vllm:kv_cache_usage_perc") > 0
        assert (await http.get("/load")).json() == {"server_load": 3}
        for call in calls:
            call.cancel()


async def test_a_lack_of_kv_preempts_the_less_urgent_and_is_not_billed():
    quick = StepTime(base_ms=1)
    tight = one_at_a_time(max_num_seqs=4, num_gpu_blocks=64, max_model_len=1024, step=quick)
    async with running_engine(tight) as engine, engine_client(engine) as http:
        body = chat(max_tokens=800, ignore_eos=True)
        low = asyncio.create_task(http.post(CHAT, json=body, headers={"x-vllm-priority": "9"}))
        await engine.until(lambda: engine.running == 1)
        high = await http.post(CHAT, json=body, headers={"x-vllm-priority": "0"})
        assert not low.done()
        for answer in (high, await low):
            assert answer.json()["usage"]["completion_tokens"] == 800
        assert await metric(http, "vllm:num_preemptions_total") >= 1
        assert await metric(http, "vllm:generation_tokens_total") == 1600


async def test_an_idle_engine_has_no_timer(engine: RunningEngine, http):
    await http.post(CHAT, json=chat(max_tokens=3))
    await engine.until(lambda: engine.open == 0)
    assert engine.app.live.idle
