from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from gateway.upstream.request import message


async def test_host_and_length_are_added_where_they_are_missing() -> None:
    request = httpx.Request("POST", "http://e:9/v1/x?a=b", stream=httpx.ByteStream(b"{}"))
    assert await message(request) == [
        b"POST /v1/x?a=b HTTP/1.1\r\nHost: e:9\r\nContent-Length: 2\r\n\r\n",
        b"{}",
    ]


async def test_headers_go_as_they_are_and_in_order() -> None:
    headers = [(b"Host", b"other"), (b"X-b", b"\xe9"), (b"x-A", b"1"), (b"X-b", b"2")]
    request = httpx.Request("GET", "http://e/", headers=headers, stream=httpx.ByteStream(b""))
    assert await message(request) == [
        b"GET / HTTP/1.1\r\nHost: other\r\nX-b: \xe9\r\nx-A: 1\r\nX-b: 2\r\n\r\n"
    ]


async def test_an_empty_post_says_so() -> None:
    [head] = await message(httpx.Request("POST", "http://e/"))
    assert b"\r\nContent-Length: 0\r\n" in head


async def test_a_body_in_parts_goes_whole_with_one_length() -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"ab"
        yield b"cde"

    request = httpx.Request("POST", "http://e/", content=parts(), headers={"Content-Length": "99"})
    head, body = await message(request)
    assert body == b"abcde"
    assert head.lower().count(b"content-length") == 1
    assert b"Content-Length: 5\r\n" in head


async def test_only_one_framing_is_ever_sent() -> None:
    headers = {"Transfer-Encoding": "chunked", "Content-Length": "7"}
    request = httpx.Request("POST", "http://e/", headers=headers, stream=httpx.ByteStream(b"{}"))
    head, _ = await message(request)
    assert b"transfer-encoding" not in head.lower()
    assert b"Content-Length: 2\r\n" in head


@pytest.mark.parametrize("value", [b"a\r\nX-Evil: 1", b"a\nX-Evil: 1", b"a\rb", b"\r\n\r\nGET /"])
async def test_a_header_cannot_smuggle_another(value: bytes) -> None:
    for header in ((b"X-Fine", value), (value, b"fine")):
        request = httpx.Request("GET", "http://e/", headers=[header])
        with pytest.raises(httpx.LocalProtocolError):
            await message(request)
