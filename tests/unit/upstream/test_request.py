from __future__ import annotations

import httpx
import pytest

from gateway.upstream.request import message


def test_host_and_length_are_set() -> None:
    assert message("POST", b"/v1/x?a=b", b"e:9", [], b"{}") == [
        b"POST /v1/x?a=b HTTP/1.1\r\nHost: e:9\r\nContent-Length: 2\r\n\r\n",
        b"{}",
    ]


def test_headers_go_as_they_are_and_in_order() -> None:
    headers = [(b"X-b", b"\xe9"), (b"x-A", b"1"), (b"X-b", b"2")]
    assert message("GET", b"/", b"e", headers, b"") == [
        b"GET / HTTP/1.1\r\nHost: e\r\nX-b: \xe9\r\nx-A: 1\r\nX-b: 2\r\n\r\n"
    ]


def test_an_empty_post_says_so() -> None:
    [head] = message("POST", b"/", b"e", [], b"")
    assert b"\r\nContent-Length: 0\r\n" in head


def test_only_our_host_and_our_framing_are_ever_sent() -> None:
    headers = [(b"Transfer-Encoding", b"chunked"), (b"content-length", b"7"), (b"HOST", b"evil")]
    head, _ = message("POST", b"/", b"e", headers, b"{}")
    assert head == b"POST / HTTP/1.1\r\nHost: e\r\nContent-Length: 2\r\n\r\n"


@pytest.mark.parametrize("value", [b"a\r\nX-Evil: 1", b"a\nX-Evil: 1", b"a\rb", b"\r\n\r\nGET /"])
def test_a_header_cannot_smuggle_another(value: bytes) -> None:
    for header in ((b"X-Fine", value), (value, b"fine")):
        with pytest.raises(httpx.LocalProtocolError):
            message("GET", b"/", b"e", [header], b"")
