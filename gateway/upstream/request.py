"""An httpx request as the bytes of an HTTP/1.1 message.

1. The body goes whole and with its length, whatever framing the request's headers name: two
   framings in one message are how requests get smuggled. (RFC 9112, section 6.1)
2. No header can end its line early, so none can smuggle another.
"""

from __future__ import annotations

from collections.abc import AsyncIterable

import httpx

FRAMING = frozenset((b"content-length", b"transfer-encoding"))
HAS_BODY = frozenset(("POST", "PUT", "PATCH"))


async def message(request: httpx.Request) -> list[bytes]:
    """Head, then body where there is one.

    Raises:
        httpx.LocalProtocolError: a header holds a line break.
    """
    assert isinstance(request.stream, AsyncIterable)
    body = b"".join([part async for part in request.stream])
    head = _head(request, body)
    return [head, body] if body else [head]


def _head(request: httpx.Request, body: bytes) -> bytes:
    method, target = request.method.encode(), request.url.raw_path
    lines = [b"%b %b HTTP/1.1" % (method, target)]
    has_host = False
    for name, value in request.headers.raw:
        lower = name.lower()
        if lower in FRAMING:
            continue
        has_host = has_host or lower == b"host"
        lines.append(b"%b: %b" % (name, value))
    if not has_host:
        lines.insert(1, b"Host: %b" % request.url.netloc)
    if body or request.method in HAS_BODY:
        lines.append(b"Content-Length: %d" % len(body))
    head = b"\r\n".join(lines)
    if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1:
        raise httpx.LocalProtocolError("a header holds a line break")
    return head + b"\r\n\r\n"
