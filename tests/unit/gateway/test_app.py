"""Which path is whose, and what stands on the model list."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gateway.app import GatewayApp
from gateway.exchange import Message
from tests.unit.gateway.cast import SECRET, A
from tests.unit.gateway.world import HELLO, World


class Service:
    """What the app needs of a started gateway."""

    def __init__(self) -> None:
        self.calls = World().calls
        self.ready = True

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def drain(self) -> None: ...


class Answer:
    def __init__(self, messages: list[Any]) -> None:
        start, *rest = messages
        self.status: int = start["status"]
        self.headers = {n.decode(): v.decode() for n, v in start["headers"]}
        self.body = b"".join(message["body"] for message in rest)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    path: str,
    method: str = "GET",
    key: str | None = "alice",
    body: Any = None,
    service: Service | None = None,
) -> Answer:
    sent: list[Message] = []
    whole = b"" if body is None else json.dumps(body).encode()

    unread = [whole]

    async def receive() -> Message:
        if not unread:
            await asyncio.Event().wait()  # the caller stays
        return {"type": "http.request", "body": unread.pop(), "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [] if key is None else [(b"x-api-key", SECRET.get(key, key.encode()))]
    scope = {"type": "http", "path": path, "method": method, "headers": headers}
    app = GatewayApp(service or Service())  # type: ignore[arg-type]
    await app(scope, receive, send)
    return Answer(sent)


async def models(key: str) -> list[str]:
    answer = await ask("/v1/models", key=key)
    assert answer.json["object"] == "list"
    return [model["id"] for model in answer.json["data"]]


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/v1/chat/completions", {"messages": HELLO}),
        ("/v1/completions", {"prompt": "Hello"}),
    ],
)
async def test_both_kinds_of_call_reach_their_engine(path: str, asked: dict[str, Any]) -> None:
    world = World()
    service = Service()
    service.calls = world.calls
    answer = await ask(path, "POST", body={"model": "chat", **asked}, service=service)
    assert answer.status == 200
    assert [str(request.url) for request in world.asked] == [A + path.removeprefix("/v1")]


async def test_the_list_has_what_the_key_may_use_with_its_aliases() -> None:
    assert await models("alice") == ["chat", "gpt-4o-mini", "org/code"]
    assert await models("bob") == ["chat", "gpt-4o-mini"]


async def test_one_model_is_looked_up_by_name_or_alias_even_with_a_slash() -> None:
    for name in ("chat", "gpt-4o-mini", "org/code"):
        answer = await ask(f"/v1/models/{name}")
        assert (answer.status, answer.json["id"], answer.json["object"]) == (200, name, "model")


@pytest.mark.parametrize(("key", "name"), [("alice", "gpt-9"), ("bob", "org/code")])
async def test_a_model_of_others_is_as_unknown_as_one_that_does_not_exist(
    key: str, name: str
) -> None:
    answer = await ask(f"/v1/models/{name}", key=key)
    assert (answer.status, answer.json["error"]["code"]) == (404, "model_not_found")
    assert answer.json["error"]["param"] == "model"


@pytest.mark.parametrize("key", [None, "wrong", "old"])
async def test_models_need_a_key(key: str | None) -> None:
    answer = await ask("/v1/models", key=key)
    assert (answer.status, answer.json["error"]["code"]) == (401, "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/files", "/v1/chat", "/tokenize"])
async def test_what_is_not_there_is_a_404_in_the_dialect_of_clients(path: str) -> None:
    answer = await ask(path, "POST")
    assert (answer.status, answer.json["error"]["code"]) == (404, "invalid_request")
    assert path in answer.json["error"]["message"]
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [
        ("/v1/chat/completions", "GET", "POST"),
        ("/v1/completions", "PUT", "POST"),
        ("/v1/models", "POST", "GET"),
        ("/v1/models/chat", "DELETE", "GET"),
    ],
)
async def test_a_wrong_method_is_told_the_right_one(path: str, method: str, allowed: str) -> None:
    answer = await ask(path, method)
    assert (answer.status, answer.headers["allow"]) == (405, allowed)
    assert f"{path} takes {allowed}, not {method}" in answer.json["error"]["message"]


async def test_ready_is_told_apart_from_alive() -> None:
    service = Service()
    service.ready = False
    assert (await ask("/readyz", key=None, service=service)).status == 503
    assert (await ask("/healthz", key=None, service=service)).status == 200
    service.ready = True
    assert (await ask("/readyz", key=None, service=service)).status == 200


async def test_metrics_are_in_the_text_format() -> None:
    answer = await ask("/metrics", key=None)
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert b"# TYPE fairlane_requests_total counter" in answer.body


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/v1/models"])
async def test_head_is_answered_where_get_is(path: str) -> None:
    answer = await ask(path, "HEAD")
    assert answer.status == 200
    assert int(answer.headers["content-length"]) > 0


async def test_a_probe_takes_no_other_method() -> None:
    assert (await ask("/healthz", "POST")).status == 404
