"""`/tokenize` in vLLM's form before a llama.cpp server, which knows another: what it is asked, and
what its caller gets."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.unit.gateway.cast import A, snapshot
from tests.unit.gateway.world import HELLO, Stream, World

TEMPLATE, TOKENIZE = "/apply-template", "/tokenize"
RENDERED = "<start>user\nHello<end>"


def world(*urls: str) -> World:
    ends = [{"url": url} for url in urls or (A,)]
    return World(snapshot(pool={"engine": "llamacpp", "endpoints": ends}))


def replies(tokens: Any) -> list[httpx.Response]:
    return [
        httpx.Response(200, json={"prompt": RENDERED}),
        httpx.Response(200, json={"tokens": tokens}),
    ]


def asked(here: World) -> list[tuple[str, dict[str, Any]]]:
    return [(request.url.path, json.loads(request.content)) for request in here.asked]


async def test_a_chat_is_rendered_by_the_engines_template_and_then_counted() -> None:
    here = world()
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    options = {"tools": tools, "add_generation_prompt": False, "model": "gpt-4o-mini"}
    caller = await here.ask(*replies([1, 2, 3]), kind="tokenize", messages=HELLO, **options)
    (first, sent), (second, counted) = asked(here)
    assert (first, second) == (TEMPLATE, TOKENIZE)
    assert (sent["messages"], sent["tools"]) == (HELLO, tools)
    assert sent["add_generation_prompt"] is False
    assert counted == {"model": "chat", "content": RENDERED, "add_special": True}
    assert caller.status == 200
    assert json.loads(caller.body) == {"count": 3, "max_model_len": None, "tokens": [1, 2, 3]}
    assert caller.headers["content-type"] == "application/json"
    assert (here.record.prompt_tokens, here.record.usage_source) == (1, "engine")
    assert here.is_empty


@pytest.mark.parametrize(("given", "special"), [({}, True), ({"add_special_tokens": False}, False)])
async def test_a_text_is_counted_under_the_name_that_the_engine_knows(
    given: dict[str, bool], special: bool
) -> None:
    """It would answer an empty list to a `prompt`, which it does not read."""
    here = world()
    caller = await here.ask(
        httpx.Response(200, json={"tokens": [5] * 250}), kind="tokenize", prompt="Once", **given
    )
    assert asked(here) == [(TOKENIZE, {"model": "chat", "content": "Once", "add_special": special})]
    assert json.loads(caller.body)["count"] == 250
    assert here.record.prompt_tokens == 3


async def test_who_speaks_the_engines_own_form_gets_its_answer_as_it_came() -> None:
    here = world()
    reply = httpx.Response(200, json={"tokens": [{"id": 5, "piece": "On"}]})
    body = json.dumps({"model": "chat", "content": "On", "with_pieces": True}).encode()
    caller = await here.ask(reply, kind="tokenize", body=body)
    assert [request.content for request in here.asked] == [body]
    assert json.loads(caller.body) == {"tokens": [{"id": 5, "piece": "On"}]}


@pytest.mark.parametrize(
    ("reply", "status", "words"),
    [
        (httpx.Response(400, json={"error": {"message": "'role' is odd"}}), 400, "'role' is odd"),
        (httpx.Response(404), 502, "does not serve /tokenize"),
        (httpx.Response(200, json={"text": "x"}), 502, "no prompt"),
        (httpx.Response(200, content=b"<html>"), 502, "no prompt"),
        (httpx.Response(200, content=b'{"prompt": "\\ud800"}'), 502, "can not be passed on"),
        (httpx.ReadError("gone"), 502, "broke off"),
        (httpx.ReadTimeout("slow"), 504, "too long"),
    ],
)
async def test_a_template_that_fails_is_an_error_that_says_so(
    reply: Any, status: int, words: str
) -> None:
    here = world()
    caller = await here.ask(reply, kind="tokenize", messages=HELLO)
    assert caller.status == status
    assert words in caller.error["message"]
    assert [path for path, _ in asked(here)] == [TEMPLATE]
    assert here.record.cost == 0
    assert here.is_empty


async def test_an_engine_that_fails_in_the_middle_is_left_for_another_which_does_both() -> None:
    here = world(A, "http://engine-b/v1")
    template, _ = replies([])
    caller = await here.ask(
        template, httpx.Response(500), *replies([1, 2]), kind="tokenize", messages=HELLO
    )
    assert json.loads(caller.body)["count"] == 2
    assert [path for path, _ in asked(here)] == [TEMPLATE, TOKENIZE] * 2
    assert len({request.url.host for request in here.asked}) == 2
    assert here.is_empty


async def test_a_caller_that_leaves_while_its_chat_is_rendered_ends_it_there() -> None:
    here = world()
    stuck = Stream(b'{"prompt": "', then="wait")
    reply = httpx.Response(200, stream=stuck)
    call = here.call(reply, kind="tokenize", messages=HELLO)
    await here.until(lambda: here.asked)
    call.hang_up()
    await call.end()
    assert here.record.status == 499
    assert stuck.is_closed
    assert here.is_empty
