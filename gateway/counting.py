"""How many tokens a prompt has, before it waits: by the pool's `tokenizer`.

1. The estimate costs nothing and is always there; whatever goes wrong with a count, it stands in.
   No call fails for being counted, and none waits for it longer than an engine's `PATIENCE_S`.
2. Counting is left out where it could change nothing: where `FAR` times the estimate is within
   each limit on tokens and each budget of the call.
3. Texts past `INLINE_BYTES` are counted on a thread; the tokenizer lets go of the interpreter.
4. Media and token arrays are added as in every estimate. A file knows nothing of the chat template
   either, so `MESSAGE_TOKENS` and `ANSWER_TOKENS` stand for it; an engine renders its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from gateway.estimates import MEDIA_TOKENS, Estimates, beside_text
from gateway.identity import Identity
from gateway.tokenizer_files import CountTexts, Unreadable, load
from gateway.upstream.engines import Engines
from gateway.wire.request import ParsedCall
from tenants.core.snapshot import PolicySnapshot, PoolPolicy

FAR = 10
INLINE_BYTES = 1_000
MESSAGE_TOKENS = 4  # what chat templates put round a message, beside its role (ChatML, Llama 3)
ANSWER_TOKENS = 3  # and before the answer
PATIENCE_S = 0.5
RETRY_S = 30.0  # an engine that could not count is not asked for so long

log = structlog.get_logger("fairlane.gateway")


class PromptCounter:
    def __init__(
        self,
        estimates: Estimates,
        engines: Engines,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._estimates = estimates
        self._engines = engines
        self._clock = clock
        self._files: dict[str, CountTexts] = {}
        self._faults: dict[str, str] = {}  # by model: why its estimate stands in
        self._retry_at: dict[str, float] = {}
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="tokenizer")

    def estimate(self, pool: PoolPolicy, call: ParsedCall) -> int:
        return self._estimates.prompt_tokens(pool.model, call)

    async def count(self, pool: PoolPolicy, who: Identity, call: ParsedCall, about: int) -> int:
        """Prompt tokens; `about` is their estimate."""
        if call.route.texts is None or not call.prompt_bytes or far_below(about, pool, who):
            return about
        if pool.tokenizer.kind == "file":
            return await self._by_file(pool, call, about)
        return await self._by_engine(pool, call, about)

    def state(self, pool: PoolPolicy) -> dict[str, str]:
        """For the live state: `fault` is empty where the pool counts as its policy says."""
        return {"kind": pool.tokenizer.kind, "fault": self._faults.get(pool.model, "")}

    def configure(self, snapshot: PolicySnapshot) -> bool:
        """Forget what the policy counts with no more: a tokenizer takes tens of MB.
        Returns whether it names tokenizer files that are not loaded."""
        counted = [p for p in snapshot.pools.values() if p.tokenizer.kind != "estimate"]
        models = {p.model for p in counted}
        paths = {p.tokenizer.path for p in counted if p.tokenizer.path}
        self._faults = {m: fault for m, fault in self._faults.items() if m in models}
        self._retry_at = {m: at for m, at in self._retry_at.items() if m in models}
        self._files = {path: count for path, count in self._files.items() if path in paths}
        return not paths <= self._files.keys()

    async def load(self, snapshot: PolicySnapshot) -> None:
        """Read the policy's tokenizer files, those that are not loaded."""
        loop = asyncio.get_running_loop()
        for pool in snapshot.pools.values():
            path = pool.tokenizer.path
            if not path:
                continue
            try:
                if path not in self._files:
                    self._files[path] = await loop.run_in_executor(self._threads, load, path)
                self._faults.pop(pool.model, None)
            except Unreadable as error:
                self._fault(pool, str(error))

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _by_file(self, pool: PoolPolicy, call: ParsedCall, about: int) -> int:
        count, read = self._files.get(pool.tokenizer.path), call.route.texts
        if count is None or read is None:
            return about
        try:
            texts = read(call.body)
            if call.prompt_bytes <= INLINE_BYTES:
                found = count(texts)
            else:
                loop = asyncio.get_running_loop()
                found = await loop.run_in_executor(self._threads, count, texts)
        except Exception as error:  # a library's own, on text of any kind
            self._fault(pool, f"counting failed: {error!r}")
            return about
        template = call.messages * MESSAGE_TOKENS + ANSWER_TOKENS if call.messages else 0
        return max(1, found + template + beside_text(call))

    async def _by_engine(self, pool: PoolPolicy, call: ParsedCall, about: int) -> int:
        if self._clock() < self._retry_at.get(pool.model, 0.0):
            return about
        found = await self._engines.count(pool, call, PATIENCE_S)
        if isinstance(found, str):
            self._retry_at[pool.model] = self._clock() + RETRY_S
            self._fault(pool, found)
            return about
        self._faults.pop(pool.model, None)
        return max(1, found + call.media * MEDIA_TOKENS)

    def _fault(self, pool: PoolPolicy, reason: str) -> None:
        if self._faults.get(pool.model) != reason:
            log.error("prompts are estimated, not counted", model=pool.model, reason=reason)
        self._faults[pool.model] = reason


def far_below(tokens: int, pool: PoolPolicy, who: Identity) -> bool:
    """Whether a count could change nothing: see invariant 2."""
    limits = who.tenant.limits
    most = FAR * tokens
    if limits.max_input_tokens is not None and most > limits.max_input_tokens:
        return False
    if limits.tokens_per_minute is not None and most > limits.tokens_per_minute:
        return False
    cost = most * pool.cost.input
    budgets = (*who.key.budgets, *who.application.budgets, *who.tenant.budgets)
    return all(cost <= budget.cost for budget in budgets)
