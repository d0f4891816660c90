"""Whatever bytes come in at the door: an answer that is no failure of ours, and no slot lost."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable
from typing import Any

from tests.acceptance.gateway.caller import CHAT
from tests.acceptance.gateway.rig import Rig
from tests.acceptance.stack import PATIENCE_S

GOOD: dict[str, Any] = {
    "model": "chat",
    "messages": [{"role": "user", "content": "Hello"}],
    "max_tokens": 3,
    "n": 1,
    "stream": False,
    "stream_options": {"include_usage": True},
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    "priority": 1,
    "cache_salt": "s",
    "stop": ["x"],
}
ODD: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        -1,
        1,
        2**31,
        2**63,
        -(2**64),
        1.5,
        1e308,
        "",
        " ",
        "x",
        "\x00",
        "é\U0001f600",
    ),
    *([], [[]], [None], {}, {"": None}, [{}], {"role": "user"}, "x" * 5000, [1, "a", None, {}]),
]
Dice = random.Random


def odd_field(dice: Dice) -> bytes:
    body = {**GOOD, dice.choice(list(GOOD)): dice.choice(ODD)}
    return json.dumps(body).encode()


def odd_message(dice: Dice) -> bytes:
    message = {
        "role": "user",
        "content": "x",
        dice.choice(["role", "content", "name", "tool_calls"]): dice.choice(ODD),
    }
    parts = [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": dice.choice(ODD)}]
    other = {"role": "user", "content": dice.choice([parts, [dice.choice(ODD)], dice.choice(ODD)])}
    return json.dumps({**GOOD, "messages": [message, other]}).encode()


def cut(dice: Dice) -> bytes:
    whole = json.dumps(GOOD).encode()
    return whole[: dice.randrange(len(whole))]


def flipped(dice: Dice) -> bytes:
    whole = bytearray(json.dumps(GOOD).encode())
    for _ in range(dice.randint(1, 6)):
        whole[dice.randrange(len(whole))] = dice.randrange(256)
    return bytes(whole)


def noise(dice: Dice) -> bytes:
    return dice.randbytes(dice.choice([0, 1, 7, 300]))


def deep(dice: Dice) -> bytes:
    levels = dice.choice([50, 900, 5000, 100_000])
    opening, closing = dice.choice([(b"[", b"]"), (b'{"a":', b"}")])
    nested = opening * levels + b"1" + closing * levels
    return b'{"model":"chat","messages":[{"role":"user","content":"x"}],"extra":' + nested + b"}"


def twice(dice: Dice) -> bytes:
    name = dice.choice(list(GOOD))
    again = json.dumps({name: dice.choice(ODD)})[1:]
    return json.dumps(GOOD).encode()[:-1] + b"," + again.encode()


def surrogates(dice: Dice) -> bytes:
    lone = dice.choice([b"\\ud800", b"\\udfff\\ud800", b"\\u0000"])
    where = dice.choice([b"chat", b"user", b"Hello"])
    return json.dumps(GOOD).encode().replace(where, where + lone, 1)


def number(dice: Dice) -> bytes:
    odd = dice.choice([b"1e999", b"-0", b"NaN", b"Infinity", b"00", b"1" * 4000, b"1.", b"0x10"])
    return json.dumps(GOOD).encode().replace(b"3", odd, 1)


KINDS: list[Callable[[Dice], bytes]] = [
    *(odd_field, odd_field, odd_message, cut, flipped, noise, deep, twice, surrogates, number)
]
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
    alice = rig.tenant(limits={"max_running": 1, "max_queued": 0})
    dice = random.Random(20261129)
    statuses: dict[int, int] = {}
    for turn in range(300):
        body, headers = dice.choice(KINDS)(dice), dice.choice(HEADERS)
        answer = alice.send(CHAT, body, headers).answer()
        told = (turn, answer.status, body[:200], headers, answer.body[:300])
        assert answer.status < 500, told
        if answer.status == 200:
            assert answer.streamed or answer.json["choices"], told
        elif "x-request-id" in answer.headers:  # else the server's own parser refused it
            assert answer.message, told
            assert isinstance(answer.code, str), told
        statuses[answer.status] = statuses.get(answer.status, 0) + 1
        assert answer.status != 429, told  # the one slot came back each time
    assert statuses[400] > 100, statuses
    assert alice.chat().status == 200


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
