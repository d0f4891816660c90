"""Frames as engines send them, for the stream tests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from gateway.dialects import DIALECTS
from gateway.wire.stream import StreamMeter
from tenants.core.snapshot import EngineKind

DONE = b"data: [DONE]\n\n"


def event(frame: dict[str, Any], end: bytes = b"\n") -> bytes:
    data = json.dumps(frame, separators=(",", ":"), ensure_ascii=False).encode()
    return b"data: " + data + end + end


def frame(
    delta: dict[str, Any] | None, finish: str | None = None, index: int = 0, **more: Any
) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {"id": "chatcmpl-1", "created": 1, "model": "m", "choices": [choice], **more}


def role(index: int = 0, **more: Any) -> bytes:
    return event(frame({"role": "assistant", "content": ""}, index=index, **more))


def token(text: str = " x", index: int = 0, **more: Any) -> bytes:
    return event(frame({"content": text}, index=index, **more))


def finish(reason: str = "stop", index: int = 0, **more: Any) -> bytes:
    return event(frame({}, reason, index, **more))


def counts(prompt: int, completion: int) -> dict[str, Any]:
    total = prompt + completion
    return {"prompt_tokens": prompt, "total_tokens": total, "completion_tokens": completion}


def usage(prompt: int, completion: int) -> bytes:
    return event({"id": "chatcmpl-1", "choices": [], "usage": counts(prompt, completion)})


def meter(kind: EngineKind = "vllm", *, asked: bool = False, **options: Any) -> StreamMeter:
    return StreamMeter(DIALECTS[kind], asked_usage=asked, **options)


def run(meter: StreamMeter, chunks: Iterable[bytes]) -> bytes:
    shown = b"".join(map(meter.feed, chunks))
    ending = meter.finish()
    return shown + ending.rest


def typed(kind: str, end: bytes = b"\n", **more: Any) -> bytes:
    """An event that says what it is, as Anthropic's and the responses' do."""
    data = json.dumps({"type": kind, **more}, separators=(",", ":")).encode()
    return b"event: " + kind.encode() + end + b"data: " + data + end + end


def begun(**usage: Any) -> bytes:
    message = {"id": "m", "role": "assistant", "content": [], "usage": usage or None}
    return typed("message_start", message=message)


def said(text: str = " x", kind: str = "text") -> bytes:
    return typed("content_block_delta", index=0, delta={"type": f"{kind}_delta", kind: text})


def told(reason: str | None = "end_turn", **usage: Any) -> bytes:
    more: dict[str, Any] = {"usage": usage} if usage else {}
    return typed("message_delta", delta={"stop_reason": reason}, **more)


STOPPED = typed("message_stop")
