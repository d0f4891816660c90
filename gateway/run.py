"""What is known of one request while it is served, and how it becomes a usage record."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import datetime
from math import inf

import msgspec
from msgspec.structs import replace

from gateway.admission import Plan
from gateway.errors import OPENAI, Outcome, Voice
from gateway.governor import Place
from gateway.identity import Identity
from gateway.upstream.order import Pending
from gateway.watch import UNWATCHED, Trace
from gateway.wire.meter import Meter
from gateway.wire.usage import Usage, finish_reason
from metering.core.cost import service_cost
from metering.core.hold import RateState
from metering.core.record import FinishReason, UsageRecord, UsageSource
from tenants.core.snapshot import PolicySnapshot

NOTHING = Usage(0, 0, 0)
_dice = random.Random()  # seeded by the system; to ask that each time would be a system call
NO_RATES = RateState()
SHED = "predicted_wait"  # a throttle_reason


def new_request_id() -> str:
    """Rises with time, so that the ledger's index of ids grows at its end only: ids all over it
    cost several times as much as the whole insert. 80 bits of it are random; nothing is secret."""
    return f"{time.time_ns() // 1_000_000:012x}{_dice.getrandbits(80):020x}"


class Run(msgspec.Struct):
    """Times in monotonic seconds but `at`. `asked` once an engine may have begun to work for it,
    `answering` once the engine has accepted it (its answer began with 200)."""

    request_id: str  # of its record: no two are the same, whatever a proxy calls them
    at: datetime
    began: float
    snapshot: PolicySnapshot
    voice: Voice = OPENAI
    who: Identity | None = None
    model: str = ""  # its pool's; the caller's own word until that is found
    lane: str = ""
    interaction: str = ""
    plan: Plan | None = None
    place: Place | None = None
    endpoint: str = ""
    rates: RateState = NO_RATES
    asked: bool = False
    answering: bool = False
    streamed: bool = False
    usage: Usage | None = None  # as the engine told it
    usage_is_final: bool = True  # not of a part, told as it went
    usage_is_exact: bool = True  # not of one choice, taken for the others too
    counted_tokens: int = 0  # completion tokens seen in the delivered answer
    first_at: float | None = None
    deadline: float = inf  # on the loop's clock: when its answer must be complete,
    first_by: float = inf  # and when the engine asked last must have begun it
    outcome: Outcome = Outcome.OK
    finish: FinishReason = "stop"
    throttle_reason: str = ""
    settled: bool = False
    trace: Trace = UNWATCHED
    given_id: str = ""  # that a proxy gave it; within `request_id`, after a dot
    pending: Pending | None = None  # a stream, in the queue of its engine
    begun: Callable[[], None] = lambda: None  # to be called when a stream's first content is here

    @property
    def shown_id(self) -> str:
        """What caller and engine know it by."""
        return self.given_id or self.request_id

    def end(self, outcome: Outcome, finish: FinishReason | None = None) -> None:
        self.outcome = outcome
        self.finish = finish or outcome.answer.finish_reason

    def note_stream(self, meter: Meter) -> None:
        self.streamed = True
        self.usage, self.usage_is_final = meter.usage, meter.usage_is_final
        self.counted_tokens = meter.tokens
        if self.outcome is Outcome.OK:
            self.finish = finish_reason(meter.finish_reasons)

    def leave_queue(self) -> None:
        """Its stream will not begin any more at the engine that was asked last."""
        if self.pending is not None:
            self.pending.is_over = True

    def start_over(self) -> None:
        """Its engine failed before the caller had anything of an answer: it is as if that had
        never been asked."""
        self.answering = self.streamed = False
        self.usage, self.usage_is_final, self.usage_is_exact = None, True, True
        self.counted_tokens, self.first_at = 0, None

    def correct_rates(self, tokens: int) -> None:
        """What is left after it, now that it is known: of use to an answer not yet begun."""
        left = self.rates.remaining_tokens
        if self.place is not None and left is not None:
            left += self.place.tokens - tokens
            self.rates = replace(self.rates, remaining_tokens=left)

    def application_name(self) -> str:
        """The application's name among all tenants'."""
        assert self.who is not None
        return f"{self.who.tenant.name}/{self.who.application.name}"

    def final_usage(self) -> tuple[Usage, UsageSource]:
        """The engine's count; else what was delivered; else the estimate. Nothing for a request
        that no engine took on."""
        if self.usage is not None:
            return self.usage, self._source_of_usage()
        if not self.asked or self.plan is None or self._refused_by_engine():
            return NOTHING, "estimated"
        prompt = self.plan.estimate.prompt_tokens
        if self.streamed or self.counted_tokens:
            return Usage(prompt, 0, self.counted_tokens), "counted"
        return Usage(prompt, 0, self.plan.estimate.output_tokens), "estimated"

    def _source_of_usage(self) -> UsageSource:
        if not self.usage_is_exact:
            return "estimated"
        return "engine" if self.usage_is_final else "counted"

    def _refused_by_engine(self) -> bool:
        """A failure before any answer: nothing was delivered, so nothing is charged. A caller
        that hung up in that time is another matter: the engine had begun."""
        return not self.answering and self.outcome is not Outcome.CLIENT_CLOSED

    def record(self, now: float) -> UsageRecord:
        assert self.who is not None
        usage, source = self.final_usage()
        plan, place = self.plan, self.place
        return UsageRecord(
            request_id=self.request_id,
            at=self.at,
            tenant=self.who.tenant.name,
            application=self.who.application.name,
            key=self.who.key.id,
            model=self.model,
            lane=self.lane,
            interaction=self.interaction,
            endpoint=self.endpoint,
            prompt_tokens=usage.prompt,
            cached_tokens=usage.cached,
            completion_tokens=usage.completion,
            usage_source=source,
            cost=service_cost(plan.pool.cost, usage.prompt, usage.cached, usage.completion)
            if plan
            else 0.0,
            estimated_cost=plan.hold.cost if plan else 0.0,
            queue_ms=self._queue_ms(now),
            ttft_ms=None if self.first_at is None else (self.first_at - self.began) * 1000,
            e2e_ms=(now - self.began) * 1000,
            status=self.outcome.answer.status,
            finish_reason=self.finish,
            throttle_reason=self.throttle_reason,
            policy_revision=self.snapshot.revision,
            accounts=plan.accounts if place and plan else (),
        )

    def _queue_ms(self, now: float) -> float:
        if self.place is not None:
            return self.place.queue_s * 1000
        if self.plan is None or self.finish == "throttled" or self.throttle_reason == SHED:
            return 0.0  # refused before the queue
        return (now - self.began) * 1000
