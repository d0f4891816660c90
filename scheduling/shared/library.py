"""The scheduler as a library of functions on a Redis server (Redis 7 or newer, Valkey alike).

`SOURCE` is this room's Lua; the gateway may append more of it (`Library(SOURCE + more)`), so that
one call admits, queues and grants. A library and its functions carry the digest of their text:
loading one twice is nothing, and those of two releases stand side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from importlib.resources import files
from typing import Any

from scheduling.shared import records

PARTS = (
    *("state", "queue", "capacity", "lanes", "pool", "requests"),
    *("figures", "restoring", "whole", "calls"),
)
SOURCE = "\n".join(
    [
        records.SOURCE,
        *(files(__package__).joinpath(f"{part}.lua").read_text(encoding="utf-8") for part in PARTS),
    ]
)


@dataclass(frozen=True)
class Library:
    """Lua text whose functions are registered as `name_VERSION`."""

    source: str = SOURCE
    version: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", sha256(self.source.encode()).hexdigest()[:12])

    @property
    def text(self) -> str:
        return (
            f"#!lua name=fairlane_{self.version}\nlocal VERSION = '{self.version}'\n{self.source}"
        )

    def function(self, name: str) -> str:
        return f"{name}_{self.version}"

    async def load(self, redis: Any) -> None:
        """Onto the server, in the place of the same text that is there."""
        await redis.function_load(self.text, replace=True)
