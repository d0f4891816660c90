"""One request's way, with no way back: key → admission → place → engine → settlement → record.

1. Whatever ends a request, `_close` acts once: counters settled, slot free, record journalled.
2. The record is in the journal before the caller sees the last byte of its answer.
3. A caller that hangs up cancels this task wherever it waits; the engine's connection is closed
   on the way out, which aborts its work.
4. An engine that failed before the caller had anything of its answer is left for another one once,
   charged once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import UTC, datetime

import structlog
from msgspec.structs import replace

from gateway import admission, call_log, errors, metrics
from gateway.alerting import BudgetAlerts
from gateway.counting import PromptCounter
from gateway.errors import ApiError, Outcome
from gateway.estimates import Estimates
from gateway.exchange import Exchange, HungUp
from gateway.governor import AdmissionRefused, Governor, NoPlace, Overloaded, StateLost
from gateway.identity import Identity, identify, identity_of
from gateway.incoming import Incoming
from gateway.lost import lost_place, shed_error, state_error
from gateway.relay import Relay, own_headers
from gateway.run import SHED, Run, new_request_id
from gateway.turns import Turns
from gateway.upstream.engines import EngineFailed, Engines
from gateway.watch import Telemetry
from gateway.wire import headers as wire_headers
from gateway.wire.headers import Asked
from gateway.wire.request import ParsedCall, parse
from gateway.wire.routes import ROUTES, Kind
from metering.core.cost import service_cost
from metering.journal import Journal, OpenEntry
from tenants.core.snapshot import LanePolicy, PolicySnapshot, PoolPolicy

GOODBYE_S = 0.5  # for a caller that may not be reading

log = structlog.get_logger("fairlane.gateway")


class Calls:
    """Serves calls under one snapshot at a time; `snapshot` is swapped whole."""

    def __init__(
        self,
        snapshot: PolicySnapshot,
        governor: Governor,
        engines: Engines,
        estimates: Estimates,
        journal: Journal,
        max_body_bytes: int,
        logged: str = "failed",
    ) -> None:
        """`logged` is FAIRLANE_LOG_CALLS."""
        self.snapshot = snapshot
        self.waiting: dict[str, Run] = {}
        self.alerts = BudgetAlerts()
        self.counter = PromptCounter(estimates, engines)
        self.telemetry: Telemetry | None = None
        self.logged = logged
        self._governor = governor
        self._engines = engines
        self._estimates = estimates
        self._journal = journal
        self._max_body_bytes = max_body_bytes
        self._incoming = Incoming(max_body_bytes)
        self._turns = Turns()

    async def serve(self, kind: Kind, exchange: Exchange) -> None:
        own_id, given_id = new_request_id(), exchange.given_id
        run = Run(
            request_id=f"{own_id}.{given_id}" if given_id else own_id,
            given_id=given_id,
            at=datetime.now(UTC),
            began=time.monotonic(),
            snapshot=self.snapshot,
            voice=ROUTES[kind].voice,
        )
        if self.telemetry is not None:
            run.trace = self.telemetry.begin(kind, exchange.headers)
        try:
            await self._serve(kind, exchange, run)
        except HungUp:
            run.end(Outcome.CLIENT_CLOSED)
        except asyncio.CancelledError:
            if exchange.gone:
                run.end(Outcome.CLIENT_CLOSED, exchange.left)
            else:
                run.end(Outcome.OVERLOADED, "error")
                await self._say_goodbye(exchange, run)
        finally:
            exchange.unwatch()
            self._close(run)
            run.trace.ended(run)
            call_log.note(run, self.logged)

    async def _serve(self, kind: Kind, exchange: Exchange, run: Run) -> None:
        try:
            await self._turns.take()
            await self._attempt(kind, exchange, run)
        except ApiError as error:
            await self._refuse(exchange, run, error)
        except HungUp:
            raise
        except Exception:
            log.exception("request failed", request_id=run.request_id)
            unexpected = ApiError(Outcome.ENGINE_ERROR, "The gateway failed unexpectedly.")
            await self._refuse(exchange, run, unexpected)

    async def _say_goodbye(self, exchange: Exchange, run: Run) -> None:
        """The server stops and waits no longer for this call: its caller hears so."""
        exchange.unwatch()
        self._close(run)
        error = ApiError(Outcome.OVERLOADED, "This gateway is stopping. Send the call again.")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                if run.streamed and exchange.started:
                    await exchange.finish(run.voice.event(error))
                elif not exchange.started:
                    await self._answer(exchange, run, error)

    async def _attempt(self, kind: Kind, exchange: Exchange, run: Run) -> None:
        asked = self._identify(exchange, run)
        call = parse(kind, await self._body(exchange, run))
        self._identify_again(run)
        assert run.who is not None
        exchange.watch()
        pool, lane = self._find(run, run.who, call, asked)
        prompt = self.counter.estimate(pool, call)
        if pool.tokenizer.kind != "estimate":
            prompt = await self.counter.count(pool, run.who, call, prompt)
            self._identify_again(run)
            pool, lane = self._find(run, run.who, call, asked)
        bound = self._plan(run, run.who, call, pool, lane, prompt)
        await self._wait_for_place(run)
        await self._run(exchange, run, call, asked, bound)
        self._estimates.learn(run.application_name(), run.model, call, run)

    async def _body(self, exchange: Exchange, run: Run) -> bytes:
        assert run.who is not None
        with self._incoming.of(run.who.tenant.name) as take:
            return await exchange.body(self._max_body_bytes, take)

    def _identify(self, exchange: Exchange, run: Run) -> Asked:
        """The key first: a call with a good one is on the record, whatever else it says."""
        try:
            asked = wire_headers.read(exchange.headers)
        except ApiError as error:
            if error.outcome is not Outcome.INVALID_API_KEY:
                run.who = identify(run.snapshot, wire_headers.key(exchange.headers), run.at)
            raise
        run.who = identify(run.snapshot, asked.key, run.at)
        return asked

    def _identify_again(self, run: Run) -> None:
        """A body may have taken its time; what is in force now decides, not what was then."""
        if run.snapshot is not self.snapshot:
            assert run.who is not None
            run.snapshot = self.snapshot
            run.who = identity_of(run.snapshot, run.who.digest, datetime.now(UTC))

    def _find(
        self, run: Run, who: Identity, call: ParsedCall, asked: Asked
    ) -> tuple[PoolPolicy, LanePolicy]:
        """Where the call goes, if it may go there at all."""
        run.model, run.interaction = call.model, asked.interaction
        admission.check_tenant(who.tenant)
        pool = admission.find_pool(run.snapshot, who.tenant, call.model)
        run.model = pool.model
        self._engines.check_usable(pool)
        lane = admission.find_lane(run.snapshot, who, asked.lane)
        run.lane = lane.name
        return pool, lane

    def _plan(
        self,
        run: Run,
        who: Identity,
        call: ParsedCall,
        pool: PoolPolicy,
        lane: LanePolicy,
        prompt: int,
    ) -> int | None:
        """The checks of its size, and its plan; returns the output bound that policy puts in."""
        admission.check_input(who.tenant, prompt, call.route.prompt_field)
        ceiling = admission.output_ceiling(who.tenant, call)
        run.plan = admission.make_plan(
            request_id=run.request_id,
            snapshot=run.snapshot,
            who=who,
            call=call,
            pool=pool,
            lane=lane,
            estimate=self._estimates.of(run.application_name(), pool.model, call, prompt, ceiling),
            at=run.at,
            interaction=run.interaction,
        )
        if call.max_output_tokens is not None or ceiling is None:
            return None
        return self._engines.room_for_output(pool.model, prompt, ceiling)

    async def _wait_for_place(self, run: Run) -> None:
        assert run.plan is not None
        self.waiting[run.request_id] = run
        run.trace.admitted()
        try:
            run.place = await self._governor.admit(run.plan)
        except AdmissionRefused as refused:
            verdict = refused.verdict
            run.rates, run.throttle_reason = verdict.rates, verdict.limit
            raise ApiError(
                Outcome(verdict.code), verdict.message, retry_after_s=verdict.retry_after_s
            ) from None
        except Overloaded as shed:
            run.throttle_reason = SHED
            raise shed_error(shed) from None
        except NoPlace as lost:
            run.lane, run.throttle_reason = lost.lane.name, lost.reason
            raise lost_place(lost, run.model) from None
        except StateLost:
            run.throttle_reason = "state_unavailable"
            raise state_error() from None
        finally:
            del self.waiting[run.request_id]
            run.trace.placed()
        run.rates, run.lane = run.place.rates, run.place.lane.name
        run.endpoint = run.place.grant.endpoint
        if run.place.alerts:
            self.alerts.used_up(run.plan.hold.budgets, run.place.alerts)

    async def _run(
        self, exchange: Exchange, run: Run, call: ParsedCall, asked: Asked, bound: int | None
    ) -> None:
        """At an engine; at another one where the first fails before the caller has anything."""
        assert run.plan is not None
        run.asked = True
        entry = open_entry(run)
        self._journal.opened(entry)
        self._governor.asked(entry)
        run.deadline = asyncio.get_running_loop().time() + run.plan.pool.timeouts.total
        try:
            await self._run_once(exchange, run, call, asked, bound)
        except EngineFailed:
            if exchange.started or not await self._goes_elsewhere(run):
                raise
            await self._run_once(exchange, run, call, asked, bound)

    async def _run_once(
        self, exchange: Exchange, run: Run, call: ParsedCall, asked: Asked, bound: int | None
    ) -> None:
        try:
            answer = await self._engines.ask(run, call, asked, bound)
            try:
                relay = Relay(self._engines, exchange, run, call, self._charge, self._close)
                await relay.relay(answer)
            finally:
                await answer.aclose()
        except ApiError as error:
            run.trace.failed(error.outcome)
            if not exchange.started:
                run.start_over()
            raise

    async def _goes_elsewhere(self, run: Run) -> bool:
        grant = await self._governor.elsewhere(run.request_id, avoid=run.endpoint)
        if grant is None:
            return False
        assert run.place is not None
        run.place = replace(run.place, grant=grant)
        run.endpoint = grant.endpoint
        return True

    def _charge(self, run: Run, tokens: int) -> None:
        assert run.plan is not None
        prompt = run.plan.estimate.prompt_tokens
        cost = service_cost(run.plan.pool.cost, prompt, 0, tokens)
        self._governor.charge(run.request_id, prompt + tokens, cost)

    async def _refuse(self, exchange: Exchange, run: Run, error: ApiError) -> None:
        run.end(error.outcome)
        run.throttle_reason = run.throttle_reason or error.limit
        if run.who is None:
            metrics.unknown_keys.inc()
        self._close(run)
        if exchange.started:  # nothing can be said any more but by breaking off
            raise error
        await self._answer(exchange, run, error)

    async def _answer(self, exchange: Exchange, run: Run, error: ApiError) -> None:
        headers = [
            (b"content-type", b"application/json"),
            *errors.headers(error),
            *own_headers(run),
        ]
        body = run.voice.body(error, run.shown_id)
        await exchange.respond(error.status, headers, body)

    def _close(self, run: Run) -> None:
        if run.settled or run.who is None:
            return
        run.settled = True
        run.leave_queue()
        record = run.record(time.monotonic())
        if run.place is not None:
            tokens = record.prompt_tokens + record.completion_tokens
            self._governor.settle(run.request_id, tokens, record.cost)
            run.correct_rates(tokens)
        self._journal.ended(record)
        metrics.count(record, run)


def open_entry(run: Run) -> OpenEntry:
    plan, who = run.plan, run.who
    assert plan is not None
    assert who is not None
    return OpenEntry(
        request_id=run.request_id,
        at=run.at,
        tenant=who.tenant.name,
        application=who.application.name,
        key=who.key.id,
        model=plan.pool.model,
        lane=run.lane,
        interaction=run.interaction,
        endpoint=run.endpoint,
        prompt_tokens=plan.estimate.prompt_tokens,
        completion_tokens=plan.estimate.output_tokens,
        estimated_cost=plan.hold.cost,
        queue_ms=run.place.queue_s * 1000 if run.place else 0.0,
        policy_revision=run.snapshot.revision,
        accounts=plan.accounts,
    )
