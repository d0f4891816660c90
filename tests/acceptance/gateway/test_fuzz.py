"""Whatever bytes come in, from a caller or from an engine, on whatever route: an answer that is no
failure of ours, one record, no slot lost and nothing held."""

from __future__ import annotations

import math
import socket
from collections import Counter

from tests.acceptance.gateway import answers, odd
from tests.acceptance.gateway.caller import CHAT, Caller
from tests.acceptance.gateway.engine import Asked, own_engine
from tests.acceptance.gateway.odd import BODIES, STREAMS
from tests.acceptance.gateway.rig import Rig
from tests.acceptance.stack import PATIENCE_S, until
from tests.fuzz import MANY

CALLS, ENGINES = 40 * MANY, 30 * MANY  # on each route
ONE_SLOT = {"max_running": 1, "max_queued": 0}
LIMIT = 1_000_000_000
BUDGET = {
    "name": "all",
    "kind": "sustained",
    "cost": LIMIT,
    "period": "day",
    "on_exhausted": "alert",
}
HEADERS: list[dict[str, str]] = [
    {},
    {"Content-Type": "text/plain"},
    {"Content-Encoding": "gzip"},
    {"Accept-Encoding": "gzip"},
    {"Accept": "\xff"},
    {"X-Fairlane-Lane": "batch"},
    {"X-Fairlane-Lane": "x" * 300},
    {"X-Fairlane-Lane": "\xe9"},
    {"X-Fairlane-Interaction": "a b"},
    {"X-Request-Id": "\x01" * 10},
    {"Traceparent": "nonsense"},
    {"User-Agent": "\xff\xfe"},
    {"Expect": "100-continue"},
    {"Connection": "close"},
    {"Upgrade": "websocket", "Connection": "Upgrade"},
    {"X-Long": "y" * 20_000},
]


def test_no_body_and_no_header_breaks_the_gateway_or_keeps_its_slot(rig: Rig) -> None:
    alice = rig.tenant(limits=ONE_SLOT, budgets=[BUDGET])
    for path, fields in BODIES.items():
        served = alice.start(path, **fields).answer()
        assert served.status == 200, (path, served.body)
    dice = odd.dice()
    statuses: Counter[int] = Counter()
    recorded = len(BODIES)
    for path in list(BODIES) * CALLS:
        body, headers = odd.body(dice, path), dice.choice(HEADERS)
        answer = alice.send(path, body, headers).answer()
        told = (path, answer.status, body[:300], headers, answer.body[:300])
        assert answer.status < 500, told
        assert answer.status != 429, told  # the one slot came back each time
        if answer.status == 200:
            assert answer.streamed or isinstance(answer.json, dict), told
        elif "x-request-id" in answer.headers:  # else the server's own parser refused it
            assert answer.message, told
            assert isinstance(answer.error["type" if path == "/v1/messages" else "code"], str)
        recorded += "x-request-id" in answer.headers
        statuses[answer.status] += 1
    assert statuses[400] > 12 * CALLS / 4, statuses
    assert statuses[200] > CALLS, statuses
    nothing_is_left(rig, alice, recorded)


def test_no_answer_of_an_engine_breaks_the_gateway_or_keeps_its_slot(rig: Rig) -> None:
    dice = odd.dice()
    statuses: Counter[int] = Counter()
    with own_engine() as engine:
        model = rig.pool(endpoints=[{"url": engine.url}])
        alice = rig.tenant(model=model, limits=ONE_SLOT, budgets=[BUDGET])
        for path in list(BODIES) * ENGINES:
            stream = path in STREAMS and dice.random() < 0.6
            data = answers.answer(dice, path, stream)
            engine.act = lambda asked, data=data: writes(asked, data)
            answer = alice.start(path, **{**BODIES[path], "stream": stream}).answer()
            told = (path, stream, answer.status, data[:300], answer.body[:300])
            assert answer.status in (200, 400, 502, 503), told
            assert answer.status == 200 or "unexpectedly" not in answer.message, told
            statuses[answer.status] += 1
        assert min(statuses[200], statuses[502]) > ENGINES, statuses
        nothing_is_left(rig, alice, len(BODIES) * ENGINES)
        engine.act = answers_well
        assert alice.chat().status == 200
    assert "request failed" not in (rig.stack.folder / "serve.log").read_text()


def writes(asked: Asked, data: bytes) -> None:
    asked.wfile.write(data)
    asked.break_off()


def answers_well(asked: Asked) -> None:
    asked.whole(200, odd.ANSWERS[CHAT])


def nothing_is_left(rig: Rig, alice: Caller, calls: int) -> None:
    """A record of each call, with numbers that can be true; the budget holds what these cost."""
    rows = rig.records(alice.tenant, calls)
    for row in rows:
        assert 0 <= row["cached_tokens"] <= row["prompt_tokens"], row
        assert row["completion_tokens"] >= 0, row
        assert 0 <= row["cost"] < math.inf, row
    due = sum(row["cost"] for row in rows)
    used = f'fairlane_budget_used_ratio{{budget="all",tenant="{alice.tenant}"}}'
    until(lambda: math.isclose(rig.metric(used) * LIMIT, due), f"{due} units used, none held")
    assert rig.gauge("running", alice.tenant) == rig.gauge("queued", alice.tenant) == 0


POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
RAW = [
    b"",
    b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a TLS hello
    POST + b"Content-Length: -5\r\n\r\n",
    POST + b"Content-Length: 5\r\nContent-Length: 9\r\n\r\nxx",
    POST + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
    POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    b"POST /v1/%ff%00/../chat/completions HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/models/%2e%2e HTTP/1.0\r\n\r\n",
    b"BREW /v1/chat/completions HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/models HTTP/9.9\r\n\r\n",
    b"GET " + b"/" * 70_000 + b" HTTP/1.1\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
]


def test_no_broken_request_line_is_answered_by_a_failure(rig: Rig) -> None:
    alice = rig.tenant()
    for raw in RAW:
        with socket.create_connection(("127.0.0.1", rig.stack.port), PATIENCE_S) as sock:
            sock.sendall(raw)
            sock.shutdown(socket.SHUT_WR)
            answer = b""
            while part := received(sock):
                answer += part
        assert not answer.startswith(b"HTTP/1.1 5"), (raw[:100], answer[:200])
    assert alice.chat().status == 200


def received(sock: socket.socket) -> bytes:
    try:
        return sock.recv(65536)
    except ConnectionResetError:
        return b""
