"""Every route of the inference API through the gateway: answered, metered, limited alike."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.acceptance.gateway.caller import CHAT, HELLO, Answer, Caller
from tests.acceptance.gateway.rig import Rig

RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO},
    "/v1/completions": {"prompt": "Once upon"},
    RESPONSES: {"input": "Hello there"},
    MESSAGES: {"messages": HELLO, "max_tokens": 30},
    "/v1/embeddings": {"input": ["Once upon", "a time"]},
    "/v1/rerank": {"query": "Once upon", "documents": ["a time", "upon a hill"]},
    "/v1/score": {"text_1": "Once upon", "text_2": "a time"},
    "/tokenize": {"prompt": "Once upon a time"},
}
TYPED = {  # the first and the last event of their streams
    RESPONSES: ("response.created", "response.completed"),
    MESSAGES: ("message_start", "message_stop"),
}
POOLING = ("/v1/embeddings", "/v1/rerank", "/v1/score")


def ask(caller: Caller, path: str, **more: Any) -> Answer:
    return caller.start(path, **{**BODIES[path], **more}).answer()


def used(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["prompt_tokens"], row["cached_tokens"], row["completion_tokens"]


@pytest.mark.parametrize("model", ["chat", "plain"])
@pytest.mark.parametrize("path", POOLING)
def test_what_generates_nothing_is_metered_by_its_prompt(rig: Rig, path: str, model: str) -> None:
    alice = rig.tenant()
    answer = ask(alice, path, model=model)
    assert answer.status == 200
    usage = answer.json["usage"]
    row = rig.record(answer)
    assert used(row) == (usage["prompt_tokens"], 0, 0)
    assert row["prompt_tokens"] > 0
    assert (row["cost"], row["usage_source"]) == (row["prompt_tokens"], "engine")
    assert (row["status"], row["finish_reason"], row["model"]) == (200, "stop", model)


def test_answers_come_as_the_engine_gave_them(rig: Rig) -> None:
    alice = rig.tenant()
    vectors = ask(alice, "/v1/embeddings", dimensions=3).json["data"]
    assert [len(vector["embedding"]) for vector in vectors] == [3, 3]
    ranked = ask(alice, "/v1/rerank").json["results"]
    assert [result["index"] for result in ranked] == [1, 0]
    assert 0 <= ask(alice, "/v1/score").json["data"][0]["score"] <= 1
    assert ask(alice, "/tokenize").json["count"] == 4


def test_counting_tokens_costs_a_hundredth_and_is_on_the_record(rig: Rig) -> None:
    alice = rig.tenant(limits={"max_input_tokens": 100, "requests_per_minute": 2})
    for length, charged in ((16, 1), (6000, 15)):
        answer = ask(alice, "/tokenize", prompt="x" * length)
        assert answer.json["count"] == length // 4
        row = rig.record(answer)
        assert (used(row), row["cost"]) == ((charged, 0, 0), charged)
    refused = ask(alice, "/tokenize")
    assert (refused.status, refused.code) == (429, "rate_limit_exceeded")


@pytest.mark.parametrize("path", POOLING)
def test_the_lanes_priority_goes_with_them_and_the_callers_does_not(rig: Rig, path: str) -> None:
    alice = rig.tenant()
    answer = ask(alice, path, priority=-99)
    seen = rig.engine.saw(answer.id)
    assert seen is not None
    assert seen["priority"] == 11
    assert seen["body"]["cache_salt"]


@pytest.mark.parametrize("path", POOLING)
def test_an_engine_that_fails_is_left_for_another_one(rig: Rig, path: str) -> None:
    alice = rig.tenant(model="pair")
    rig.engine.script("status=500", times=1)
    answers = [ask(alice, path) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 200]
    assert [row["status"] for row in rig.records(alice.tenant, 2)] == [200, 200]


@pytest.mark.parametrize("path", TYPED)
def test_typed_streams_and_whole_answers_are_metered(rig: Rig, path: str) -> None:
    alice = rig.tenant()
    rig.engine.script("in=20,cached=15,out=3")
    for stream in (False, True):
        answer = ask(alice, path, stream=stream)
        row = rig.record(answer)
        assert used(row) == (20, 15, 3)
        assert (row["usage_source"], row["cost"], row["finish_reason"]) == ("engine", 23, "stop")
        seen = rig.engine.saw(answer.id)
        assert seen is not None
        assert (seen["path"], seen["priority"]) == (path, 11)
    first, last = TYPED[path]
    assert (answer.events[0]["type"], answer.events[-1]["type"]) == (first, last)
    assert not answer.done


@pytest.mark.parametrize("path", TYPED)
def test_a_typed_stream_without_usage_is_counted(rig: Rig, path: str) -> None:
    alice = rig.tenant()
    rig.engine.script("out=25,nousage,gap=1ms")
    row = rig.record(ask(alice, path, stream=True))
    assert (row["usage_source"], row["completion_tokens"]) == ("counted", 25)


@pytest.mark.parametrize("path", TYPED)
@pytest.mark.parametrize("words", ["out=50,cut@3", "out=50,error@3"])
def test_a_broken_typed_stream_ends_with_an_error_event(rig: Rig, path: str, words: str) -> None:
    alice = rig.tenant()
    rig.engine.script(words)
    answer = ask(alice, path, stream=True)
    assert answer.events[-1]["type"] == "error"
    row = rig.record(answer)
    assert (row["status"], row["finish_reason"], row["completion_tokens"]) == (502, "error", 3)
    assert row["usage_source"] == "counted"


def test_a_response_can_not_be_built_on_or_asked_for(rig: Rig) -> None:
    alice = rig.tenant()
    kept = ask(alice, RESPONSES, store=True)
    assert kept.json["store"] is False
    seen = rig.engine.saw(kept.id)
    assert seen is not None
    assert seen["body"]["store"] is False
    refused = ask(alice, RESPONSES, previous_response_id=kept.json["id"])
    assert (refused.status, refused.error["param"]) == (400, "previous_response_id")
    assert alice.get(f"{RESPONSES}/{kept.json['id']}").status == 404
    assert ask(alice, RESPONSES, background=True).error["param"] == "background"


def test_every_endpoint_moves_the_same_limit_and_has_its_row(rig: Rig) -> None:
    """D14. Thirty units each, of which embeddings have all in the prompt."""
    budget = {"name": "burst", "kind": "burst", "cost": 100, "refill_per_second": 0.001}
    alice = rig.tenant(model=rig.pool(), budgets=[budget])
    bounds = {CHAT: "max_tokens", "/v1/completions": "max_tokens", "/v1/embeddings": None}
    bounds |= {RESPONSES: "max_output_tokens", MESSAGES: "max_tokens"}
    answers = []
    for path, bound in bounds.items():
        rig.engine.script("in=10,out=20" if bound else "in=15")  # of each of its two texts
        answers.append(ask(alice, path, **({bound: 20} if bound else {})))
    statuses = [answer.status for answer in answers]
    assert statuses[:3] == [200, 200, 200]
    assert 429 in statuses[3:]
    assert statuses[statuses.index(429) :] == [429] * statuses[3:].count(429)
    rows = rig.records(alice.tenant, 5)
    assert [row["status"] for row in rows] == statuses
    assert [row["cost"] for row in rows if row["status"] == 200] == [30] * statuses.count(200)


def test_a_caller_that_leaves_a_message_pays_what_it_got(rig: Rig) -> None:
    alice = rig.tenant(limits={"max_running": 1, "max_queued": 0})
    rig.engine.script("in=9,out=500,hang@20")
    call = alice.start(MESSAGES, **BODIES[MESSAGES], stream=True)
    call.read_events(4)
    call.hang_up()
    [row] = rig.records(alice.tenant, 1)
    assert (row["status"], row["finish_reason"]) == (499, "cancelled")
    assert 2 <= row["completion_tokens"] < 500
    assert row["prompt_tokens"] == 9
    rig.engine.script("")
    assert ask(alice, MESSAGES).status == 200


def test_refusals_of_messages_have_their_shape(rig: Rig) -> None:
    alice = rig.tenant(limits={"requests_per_minute": 1})
    assert ask(alice, MESSAGES).status == 200
    refused = ask(alice, MESSAGES)
    assert (refused.status, refused.error["type"]) == (429, "rate_limit_error")
    assert refused.json["type"] == "error"
    assert refused.json["request_id"] == refused.headers["request-id"] == refused.id
    assert int(refused.headers["retry-after"]) >= 1
    large = alice.send(MESSAGES, b"x" * (17 * 2**20)).answer()
    assert (large.status, large.error["type"]) == (413, "request_too_large")


@pytest.mark.parametrize("path", BODIES)
def test_every_answer_says_whose_it_is_and_what_is_left(rig: Rig, path: str) -> None:
    alice = rig.tenant(limits={"requests_per_minute": 5, "tokens_per_minute": 100_000})
    headers = ask(alice, path).headers
    assert headers["x-fairlane-lane"] == "normal"
    assert int(headers["x-fairlane-queue-ms"]) >= 0
    assert headers["x-ratelimit-remaining-requests"] == "4"
    assert int(headers["x-ratelimit-remaining-tokens"]) < 100_000


ODD = [
    *("//v1/chat/completions", "/v1//chat/completions", "/v1/chat/completions/", "/v1/messages/"),
    *("/V1/chat/completions", "/v1/Messages", "/v1/chat%2Fcompletions", "/v1/%63hat/completions"),
    *("/v1/./chat/completions", "/v1/x/../responses", "/tokenize/", "/%74okenize", "/detokenize"),
    *("/v1/pooling", "/v1/responses/resp_1", "/v1/responses/resp_1/cancel", "/v1/batches"),
]


def test_no_odd_spelling_reaches_an_engine(rig: Rig) -> None:
    alice = rig.tenant()
    body = json.dumps({"model": "chat", **BODIES[CHAT], "input": "x", "max_tokens": 3}).encode()
    for path in ODD:
        answer = alice.send(path, body).answer()
        assert answer.status == 404, path
        kind = "not_found_error" if path.startswith("/v1/messages") else "invalid_request_error"
        assert answer.error["type"] == kind, path
    assert rig.rows(alice.tenant) == []
    served = alice.chat()
    assert {r["path"] for r in rig.engine.seen()} <= set(BODIES)
    assert [row["request_id"] for row in rig.records(alice.tenant, 1)] == [served.id]
