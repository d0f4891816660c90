"""Between httpx's transports and the gateway's own: either asked through the other's door.

`MockTransport` stands for engines in most tests; the contract suite runs over both kinds.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator

import httpx

from gateway.upstream.client import EngineClient
from gateway.upstream.exchange import Exchange, RawHeaders, Timeouts
from gateway.upstream.request import HAS_BODY, OURS
from gateway.upstream.transport import EngineTransport


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


class AsHttpx(httpx.AsyncBaseTransport):
    """The gateway's transport as one of httpx's."""

    def __init__(self, inner: EngineTransport) -> None:
        self.inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, AsyncIterable)
        body = b"".join([part async for part in request.stream])
        timeouts: Timeouts = request.extensions.get("timeout", {})
        answer = await self.inner.ask(
            request.method, str(request.url), request.headers.raw, body, timeouts
        )
        version = {"http_version": b"HTTP/1.1"}
        stream = ExchangeStream(answer)
        return httpx.Response(
            answer.status, headers=answer.headers, stream=stream, extensions=version
        )

    async def aclose(self) -> None:
        await self.inner.aclose()


class ExchangeStream(httpx.AsyncByteStream):
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._exchange)

    async def aclose(self) -> None:
        await self._exchange.aclose()


def client_over(transport: httpx.AsyncBaseTransport) -> EngineClient:
    """A client that asks through any transport of httpx's."""
    return EngineClient(transport.inner if isinstance(transport, AsHttpx) else OverHttpx(transport))
