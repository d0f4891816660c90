"""Refusals, in vLLM's shape and with its statuses."""

from __future__ import annotations

import pytest

from tests.fakes import engine_client, running_engine
from tests.integration.engine.asking import CHAT, chat, metric

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("body", "status", "kind", "param"),
    [
        (chat("x" * 200_000), 400, "BadRequestError", "input_tokens"),
        (chat(max_tokens=40_000), 400, "BadRequestError", "max_tokens"),
        (chat(max_tokens=0), 400, "BadRequestError", "max_tokens"),
        (chat(max_completion_tokens=-1), 400, "BadRequestError", "max_completion_tokens"),
        (chat() | {"model": "other"}, 404, "NotFoundError", "model"),
        (chat(n=0), 400, "BadRequestError", "n"),
        (chat(n="many"), 400, "Bad Request", "body.n"),
        (chat(priority=2**63), 400, "Bad Request", "body.priority"),
        (chat(cache_salt=""), 400, "BadRequestError", "cache_salt"),
        (chat(tool_choice="required"), 400, "BadRequestError", "tool_choice"),
        ({"model": "demo-chat"}, 400, "Bad Request", "body"),
        ({"messages": []}, 400, "BadRequestError", "messages"),
        ({"messages": [{"role": "pirate", "content": ""}]}, 400, "Bad Request", "body.messages[0].role"),  # noqa: E501
        ({"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, 400, "BadRequestError", "messages"),  # noqa: E501
        ([], 400, "Bad Request", "body"),
    ],
)  # fmt: skip
async def test_what_it_cannot_take_is_refused(http, engine, body, status, kind, param):
    answer = await http.post(CHAT, json=body)
    error = answer.json()["error"]
    assert answer.status_code == status == error["code"]
    assert (error["type"], error["param"]) == (kind, param)
    assert error["message"]
    assert (engine.running, engine.waiting, engine.open) == (0, 0, 0)


@pytest.mark.parametrize("raw", [b"{", b"", b"\xff\xfe", b'{"messages": [}'])
async def test_what_is_not_json_is_refused(http, raw):
    answer = await http.post(CHAT, content=raw, headers=JSON)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "Bad Request"


async def test_another_content_type_is_refused(http):
    answer = await http.post(CHAT, content=b"{}", headers={"content-type": "text/plain"})
    assert answer.status_code == 400
    assert "application/json" in answer.json()["error"]["message"]


async def test_paths_that_are_not_there_answer_as_fastapi_does(http):
    assert (await http.get("/v1/nothing")).json() == {"detail": "Not Found"}
    assert (await http.get(CHAT)).status_code == 405


async def test_a_key_guards_v1_only():
    async with running_engine(api_key="s3cret") as engine, engine_client(engine) as http:
        assert (await http.get("/v1/models")).status_code == 401
        assert (await http.post(CHAT, json=chat())).json() == {"error": "Unauthorized"}
        key = {"authorization": "Bearer s3cret"}
        assert (await http.post(CHAT, json=chat(), headers=key)).status_code == 200
        assert (await http.get("/metrics")).status_code == 200


async def test_the_valve_answers_503_once_so_many_are_there():
    async with running_engine(max_queued=2) as engine, engine_client(engine) as http:
        assert (await http.post(CHAT, json=chat(n=2))).status_code == 200
        answer = await http.post(CHAT, json=chat(n=3))
        assert answer.status_code == 503
        assert answer.json()["error"]["type"] == "Service Unavailable"
        assert "retry-after" not in answer.headers
        assert await metric(http, "vllm:admission_rejections_total") == 1
