"""Mixed traffic of several tenants, so that the dashboards have something to show.

Shapes as shared engines see them: short chat, long context, long generation, an agent's chain of
calls, a batch, bursts past a limit, and a noisy neighbour that begins after a minute.
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
CORPUS_WORDS = 20_000
USUAL_S = 180.0
POLITE_S = (1.0, 5.0)  # how long who was refused waits, whatever retry-after says


@dataclass(frozen=True, slots=True)
class Shape:
    """How one kind of user behaves; tokens are about what the engine will count."""

    name: str
    prompt_tokens: tuple[int, int]
    output_tokens: tuple[int, int]
    pause_s: tuple[float, float]
    same_tokens: int = 200  # in front of each of its prompts, so that the engine's cache has them
    calls: int = 1  # of one interaction, each with what was said before
    at_once: int = 1
    stream: bool = True


CHAT = Shape("short chat", (20, 120), (20, 120), (0.5, 3.0))
CONTEXT = Shape("long context", (20, 100), (30, 150), (1.0, 4.0), same_tokens=6000)
WRITING = Shape("long generation", (50, 200), (300, 900), (0.5, 2.0))
AGENT = Shape("agent", (100, 600), (20, 80), (1.0, 3.0), calls=6, stream=False)
BATCH = Shape("batch", (1500, 3000), (20, 80), (0.5, 2.0), stream=False)
NOISY = Shape("noisy neighbour", (1500, 5000), (200, 500), (0.0, 0.1))
BURST = Shape("burst", (5, 15), (5, 10), (8.0, 10.0), same_tokens=0, at_once=280, stream=False)


@dataclass(frozen=True, slots=True)
class User:
    """One simulated user: who it is, how it behaves, when it begins (part of `USUAL_S`)."""

    tenant: str
    key: str
    shape: Shape
    begins_at: float = 0.0


def begins_s(part: float, seconds: float) -> float:
    """Sooner where there is less time than usual."""
    return part * min(seconds, USUAL_S)


class Traffic:
    """Runs users against a gateway for a time; `ended` counts answers by tenant and status."""

    def __init__(self, url: str, model: str, seconds: float, seed: int = 1) -> None:
        self.ended: Counter[tuple[str, int]] = Counter()
        self._url = url
        self._model = model
        self._seconds = seconds
        self._rng = random.Random(seed)
        self._corpus = self._rng.choices(WORDS, k=CORPUS_WORDS)

    async def run(self, users: list[User], tick: Callable[[], Awaitable[None]]) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(base_url=self._url, timeout=120, limits=limits) as client:
            tasks = [asyncio.create_task(self._live(client, user)) for user in users]
            ticking = asyncio.create_task(self._tick(tick))
            try:
                await asyncio.sleep(self._seconds)
            finally:  # at Ctrl-C, too: nobody is to ask a client that is closed
                for task in (*tasks, ticking):
                    task.cancel()
                await asyncio.gather(*tasks, ticking, return_exceptions=True)

    async def _tick(self, tick: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(1)
            await tick()

    async def _live(self, client: httpx.AsyncClient, user: User) -> None:
        await asyncio.sleep(begins_s(user.begins_at, self._seconds) + self._rng.uniform(0, 2))
        same = self.text(user.shape.same_tokens)
        while True:
            turns = (self.turn(client, user, same) for _ in range(user.shape.at_once))
            await asyncio.gather(*turns)
            await asyncio.sleep(self._rng.uniform(*user.shape.pause_s))

    async def turn(self, client: httpx.AsyncClient, user: User, same: str) -> None:
        """One call, or all of one interaction; what was refused ends it."""
        headers = {"Authorization": f"Bearer {user.key}"}
        if user.shape.calls > 1:
            headers["X-Fairlane-Interaction"] = uuid.uuid4().hex
        said = [{"role": "system", "content": same}] if same else []
        for _ in range(user.shape.calls):
            prompt = self.text(self._rng.randint(*user.shape.prompt_tokens))
            said.append({"role": "user", "content": prompt})
            status, wait_s = await self._post(client, self._body(user.shape, said), headers)
            self.ended[user.tenant, status] += 1
            if status != 200:
                await asyncio.sleep(min(max(wait_s, POLITE_S[0]), POLITE_S[1]))
                return

    def _body(self, shape: Shape, said: list[dict[str, str]]) -> dict[str, object]:
        bound = self._rng.randint(*shape.output_tokens)
        return {
            "model": self._model,
            "messages": said,
            "max_tokens": bound,
            "stream": shape.stream,
        }

    def text(self, tokens: int) -> str:
        start = self._rng.randrange(CORPUS_WORDS - tokens)
        return " ".join(self._corpus[start : start + tokens])

    async def _post(
        self, client: httpx.AsyncClient, body: dict[str, object], headers: dict[str, str]
    ) -> tuple[int, float]:
        """The status of the answer, 0 when there was none, and the seconds of its retry-after."""
        try:
            request = client.stream("POST", "/v1/chat/completions", json=body, headers=headers)
            async with request as answer:
                async for _ in answer.aiter_raw():
                    pass
                return answer.status_code, float(answer.headers.get("retry-after", 0))
        except httpx.TransportError:
            return 0, 0.0
