"""Which path is whose, and what stands on the model list."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Any

import pytest

from gateway.app import CALLS, PROBES, SERVED, GatewayApp, is_ours
from gateway.exchange import Message
from tests.unit.gateway.cast import SECRET, A
from tests.unit.gateway.world import ASKED, World

PROXY = "10.0.0.5"


class Service:
    """What the app needs of a started gateway."""

    def __init__(self) -> None:
        self.calls = World().calls
        self.snapshot = self.calls.snapshot
        self.ready = True

    @property
    def fault(self) -> str:
        return "" if self.ready else "starting or stopping"

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def drain(self) -> None: ...

    def measure(self) -> None: ...


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
    raw_path: bytes | None = None,
    request_id: str = "",
    proxies: tuple[str, ...] = (),
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
    headers += [(b"x-request-id", request_id.encode())] if request_id else []
    scope = {
        "type": "http",
        "path": path,
        "raw_path": path.encode() if raw_path is None else raw_path,
        "method": method,
        "headers": headers,
        "client": (PROXY, 4711),
    }
    app = GatewayApp(service or Service(), proxies)  # type: ignore[arg-type]
    await app(scope, receive, send)
    return Answer(sent)


async def models(key: str) -> list[str]:
    answer = await ask("/v1/models", key=key)
    assert answer.json["object"] == "list"
    return [model["id"] for model in answer.json["data"]]


@pytest.mark.parametrize("path", CALLS)
async def test_each_kind_of_call_reaches_its_engine(path: str) -> None:
    world = World()
    service = Service()
    service.calls = world.calls
    answer = await ask(path, "POST", body={"model": "chat", **ASKED[CALLS[path]]}, service=service)
    assert answer.status == 200
    base = A if path.startswith("/v1") else A.removesuffix("/v1")
    assert [str(request.url) for request in world.asked] == [base + path.removeprefix("/v1")]


async def test_the_list_has_what_the_key_may_use_with_its_aliases() -> None:
    assert await models("alice") == ["chat", "gpt-4o-mini", "org/code"]
    assert await models("bob") == ["chat", "gpt-4o-mini"]


async def test_the_list_is_also_one_page_as_anthropics_clients_read_it() -> None:
    page = (await ask("/v1/models", key="alice")).json
    assert (page["first_id"], page["last_id"], page["has_more"]) == ("chat", "org/code", False)
    [model, *_] = page["data"]
    assert (model["type"], model["display_name"]) == ("model", "chat")
    assert datetime.fromisoformat(model["created_at"]).timestamp() == model["created"]


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


ODD = [
    *("/v1", "/v1/", "/v1/files", "/v1/chat", "/v1/chat/completions/", "/v1//chat/completions"),
    *("//v1/chat/completions", "/V1/chat/completions", "/v1/Chat/Completions", "/v1/embeddings/x"),
    *(
        "/v1/tokenize",
        "/tokenize/",
        "/Tokenize",
        "/detokenize",
        "/v1/rerank;x",
        "/v1/score/../score",
    ),
    *("/v2/rerank", "/v1/chat/completions\n", "/v1/pooling", "/invocations"),
]


@pytest.mark.parametrize("path", ODD)
async def test_what_is_not_there_is_a_404_in_the_dialect_of_clients_and_reaches_no_engine(
    path: str,
) -> None:
    world, service = World(), Service()
    service.calls = world.calls
    for method in ("POST", "GET", "DELETE"):
        answer = await ask(path, method, body=ASKED["chat"], service=service)
        assert (answer.status, answer.json["error"]["code"]) == (404, "invalid_request")
        assert path in answer.json["error"]["message"]
        assert answer.headers["content-type"] == "application/json"
    assert (world.asked, world.journal.records) == ([], [])


@pytest.mark.parametrize("path", ["/v1/messages/", "/v1/messages/count_tokens"])
async def test_what_is_not_there_below_messages_is_told_in_anthropics_shape(path: str) -> None:
    answer = await ask(path, "POST")
    assert (answer.status, answer.json["type"]) == (404, "error")
    assert answer.json["error"] == {
        "type": "not_found_error",
        "message": f"There is no {path} here. {SERVED}",
    }
    wrong = await ask("/v1/messages")
    assert (wrong.status, wrong.json["error"]["type"]) == (405, "invalid_request_error")


@pytest.mark.parametrize("path", CALLS)
async def test_an_escaped_spelling_is_none(path: str) -> None:
    world, service = World(), Service()
    service.calls = world.calls
    escaped = path[:-1].encode() + b"%%%02x" % ord(path[-1])
    answer = await ask(path, "POST", body=ASKED[CALLS[path]], service=service, raw_path=escaped)
    assert answer.status == 404
    assert world.asked == []


def test_paths_that_look_like_ours_are_answered_here() -> None:
    for path in ("/v1", "/V1/x", "//v1/x", "/tokenize", "/tokenize/", "/detokenize", *PROBES):
        assert is_ours(path), path
    for path in ("/", "/api/v1/keys/", "/v1x", "/usage/", "/tokenizer", "/healthz/", "/health/"):
        assert not is_ours(path), path


@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [
        *((path, method, "POST") for path in CALLS for method in ("GET", "PUT", "DELETE")),
        ("/v1/models", "POST", "GET"),
        ("/v1/models/chat", "DELETE", "GET"),
        *((path, "POST", "GET") for path in PROBES),
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
    assert (await ask("/health", key=None, service=service)).status == 200  # as engines call it
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


EVERYWHERE = ["/v1/models", "/v1/models/gpt-9", "/v1/nothing", "/healthz", "/readyz", "/metrics"]


@pytest.mark.parametrize("path", [*EVERYWHERE, "/v1/chat/completions"])  # GET of it: a 405
async def test_every_answer_has_an_id_of_its_own(path: str) -> None:
    first, second = [(await ask(path)).headers["x-request-id"] for _ in range(2)]
    assert len(first) == 32
    assert first != second


@pytest.mark.parametrize("path", EVERYWHERE)
async def test_a_trusted_proxy_names_the_request_and_nobody_else_does(path: str) -> None:
    for proxies, given, told in (
        ((PROXY,), "edge-1", True),
        (("10.0.0.0/8",), "edge/1:2@3+4=5", True),
        (("10.0.0.6",), "edge-1", False),
        ((), "edge-1", False),
        ((PROXY,), "x" * 128, True),
        ((PROXY,), "x" * 129, False),
        ((PROXY,), "a b", False),
        ((PROXY,), "a\nb", False),
    ):
        answer = await ask(path, request_id=given, proxies=proxies)
        assert (answer.headers["x-request-id"] == given) is told


async def test_on_messages_an_error_tells_its_id_in_all_three_places() -> None:
    answer = await ask("/v1/messages", request_id="edge-1", proxies=(PROXY,))
    assert answer.status == 405
    ids = answer.headers["x-request-id"], answer.headers["request-id"], answer.json["request_id"]
    assert ids == ("edge-1",) * 3


async def test_calls_that_a_proxy_names_alike_are_records_of_their_own() -> None:
    world, service = World(), Service()
    service.calls = world.calls
    body = {"model": "chat", **ASKED["chat"]}
    for key in ("alice", "alice", "who-knows"):
        path = "/v1/chat/completions"
        answer = await ask(
            path, "POST", key, body, service=service, request_id="edge-1", proxies=(PROXY,)
        )
        assert answer.headers["x-request-id"] == "edge-1"
    first, second = [record.request_id for record in world.journal.records]
    assert first != second
    assert [each.partition(".")[2] for each in (first, second)] == ["edge-1"] * 2
    assert {request.headers["x-request-id"] for request in world.asked} == {"edge-1"}
