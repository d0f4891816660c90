"""Mixed traffic of several tenants, so that the dashboards have something to show.

Five shapes, as shared engines see them: short chat, long context, long generation, an agent's
chain of calls, and a noisy neighbour that begins when a third of the time is over.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "in", "heavy", "rain"]


@dataclass(frozen=True, slots=True)
class Shape:
    """How one kind of user behaves; tokens are about what the engine will count."""

    name: str
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]
    pause_s: tuple[float, float]
    calls: int = 1  # of one interaction
    stream: bool = True


CHAT = Shape("short chat", (20, 120), (20, 120), (0.5, 3.0))
CONTEXT = Shape("long context", (2000, 8000), (30, 150), (1.0, 4.0))
WRITING = Shape("long generation", (50, 200), (300, 900), (0.5, 2.0))
AGENT = Shape("agent", (300, 1500), (20, 80), (1.0, 3.0), calls=6, stream=False)
NOISY = Shape("noisy neighbour", (1500, 5000), (200, 500), (0.0, 0.1))


@dataclass(frozen=True, slots=True)
class User:
    """One simulated user: who it is, how it behaves, when it begins (part of the whole time)."""

    tenant: str
    key: str
    shape: Shape
    begins_at: float = 0.0


def text_of(tokens: int, rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(max(1, tokens)))


class Traffic:
    """Runs users against a gateway for a time; `ended` counts answers by tenant and status."""

    def __init__(self, url: str, model: str, seconds: float, seed: int = 1) -> None:
        self.ended: Counter[tuple[str, int]] = Counter()
        self._url = url
        self._model = model
        self._seconds = seconds
        self._rng = random.Random(seed)

    async def run(self, users: list[User], tick: Callable[[], Awaitable[None]]) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(base_url=self._url, timeout=120, limits=limits) as client:
            tasks = [asyncio.create_task(self._live(client, user)) for user in users]
            ticking = asyncio.create_task(self._tick(tick))
            await asyncio.sleep(self._seconds)
            for task in (*tasks, ticking):
                task.cancel()
            await asyncio.gather(*tasks, ticking, return_exceptions=True)

    async def _tick(self, tick: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(1)
            await tick()

    async def _live(self, client: httpx.AsyncClient, user: User) -> None:
        await asyncio.sleep(self._seconds * user.begins_at + self._rng.uniform(0, 2))
        while True:
            interaction = uuid.uuid4().hex if user.shape.calls > 1 else None
            for _ in range(user.shape.calls):
                await self._call(client, user, interaction)
            await asyncio.sleep(self._rng.uniform(*user.shape.pause_s))

    async def _call(self, client: httpx.AsyncClient, user: User, interaction: str | None) -> None:
        shape = user.shape
        prompt = text_of(self._rng.randint(*shape.prompt_tokens), self._rng)
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": self._rng.randint(*shape.output_tokens),
            "stream": shape.stream,
        }
        headers = {"Authorization": f"Bearer {user.key}"}
        if interaction:
            headers["X-Fairlane-Interaction"] = interaction
        status = await self._post(client, body, headers)
        self.ended[user.tenant, status] += 1
        if status != 200:
            await asyncio.sleep(1.0)  # as a polite client would

    async def _post(
        self, client: httpx.AsyncClient, body: dict[str, object], headers: dict[str, str]
    ) -> int:
        """The status of the answer; 0 when there was none."""
        try:
            request = client.stream("POST", "/v1/chat/completions", json=body, headers=headers)
            async with request as answer:
                async for _ in answer.aiter_raw():
                    pass
                return answer.status_code
        except httpx.TransportError:
            return 0
