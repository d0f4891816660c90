"""An engine that does what each request tells it to, and remembers what it said to whom.

`python -m tests.trials.stub` prints its port. It answers `/health`, `/v1/models` and any POST,
under any prefix. A request's own field `trial` (unknown to the gateway, so it passes) is its
script: `in`, `out`: usage; `hold`: seconds before the first byte; `gap`: seconds between frames;
`status`: an error instead, once where `once` is set; `cut`, `hang`: after so many frames; `usage`:
false for none; `by`: whatever `GET /runs` shall tell of it.
`GET /said` is what each x-request-id got: prompt, tokens written, answers completed, times asked.
`GET /runs` is when each ran: the prefix, `by`, the moments of its beginning and its end (0: none).
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any, cast

import msgspec
import uvloop

LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
ID = re.compile(rb"x-request-id: *(\S+)", re.IGNORECASE)
JSON = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
MODELS = b'{"object":"list","data":[{"id":"chat","object":"model","max_model_len":100000}]}'
CHUNK = '{"id":"c","object":"chat.completion.chunk","model":"chat","choices":[%s]%s}'

said: dict[str, dict[str, int]] = {}
runs: list[list[Any]] = []


def frame(choice: str, usage: str = "") -> bytes:
    data = b"data: %b\n\n" % (CHUNK % (choice, usage)).encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def usage_of(prompt: int, completion: int) -> str:
    total = prompt + completion
    counts = f'"prompt_tokens":{prompt},"total_tokens":{total},"completion_tokens":{completion}'
    return f',"usage":{{{counts}}}'


class Broken(Exception):
    """The script says that the engine breaks off here."""


class Engine(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._buffer = b""
        self._task: asyncio.Task[None] | None = None

    def connection_lost(self, error: Exception | None) -> None:
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if end and len(body) >= (int(length[1]) if length else 0):
            self._buffer = b""
            if head.startswith(b"GET"):
                self._tell(200, self._about(head))
            else:
                self._task = asyncio.create_task(self._serve(head, body))

    def _about(self, head: bytes) -> bytes:
        path = head.split(b" ", 2)[1]
        if path.endswith(b"/said"):
            return msgspec.json.encode(said)
        if path.endswith(b"/runs"):
            return msgspec.json.encode(runs)
        return MODELS if path.endswith(b"/models") else b""

    def _tell(self, status: int, body: bytes) -> None:
        self.transport.write(JSON % (status, len(body), body))

    async def _serve(self, head: bytes, body: bytes) -> None:
        asked = msgspec.json.decode(body)
        script = asked.get("trial") or {}
        prefix = head.split(b"/", 2)[1].decode()
        run = [prefix, script.get("by"), time.time(), 0.0]
        runs.append(run)
        try:
            await self._answer(head, asked, script)
        finally:
            run[3] = time.time()

    async def _answer(self, head: bytes, asked: dict[str, Any], script: dict[str, Any]) -> None:
        found = ID.search(head)
        request_id = found[1].decode() if found else ""
        prompt = script.get("in", 5)
        mine = said.setdefault(request_id, {"prompt": prompt, "out": 0, "whole": 0, "times": 0})
        mine["times"] += 1
        if script.get("hold"):
            await asyncio.sleep(script["hold"])
        status = script.get("status", 200)
        if status != 200 and not (script.get("once") and mine["times"] > 1):
            self._tell(status, b'{"error":{"message":"as told","type":"x","code":null}}')
            return
        try:
            if asked.get("stream"):
                await self._stream(asked, script, mine)
            else:
                await self._whole(script, mine)
            mine["whole"] += 1
        except Broken:
            self.transport.abort()

    async def _whole(self, script: dict[str, Any], mine: dict[str, int]) -> None:
        if "hang" in script:
            await asyncio.Event().wait()
        if "cut" in script:
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{")
            raise Broken
        mine["out"] = out = script.get("out", 5)
        choice = '{"index":0,"message":{"role":"assistant","content":"w"},"finish_reason":"stop"}'
        usage = usage_of(mine["prompt"], out) if script.get("usage", True) else ""
        self._tell(200, f'{{"object":"chat.completion","choices":[{choice}]{usage}}}'.encode())

    async def _stream(
        self, asked: dict[str, Any], script: dict[str, Any], mine: dict[str, int]
    ) -> None:
        options = asked.get("stream_options") or {}
        tells = script.get("usage", True)
        running = tells and options.get("continuous_usage_stats")
        prompt, gap = mine["prompt"], script.get("gap", 0)
        self.transport.write(STREAM)
        for number in range(script.get("out", 5)):
            await self._end_here(script, number)
            mine["out"] = number + 1
            usage = usage_of(prompt, number + 1) if running else ""
            content = '{"index":0,"delta":{"content":"w"},"finish_reason":null}'
            self.transport.write(frame(content, usage))
            if gap:
                await asyncio.sleep(gap)
        await self._end_here(script, mine["out"])
        ending = frame('{"index":0,"delta":{},"finish_reason":"stop"}')
        if tells and options.get("include_usage"):
            ending += frame("", usage_of(prompt, mine["out"]))
        self.transport.write(ending + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    async def _end_here(self, script: dict[str, Any], number: int) -> None:
        if script.get("cut") == number:
            await asyncio.sleep(0.001)  # what was written goes out first
            raise Broken
        if script.get("hang") == number:
            await asyncio.Event().wait()


async def run() -> None:
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(run())
