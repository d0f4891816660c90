"""Any httpx transport in the place of the gateway's own: MockTransport in tests, or another."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx

from gateway.upstream.exchange import RawHeaders, Timeouts
from gateway.upstream.request import HAS_BODY, OURS


class OverHttpx:
    def __init__(self, transport: httpx.AsyncBaseTransport) -> None:
        self._transport = transport

    async def ask(
        self, method: str, url: str, headers: RawHeaders, body: bytes, timeouts: Timeouts
    ) -> HttpxAnswer:
        """As `EngineTransport.ask`."""
        target = httpx.URL(url)
        sent = [(b"Host", target.netloc)]
        sent += [header for header in headers if header[0].lower() not in OURS]
        if body or method in HAS_BODY:
            sent.append((b"Content-Length", b"%d" % len(body)))
        stream, extensions = httpx.ByteStream(body), {"timeout": timeouts}
        request = httpx.Request(method, target, headers=sent, stream=stream, extensions=extensions)
        return HttpxAnswer(await self._transport.handle_async_request(request))

    async def aclose(self) -> None:
        await self._transport.aclose()


class HttpxAnswer:
    """Without its request, which would hold the body as long as a stream runs."""

    is_complete = False

    def __init__(self, response: httpx.Response) -> None:
        assert isinstance(response.stream, httpx.AsyncByteStream)
        self._stream = response.stream
        self.status = response.status_code
        self.headers: RawHeaders = response.headers.raw

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._stream)

    async def aclose(self) -> None:
        await self._stream.aclose()
