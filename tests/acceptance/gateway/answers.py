"""What an engine that is broken, or hostile, may write on the wire, byte for byte."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.acceptance.gateway.odd import ANSWERS, NUMBERS, ODD, SPOILT, STREAMS, Body, Dice, flip

JSON, SSE = b"application/json", b"text/event-stream"
STATUSES = [200, 200, 200, 201, 204, 299, 302, 304, 400, 404, 422, 429, 500, 503, 600, 999]
HEADS = [
    *(b"", b"\r\n\r\n", b"\x16\x03\x01\x02\x00", b"200 OK\r\n\r\n", b"HTTP/1.1\r\n\r\n{}"),
    *(b"HTTP/1.1 abc OK\r\n\r\n", b"HTTP/9.9 200 OK\r\n\r\n", b"ICY 200 OK\r\n\r\n{}"),
    *(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nxx", b"HTTP/1.1 200 OK\r\nA: b"),
    *(b"HTTP/1.1 100 Continue\r\n\r\n" * 50, b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 5000),
]
HEADERS = [
    *(b"No colon", b": empty", b"A: \x00", b"A: " + b"b" * 100_000, b"A: b\r\n c", b"\xff: \xfe"),
    *(b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: 99999999999999999999"),
    *(b"Content-Length: x", b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked"),
    *(b"Content-Encoding: gzip", b"Connection: content-type, x-request-id", b"Retry-After: nan"),
    *(b"Retry-After: 1e999", b"X-Request-Id: other", b"X-Fairlane-Lane: other", b"Date: x"),
]
CHUNKS = [
    b"ZZ\r\n",
    b"-1\r\nx\r\n",
    b"F" * 20 + b"\r\nx",
    b"5\r\nab",
    b"1;x=\x00\r\na\r\n",
    b"0\r\n",
]
ERRORS: Body = {"error": {"message": "Hello", "type": "x", "param": "stop", "code": 3}}


def head(status: int, kind: bytes, *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 %d Whatever" % status, b"Content-Type: " + kind, *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def sized(status: int, body: bytes, *headers: bytes) -> bytes:
    return head(status, JSON, b"Content-Length: %d" % len(body), *headers) + body


def chunked(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece)


# --- whole answers ------------------------------------------------------------------------------


def spoilt(dice: Dice, path: str) -> bytes:
    return sized(200, dice.choice(SPOILT)(dice, ANSWERS[path]))


def odd_count(dice: Dice, path: str) -> bytes:
    text = json.dumps(ANSWERS[path]).encode()
    odd = dice.choice([json.dumps(dice.choice(ODD)).encode(), dice.choice(NUMBERS)])
    return sized(200, text.replace(b" 5", b" " + odd))


def refused(dice: Dice, path: str) -> bytes:
    body = dice.choice(SPOILT)(dice, dice.choice([ERRORS, ERRORS["error"], ANSWERS[path]]))
    return sized(dice.choice(STATUSES), body, b"Retry-After: " + dice.choice(NUMBERS))


def odd_head(dice: Dice, path: str) -> bytes:
    return dice.choice(HEADS)


def odd_header(dice: Dice, path: str) -> bytes:
    body = json.dumps(ANSWERS[path]).encode()
    return sized(dice.choice(STATUSES), body, dice.choice(HEADERS))


def wrong_length(dice: Dice, path: str) -> bytes:
    body = json.dumps(ANSWERS[path]).encode()
    length = len(body) + dice.choice([-30, -1, 1, 500])
    return head(200, JSON, b"Content-Length: %d" % length) + body


def without_length(dice: Dice, path: str) -> bytes:
    return head(200, JSON) + dice.choice(SPOILT)(dice, ANSWERS[path])


# --- streams ------------------------------------------------------------------------------------


def pieces(dice: Dice, path: str) -> list[bytes]:
    """Of a stream: some lost, some twice, out of order, some bytes changed, cut anywhere."""
    right = STREAMS.get(path) or [json.dumps(ANSWERS[path]).encode()]
    some = [dice.choice(right) for _ in range(dice.randint(0, 8))]
    whole = b"".join(some) or b"data: {}\n\n"
    if dice.random() < 0.5:
        whole = flip(dice, whole)
    at = sorted(dice.randrange(len(whole) + 1) for _ in range(dice.randint(0, 4)))
    return [whole[a:b] for a, b in zip([0, *at], [*at, len(whole)], strict=True)]


def odd_stream(dice: Dice, path: str) -> bytes:
    end = dice.choice([b"0\r\n\r\n", b"", b"0\r\nX-Usage: 5\r\n\r\n", dice.choice(CHUNKS)])
    return head(200, SSE, b"Transfer-Encoding: chunked") + chunked(pieces(dice, path)) + end


def open_stream(dice: Dice, path: str) -> bytes:
    """Its end is the connection's."""
    return head(200, SSE) + b"".join(pieces(dice, path))


WHOLE: list[Callable[[Dice, str], bytes]] = [
    *(spoilt, odd_count, refused, odd_head, odd_header, wrong_length, without_length)
]
STREAMING: list[Callable[[Dice, str], bytes]] = [odd_stream, odd_stream, open_stream, *WHOLE]


def answer(dice: Dice, path: str, stream: bool) -> bytes:
    return dice.choice(STREAMING if stream else WHOLE)(dice, path)
