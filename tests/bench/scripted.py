"""An engine on raw sockets that answers from a script, so that its own cost does not matter.

`python -m tests.bench.scripted` prints its port. It answers `/health`, `/v1/models` and any POST:

- without `"stream":true`: at once, a whole chat completion;
- with it: the first event at once, the next ones PACE_S apart, as engines stream; EVENTS in all,
  `[DONE]` included. Where it is asked for usage, usage comes as vLLM sends it: on each event, and
  in one more before the end;
- with `"max_tokens":1` besides: the first event, and then silence until the caller hangs up.
"""

from __future__ import annotations

import asyncio
import re
from typing import cast

import uvloop

EVENTS = 66
PACE_S = 0.010
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
ID = b'"id":"chatcmpl-9f0c8d7e6b5a4f3e2d1c0b9a8f7e6d5c",'
FRAME = (
    b'data: {%b"object":"chat.completion.chunk","created":1764000000,"model":"demo-chat",'
    b'"choices":[%%b]%%b}\n\n' % ID
)
CHOICE = b'{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}'
RUNNING = b',"usage":{"prompt_tokens":112,"total_tokens":%d,"completion_tokens":%d}'
DELTAS = [
    (b'{"role":"assistant","content":""}', b"null"),
    *[(b'{"content":" word"}', b"null")] * (EVENTS - 3),
    (b"{}", b'"stop"'),
]
WHOLE = (
    b'{%b"object":"chat.completion","created":1764000000,"model":"demo-chat","choices":[{"index":0,'
    b'"message":{"role":"assistant","content":"%b"},"logprobs":null,"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":112,"total_tokens":144,"completion_tokens":32}}'
    % (ID, b"word " * 32)
)
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
MODELS = b'{"object":"list","data":[{"id":"demo-chat","object":"model","max_model_len":16384}]}'


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def script(usage: bool) -> list[bytes]:
    frames = [
        FRAME % (CHOICE % delta, RUNNING % (112 + number, number) if usage else b"")
        for number, delta in enumerate(DELTAS)
    ]
    ending = b"data: [DONE]\n\n"
    if usage:
        total = EVENTS - 3
        ending = FRAME % (b"", RUNNING % (112 + total, total)) + ending
    return [*map(chunk, frames), chunk(ending) + b"0\r\n\r\n"]


SCRIPTS = {usage: script(usage) for usage in (False, True)}


class Engine(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if end and len(body) >= (int(length[1]) if length else 0):
            self._buffer = b""
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"GET"):
            said = MODELS if b"/models" in head[:64] else b""
            self.transport.write(JSON % (len(said), said))
        elif b'"stream":true' not in body:
            self.transport.write(JSON % (len(WHOLE), WHOLE))
        else:
            self.transport.write(STREAM)
            chunks = SCRIPTS[b'"continuous_usage_stats":true' in body]
            silent = b'"max_tokens":1,' in body or b'"max_tokens":1}' in body
            self._send(chunks[:1] if silent else chunks, 0)

    def _send(self, chunks: list[bytes], number: int) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(chunks[number])
        if number + 1 < len(chunks):
            self._loop.call_later(PACE_S, self._send, chunks, number + 1)


async def run() -> None:
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(run())
