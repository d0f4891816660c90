"""Scripted faults, and what the engine tells about the requests it got."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.fakes import engine_client
from tests.integration.engine.asking import CHAT, chat, events, stream

SCRIPT = "x-simulate"


async def test_a_status_with_its_wait(http, engine):
    engine.script("status=429,retry-after=7")
    answer = await http.post(CHAT, json=chat())
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert answer.json()["error"]["code"] == 429


async def test_a_script_for_so_many_requests(http, engine):
    engine.script("status=502", times=2)
    statuses = [(await http.post(CHAT, json=chat())).status_code for _ in range(3)]
    assert statuses == [502, 502, 200]


async def test_a_header_is_the_script_of_one_request(http, engine):
    engine.script("status=500")
    answer = await http.post(CHAT, json=chat(), headers={SCRIPT: "out=3"})
    assert answer.json()["usage"]["completion_tokens"] == 3
    assert (await http.post(CHAT, json=chat())).status_code == 500


async def test_a_script_set_over_http(http):
    told = await http.post("/admin/faults", json={"script": "status=503", "times": 1})
    assert told.status_code == 200
    assert (await http.post(CHAT, json=chat())).status_code == 503
    assert (await http.post(CHAT, json=chat())).status_code == 200


@pytest.mark.parametrize(
    "words", ["hodl=3s", "hold=soon", "out=-1", "status=200", "cut@x", "hold=inf"]
)
async def test_a_script_with_a_wrong_word_is_refused_and_names_it(http, words):
    told = await http.post("/admin/faults", json={"script": words})
    assert told.status_code == 400
    assert words in told.json()["error"]["message"]
    assert (await http.post(CHAT, json=chat(), headers={SCRIPT: words})).status_code == 400
    assert (await http.post(CHAT, json=chat())).status_code == 200


async def read_into(got: bytearray, http: httpx.AsyncClient) -> None:
    async with http.stream("POST", CHAT, json=chat(stream=True)) as answer:
        async for chunk in answer.aiter_raw():
            got += chunk


async def test_a_cut_stream_ends_without_done_after_so_many_chunks(http, engine):
    engine.script("out=20,cut@5")
    got = bytearray()
    with pytest.raises(httpx.RemoteProtocolError):
        await read_into(got, http)
    frames = events(got.decode())
    assert "[DONE]" not in frames
    assert len([f for f in frames if f["choices"][0]["delta"].get("content")]) == 5
    await engine.until(lambda: engine.open == 0)
    assert (engine.requests[-1].chunks_sent, engine.running) == (5, 0)
    assert not engine.requests[-1].closed_by_client


async def test_a_cut_plain_answer_is_shorter_than_it_said(http, engine):
    engine.script("cut@1")
    with pytest.raises(httpx.RemoteProtocolError):
        await http.post(CHAT, json=chat())


async def test_an_error_inside_a_stream(http, engine):
    engine.script("out=9,error@2")
    frames = await stream(http, chat())
    assert frames[-2]["error"]["code"] == 500
    assert len(frames) == 1 + 2 + 2


async def test_no_usage(http, engine):
    engine.script("nousage")
    assert "usage" not in (await http.post(CHAT, json=chat())).json()
    frames = await stream(http, chat(stream_options={"include_usage": True}))
    assert all("usage" not in frame for frame in frames[:-1])


async def test_usage_on_every_chunk_and_again_at_the_end(http, engine):
    engine.script("in=10,out=4,usage-every-chunk")
    frames = (await stream(http, chat()))[:-1]
    assert [f["usage"]["completion_tokens"] for f in frames] == [0, 1, 2, 3, 4, 4]
    assert all(f["usage"]["prompt_tokens"] == 10 for f in frames)


async def test_a_strict_engine_refuses_fields_it_does_not_know(http, engine):
    engine.script("strict")
    answer = await http.post(CHAT, json=chat(priority=1))
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "priority")
    assert (await http.post(CHAT, json=chat(temperature=0.5, seed=1))).status_code == 200


@pytest.mark.parametrize("words", ["wait", "wait@3"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_an_engine_that_waits_goes_on_once_another_script_is_set(
    http, engine, words, streamed
):
    engine.script(f"in=3,out=9,{words}", times=1)
    call = asyncio.create_task(http.post(CHAT, json=chat(stream=streamed)))
    await engine.until(lambda: engine.open == 1)
    if streamed and words == "wait@3":
        await engine.until(lambda: engine.requests[-1].chunks_sent == 3)
    assert (await http.post(CHAT, json=chat())).status_code == 200
    assert engine.open == 1
    engine.script("")
    answer = await call
    assert answer.status_code == 200
    assert engine.requests[0].usage["completion_tokens"] == 9
    if streamed:
        assert events(answer.text)[-1] == "[DONE]"


SILENT_WORDS = ("hold=60s", "hang", "hang@2", "wait", "wait@2")
SILENT = [(words, streamed) for words in SILENT_WORDS for streamed in (0, 1)]


@pytest.mark.parametrize(("words", "streamed"), [*SILENT, ("gap=60s", 1)])
async def test_a_silent_engine_notices_that_its_client_is_gone(engine, words, streamed):
    engine.script(f"out=9,{words}")
    async with engine_client(engine) as http:
        call = asyncio.create_task(http.post(CHAT, json=chat(stream=bool(streamed))))
        await engine.until(lambda: engine.open == 1)
        call.cancel()
    await engine.until(lambda: engine.open == 0)
    assert engine.requests[-1].closed_by_client
    assert (engine.running, engine.waiting) == (0, 0)


async def test_it_tells_how_much_a_client_got_that_left_a_stream(engine):
    engine.script("in=30,out=100,gap=1ms")
    async with engine_client(engine) as http:
        async with http.stream("POST", CHAT, json=chat(stream=True)) as answer:
            lines = answer.aiter_lines()
            read = 0
            while read < 40:
                read += '"content":"' in await anext(lines)
        await engine.until(lambda: engine.open == 0)
    received = engine.requests[-1]
    assert received.closed_by_client
    assert 39 <= received.tokens_sent <= 100  # one of the forty was the role
    assert received.usage["prompt_tokens"] == 30
    assert received.usage["completion_tokens"] == received.tokens_sent


async def test_it_remembers_what_it_got_without_prompts_and_keys(http, engine):
    headers = {"authorization": "Bearer s3cret", "x-vllm-priority": "4", "x-tenant-id": "acme"}
    await http.post(CHAT, json=chat("the-secret-prompt", cache_salt="s"), headers=headers)
    received = engine.requests[-1]
    assert received.body["messages"][0]["content"] == "the-secret-prompt"
    assert received.headers["authorization"] == "Bearer s3cret"
    listed = await http.get("/admin/requests")
    assert "secret" not in listed.text
    shown = listed.json()["requests"][-1]
    assert (shown["priority"], shown["status"], shown["path"]) == (4, 200, CHAT)
    assert (shown["body"]["cache_salt"], shown["headers"]["x-tenant-id"]) == ("s", "acme")
    assert shown["tokens_sent"] == shown["usage"]["completion_tokens"]
