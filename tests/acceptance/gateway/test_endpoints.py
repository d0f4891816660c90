"""Every route of the inference API through the gateway: answered, metered, limited alike."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.gateway.caller import CHAT, HELLO, Answer, Caller
from tests.acceptance.gateway.rig import Rig

BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO},
    "/v1/completions": {"prompt": "Once upon"},
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


@pytest.mark.parametrize("path", BODIES)
def test_every_answer_says_whose_it_is_and_what_is_left(rig: Rig, path: str) -> None:
    alice = rig.tenant(limits={"requests_per_minute": 5, "tokens_per_minute": 100_000})
    headers = ask(alice, path).headers
    assert headers["x-fairlane-lane"] == "normal"
    assert int(headers["x-fairlane-queue-ms"]) >= 0
    assert headers["x-ratelimit-remaining-requests"] == "4"
    assert int(headers["x-ratelimit-remaining-tokens"]) < 100_000
