"""What must not get through: words of callers and engines into what is kept, a second request
inside a first, an engine's redirect, an answer faster than it is read."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.acceptance.gateway.caller import Answer, Caller
from tests.acceptance.gateway.engine import Asked, OwnEngine, own_engine
from tests.acceptance.gateway.rig import Rig, kept
from tests.acceptance.stack import PATIENCE_S, until

PROMPT, ANSWER = "SecretPrompt7281", "SecretAnswer9310"
SAID = [{"role": "user", "content": PROMPT}]
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": SAID},
    "/v1/completions": {"prompt": PROMPT},
    "/v1/responses": {"input": PROMPT, "instructions": PROMPT},
    "/v1/messages": {"messages": SAID, "system": PROMPT, "max_tokens": 5},
    "/v1/embeddings": {"input": PROMPT},
    "/v1/rerank": {"query": PROMPT, "documents": [PROMPT]},
    "/v1/score": {"text_1": PROMPT, "text_2": PROMPT},
    "/tokenize": {"prompt": PROMPT},
}
FIRST = {  # an event with content, as each streaming route has it
    "/v1/chat/completions": {"choices": [{"index": 0, "delta": {"content": ANSWER}}]},
    "/v1/completions": {"choices": [{"index": 0, "text": ANSWER}]},
    "/v1/responses": {"type": "response.output_text.delta", "delta": ANSWER},
    "/v1/messages": {"type": "content_block_delta", "delta": {"text": ANSWER}},
}


def event(path: str, **more: Any) -> bytes:
    said = json.dumps({**FIRST[path], **more}).encode()
    return b"data: " + said + b"\n\n"


@pytest.fixture
def engine() -> Iterator[OwnEngine]:
    with own_engine() as server:
        yield server


def tenant_of(rig: Rig, engine: OwnEngine, **fields: Any) -> Caller:
    return rig.tenant(model=rig.pool(endpoints=[{"url": engine.url}]), **fields)


# --- words ----------------------------------------------------------------------------------


def answers_with_words(asked: Asked) -> None:
    words = {"choices": [{"text": ANSWER, "finish_reason": ANSWER}], "count": 3, "id": ANSWER}
    if not asked.body.get("stream"):
        asked.whole(200, words, set_cookie=ANSWER, server=ANSWER, x_fairlane_lane=ANSWER)
    else:
        asked.begin()
        asked.part(event(asked.path))
        asked.break_off()


def refuses_with_words(asked: Asked) -> None:
    message = f"{ANSWER}: {PROMPT} is too long"
    asked.whole(400, {"error": {"message": message, "type": ANSWER, "param": PROMPT}})


def fails_with_words(asked: Asked) -> None:
    asked.whole(500, {"error": {"message": f"{ANSWER} {PROMPT}"}})


def breaks_the_protocol(asked: Asked) -> None:
    asked.wfile.write(f"{ANSWER} {PROMPT}\r\n\r\n".encode())
    asked.break_off()


def test_no_word_of_a_caller_or_an_engine_is_kept_whatever_the_route(
    rig: Rig, engine: OwnEngine
) -> None:
    """Nor a key: in no log, metric, record, journal or sample."""
    alice = tenant_of(rig, engine)
    last: Answer | None = None
    acts = (answers_with_words, refuses_with_words, fails_with_words, breaks_the_protocol)
    count = 0
    for engine.act in acts:
        for path, fields in ROUTES.items():
            for stream in (False, True) if path in FIRST else (False,):
                headers = {"Cookie": PROMPT, "X-Tenant-Id": PROMPT, "X-Request-Id": PROMPT}
                body = {**fields, "stream": stream, "user": PROMPT, "metadata": {"a": PROMPT}}
                last = alice.start(f"{path}?q={PROMPT}", headers, **body).answer()
                assert "set-cookie" not in last.headers
                count += 1
    for broken in (b'{"model": "%b' % PROMPT.encode(), b'["%b"]' % PROMPT.encode()):
        assert alice.send("/v1/chat/completions", broken).answer().status == 400
    assert last is not None
    rig.records(alice.tenant, count + 2)
    found = kept(rig.stack.folder)
    found["/metrics"] = rig.metrics().encode()
    found["/api/v1/usage/records/"] = json.dumps(
        rig.ask("GET", f"/usage/records/?tenant={alice.tenant}")
    ).encode()
    secret = alice.key.rpartition("_")[2]
    assert b'"call ended"' in found["serve.log"]
    for name, content in found.items():
        for word in (PROMPT, ANSWER, secret):
            assert word.encode() not in content, (name, word)


# --- one request inside another -------------------------------------------------------------

HEAD = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
INNER = "GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n"
CHUNKED = "Transfer-Encoding: chunked\r\n"
SHAPES = {
    "length and chunks": f"Content-Length: 4\r\n{CHUNKED}\r\n0\r\n\r\n{INNER}",
    "chunks and length": f"{CHUNKED}Content-Length: 4\r\n\r\n0\r\n\r\n{INNER}",
    "two lengths": f"Content-Length: 0\r\nContent-Length: 5\r\n\r\n{INNER}",
    "two lengths in one": f"Content-Length: 0, 5\r\n\r\n{INNER}",
    "a length with a sign": f"Content-Length: +0\r\n\r\n{INNER}",
    "a length in hex": f"Content-Length: 0x0\r\n\r\n{INNER}",
    "a length below zero": f"Content-Length: -1\r\n\r\n{INNER}",
    "a folded header": f"Content-Length: 0\r\nX-A: b\r\n Content-Length: 5\r\n\r\n{INNER}",
    "a folded coding": f"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n{INNER}",
    "a space before the colon": f"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{INNER}",
    "an unknown coding": f"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{INNER}",
    "chunked not last": f"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{INNER}",
    "a tab in the coding": f"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n{INNER}",
    "a chunk of odd size": f"{CHUNKED}\r\n0x0\r\n\r\n{INNER}",
    "a chunk below zero": f"{CHUNKED}\r\n-1\r\n\r\n{INNER}",
    "a chunk that wraps": f"{CHUNKED}\r\n10000000000000000\r\n\r\n{INNER}",
    "a chunk longer than told": f"{CHUNKED}\r\n1\r\nab\r\n0\r\n\r\n{INNER}",
    "a name with a space": f"Content Length: 5\r\n\r\n{INNER}",
    "an empty name": f": x\r\n\r\n{INNER}",
    "a NUL in a value": f"X-A: a\0b\r\nContent-Length: 0\r\n\r\n{INNER}",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_that_frames_a_body_twice_or_oddly_carries_a_second_request(
    rig: Rig, shape: str
) -> None:
    key = smuggler(rig).key
    seen = rig.engine.seen()  # the newest 200: their number alone would say nothing
    answer = raw(rig, (HEAD + SHAPES[shape]).replace("{key}", key).encode())
    statuses = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"400"], answer
    assert b"owned_by" not in answer
    assert rig.engine.seen() == seen


_smugglers: dict[str, Caller] = {}


def smuggler(rig: Rig) -> Caller:
    """One tenant for all shapes."""
    name = str(rig.stack.folder)
    if name not in _smugglers:
        _smugglers[name] = rig.tenant()
    return _smugglers[name]


@pytest.mark.parametrize(
    "path",
    [
        *("//v1/chat/completions", "/v1//chat/completions", "/v1/./chat/completions"),
        *("/v1/chat/../chat/completions", "/v1/%2e/chat/completions", "/v1/chat%2fcompletions"),
        *("/V1/chat/completions", "/v1/Chat/completions", "/v1/chat/completions/"),
        *("/%761/chat/completions", "/v1/chat/completions;a=b", "/v1/chat/completions%00"),
        *("/v1\\chat\\completions", "/./v1/chat/completions", "/v1/chat/completions%20"),
    ],
)
def test_no_other_spelling_of_a_path_reaches_an_engine(rig: Rig, path: str) -> None:
    alice = smuggler(rig)
    seen = rig.engine.seen()  # the newest 200: their number alone would say nothing
    body = json.dumps({"model": "chat", "messages": SAID}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {alice.key}\r\n"
    head += f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    answer = raw(rig, head.encode() + body, is_all=False)
    assert answer[9:12] in (b"400", b"403", b"404"), answer  # 403: the console's, of what posts
    assert rig.engine.seen() == seen


def raw(rig: Rig, data: bytes, is_all: bool = True) -> bytes:
    """What comes back until the connection ends; `is_all` says at once that no more will come."""
    answer = b""
    with socket.create_connection(("127.0.0.1", rig.stack.port), PATIENCE_S) as sock:
        sock.sendall(data)
        if is_all:
            sock.shutdown(socket.SHUT_WR)
        try:
            while part := sock.recv(65536):
                answer += part
        except ConnectionResetError:
            pass
    return answer


def test_an_engine_sends_the_gateway_nowhere_else(rig: Rig, engine: OwnEngine) -> None:
    alice = tenant_of(rig, engine)
    for status in (301, 302, 307, 308):
        engine.act = lambda asked, status=status: asked.whole(
            status, {}, location=f"{engine.url}/elsewhere"
        )
        answer = alice.chat()
        assert (answer.status, answer.code) == (502, "engine_error")
        assert "location" not in answer.headers
    assert set(engine.paths) == {"/v1/chat/completions"}


# --- streams --------------------------------------------------------------------------------

PIECE = 60_000
PIECES = 1_000  # more than all sockets on the way can hold
MOST_HELD = 48 * 2**20


def test_an_engine_waits_for_a_caller_that_does_not_read(rig: Rig, engine: OwnEngine) -> None:
    sent = 0

    def floods(asked: Asked) -> None:
        nonlocal sent
        asked.begin()
        for _ in range(PIECES):
            choice = {"index": 0, "delta": {"content": "x" * PIECE}}
            asked.part(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
            sent += PIECE
        asked.part(b"data: [DONE]\n\n")
        asked.end()

    def has_stopped() -> bool:
        before = sent
        time.sleep(0.3)  # whether it goes on; if it only is slow, nothing below is less true
        return 0 < before == sent

    alice = tenant_of(rig, engine)
    assert rig.stack.serving is not None
    gateway = psutil.Process(rig.stack.serving.pid)
    assert alice.chat(stream=False).status == 200  # what one call takes is there
    engine.act = floods
    before = gateway.memory_info().rss
    call = alice.start(stream=True, receive_buffer=4096)
    assert call.response.status == 200
    until(has_stopped, "the engine cannot send more")
    assert sent < PIECES * PIECE / 2
    assert gateway.memory_info().rss - before < MOST_HELD / 2
    answer = call.answer()
    assert answer.done
    assert len(answer.body) > PIECES * PIECE
    assert gateway.memory_info().rss - before < MOST_HELD
    assert rig.record(answer)["status"] == 200


@pytest.mark.parametrize("path", ROUTES)
def test_on_every_route_an_engine_hears_at_once_that_its_caller_has_gone(
    rig: Rig, engine: OwnEngine, path: str
) -> None:
    alice = tenant_of(rig, engine, limits={"max_running": 1})
    engine.act = Asked.wait_for_the_end
    ways = (False, True) if path in FIRST else (False,)
    for number, stream in enumerate(ways, start=1):
        call = alice.start(path, stream=stream, **ROUTES[path])
        until(lambda number=number: len(engine.paths) == number, "the engine was asked")
        call.hang_up()
        until(lambda number=number: engine.left == number, "the engine was left")
    rows = rig.records(alice.tenant, len(ways))
    assert {row["finish_reason"] for row in rows} == {"cancelled"}
    engine.act = answers_with_words
    assert alice.start(path, **ROUTES[path]).answer().status == 200


@pytest.mark.parametrize("path", FIRST)
def test_a_stream_that_breaks_ends_with_an_error_in_the_words_of_its_route(
    rig: Rig, engine: OwnEngine, path: str
) -> None:
    alice = tenant_of(rig, engine, limits={"max_running": 1})
    engine.act = answers_with_words  # one event, then no more
    answer = alice.start(path, stream=True, **ROUTES[path]).answer()
    assert (answer.status, answer.streamed) == (200, True)
    assert ANSWER.encode() in answer.body
    assert b"[DONE]" not in answer.body
    *_, last = answer.body.rstrip(b"\n").split(b"\n\n")
    assert last.startswith(b"event: error\n") is (path in ("/v1/responses", "/v1/messages"))
    said = answer.events[-1]
    if path == "/v1/messages":
        assert (said["type"], said["error"]["type"]) == ("error", "api_error")
    else:
        assert said["error"]["code"] == "engine_error"
        assert said.get("type") == ("error" if path == "/v1/responses" else None)
    assert rig.record(answer)["status"] == 502
    assert alice.start(path, **ROUTES[path]).answer().status == 200
