"""Every route of the inference API through the gateway: answered, metered, limited alike."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.gateway.caller import CHAT, HELLO, Answer, Caller
from tests.acceptance.gateway.rig import Rig

MESSAGES = "/v1/messages"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO},
    "/v1/completions": {"prompt": "Once upon"},
    MESSAGES: {"messages": HELLO, "max_tokens": 30},
    "/v1/embeddings": {"input": ["Once upon", "a time"]},
    "/v1/rerank": {"query": "Once upon", "documents": ["a time", "upon a hill"]},
    "/v1/score": {"text_1": "Once upon", "text_2": "a time"},
    "/tokenize": {"prompt": "Once upon a time"},
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


def test_messages_are_metered_whole_and_streamed(rig: Rig) -> None:
    alice = rig.tenant()
    rig.engine.script("in=20,cached=15,out=3")
    for stream in (False, True):
        answer = ask(alice, MESSAGES, stream=stream)
        row = rig.record(answer)
        assert used(row) == (20, 15, 3)
        assert (row["usage_source"], row["cost"], row["finish_reason"]) == ("engine", 23, "stop")
        seen = rig.engine.saw(answer.id)
        assert seen is not None
        assert (seen["path"], seen["priority"]) == (MESSAGES, 11)
    assert [event["type"] for event in answer.events][:2] == [
        "message_start",
        "content_block_start",
    ]
    assert answer.events[-1] == {"type": "message_stop"}


def test_a_stream_of_messages_without_usage_is_counted(rig: Rig) -> None:
    alice = rig.tenant()
    rig.engine.script("out=25,nousage,gap=1ms")
    row = rig.record(ask(alice, MESSAGES, stream=True))
    assert (row["usage_source"], row["completion_tokens"]) == ("counted", 25)


@pytest.mark.parametrize(
    ("words", "status", "code"),
    [("out=50,cut@3", 502, "api_error"), ("out=50,error@3", 502, "api_error")],
)
def test_a_broken_stream_of_messages_ends_with_an_error_event(
    rig: Rig, words: str, status: int, code: str
) -> None:
    alice = rig.tenant()
    rig.engine.script(words)
    answer = ask(alice, MESSAGES, stream=True)
    assert answer.events[-1]["type"] == "error"
    assert answer.error["type"] == code
    row = rig.record(answer)
    assert (row["status"], row["finish_reason"], row["completion_tokens"]) == (status, "error", 3)
    assert row["usage_source"] == "counted"


def test_a_caller_that_leaves_a_message_pays_what_it_got(rig: Rig) -> None:
    alice = rig.tenant(limits={"max_running": 1, "max_queued": 0})
    rig.engine.script("in=9,out=500,gap=5ms")
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
