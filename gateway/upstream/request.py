"""A request as the bytes of an HTTP/1.1 message.

1. The body goes whole and with its length, whatever framing the given headers name: two framings
   in one message are how requests get smuggled. (RFC 9112, section 6.1)
2. No header can end its line early, so none can smuggle another.
"""

from __future__ import annotations

import httpx

from gateway.upstream.exchange import RawHeaders

OURS = frozenset((b"host", b"content-length", b"transfer-encoding"))
HAS_BODY = frozenset(("POST", "PUT", "PATCH"))


def message(
    method: str, target: bytes, host: bytes, headers: RawHeaders, body: bytes
) -> list[bytes]:
    """Head, then body where there is one. Host and framing are set here, whatever is given.

    Raises:
        httpx.LocalProtocolError: a header holds a line break.
    """
    lines = [b"%b %b HTTP/1.1" % (method.encode(), target), b"Host: %b" % host]
    lines += [b"%b: %b" % header for header in headers if header[0].lower() not in OURS]
    if body or method in HAS_BODY:
        lines.append(b"Content-Length: %d" % len(body))
    head = b"\r\n".join(lines)
    if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1:
        raise httpx.LocalProtocolError("a header holds a line break")
    head += b"\r\n\r\n"
    return [head, body] if body else [head]
