"""What the engine has received, for assertions about what a gateway sends and how it hangs up."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import msgspec

TEXT_FIELDS = (
    *("messages", "prompt", "tools", "input", "instructions", "system"),
    *("query", "documents", "text_1", "text_2"),
)
SECRET_HEADERS = ("authorization", "x-api-key")


@dataclass(slots=True)
class Received:
    """Times are the engine's own seconds (`at` of the start, 0 while not ended)."""

    number: int  # 1 for the first that this engine received
    path: str
    headers: dict[str, str]  # names in lower case
    raw: bytes
    arrived: float
    ended: float | None = None
    status: int | None = None
    priority: int | None = None  # what the engine scheduled it by
    stream: bool = False
    closed_by_client: bool = False
    chunks_sent: int = 0  # frames with content
    tokens_sent: int = 0
    generated_tokens: int = 0  # by the engine, sent or not
    usage: dict[str, int] = field(default_factory=dict)  # the truth, told to the caller or not

    @property
    def body(self) -> Any:
        """The body as JSON; None when it is none."""
        try:
            return msgspec.json.decode(self.raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None

    def public(self) -> dict[str, Any]:
        """Without prompts and keys. A key is told by the start of its SHA-256."""
        shown = {name: getattr(self, name) for name in self.__slots__ if name != "raw"}
        shown["headers"] = {name: _header(name, value) for name, value in self.headers.items()}
        body = self.body
        if isinstance(body, dict):
            body = {name: value for name, value in body.items() if name not in TEXT_FIELDS}
        return shown | {"body": body, "body_bytes": len(self.raw)}


def _header(name: str, value: str) -> str:
    if name not in SECRET_HEADERS:
        return value
    return f"sha256:{sha256(value.removeprefix('Bearer ').encode()).hexdigest()[:12]}"


class Log:
    """The latest `keep` requests, oldest first."""

    def __init__(self, keep: int) -> None:
        self.total = 0
        self.requests: deque[Received] = deque(maxlen=keep)

    def open(self, path: str, headers: dict[str, str], raw: bytes, now: float) -> Received:
        self.total += 1
        received = Received(self.total, path, headers, raw, now)
        self.requests.append(received)
        return received
