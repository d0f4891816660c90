"""Requests and answers as the tests of the engine's surface write and read them."""

from __future__ import annotations

import json
from typing import Any

import httpx

CHAT = "/v1/chat/completions"


def chat(text: str = "Tell me about the sea.", **fields: Any) -> dict[str, Any]:
    return {"model": "demo-chat", "messages": [{"role": "user", "content": text}]} | fields


async def stream(
    http: httpx.AsyncClient, body: dict[str, Any], path: str = CHAT, **options: Any
) -> list[Any]:
    """The events of a stream; `[DONE]` is the text "[DONE]"."""
    answer = await http.post(path, json=body | {"stream": True}, **options)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return events(answer.text)


def events(text: str) -> list[Any]:
    frames = [frame.removeprefix("data: ") for frame in text.split("\n\n") if frame]
    return [frame if frame == "[DONE]" else json.loads(frame) for frame in frames]


def said(frames: list[Any], choice: int = 0) -> str:
    """The text of one choice."""
    parts = [c for frame in frames if frame != "[DONE]" for c in frame["choices"]]
    return "".join(c["delta"].get("content") or "" for c in parts if c["index"] == choice)


async def usage(http: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    answer = await http.post(CHAT, json=chat(**fields))
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["usage"])


async def metric(http: httpx.AsyncClient, name: str) -> float:
    """The sum over a metric's label sets."""
    lines = (await http.get("/metrics")).text.splitlines()
    values = [line.split()[-1] for line in lines if line.startswith((f"{name}{{", f"{name} "))]
    assert values, f"no metric {name}"
    return sum(map(float, values))
