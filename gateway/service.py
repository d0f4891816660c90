"""The gateway's parts in one process: built in order, kept in step with the policy, shut down.

1. A gateway answers only once it has a snapshot and its counters are restored from the ledger.
2. The policy's version is polled, at once where PostgreSQL tells of a change; a newer one is
   compiled off the loop and swapped in one step, between two requests. A poll that fails changes
   nothing: the last good snapshot stays.
3. Stopping: nothing new is admitted, what runs may finish, then every record is written.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from django.conf import settings
from django.db import close_old_connections, connection, connections

from gateway import alerting, gauges, metrics
from gateway.calls import Calls
from gateway.estimates import Estimates
from gateway.policy import scheduler_config, why_drop
from gateway.state import LocalState, State
from gateway.steps import keep, measure_lag
from gateway.telling import Telling
from gateway.upstream.client import EngineClient
from gateway.upstream.engines import Engines, Heard
from gateway.upstream.loads import LoadWatch
from gateway.upstream.probe import EndpointProber
from gateway.upstream.transport import EngineTransport
from metering import learnt
from metering.journal import Journal
from metering.ledger import LedgerWriter, PolicyBudgets, recover
from metering.restore import budgets_by_tenant
from metering.services import write_sample
from tenants.core.snapshot import EndpointPolicy, PolicySnapshot, PoolPolicy
from tenants.postgres import PolicyNotices
from tenants.selectors import current_version, load_snapshot

if TYPE_CHECKING:
    from gateway.otel.start import Sender

log = structlog.get_logger("fairlane.gateway")
T = TypeVar("T")

POLL_S = 0.25
POLL_WHILE_TOLD_S = 0.5  # within a second also where a notice is lost
SAMPLE_S = 1.0
CUT_S = 3.0
REMEMBER_S = 30.0
ALERT_S = 5.0
LEAVE_S = 5.0
DRAIN_MARGIN_S = 2.0  # to answer those that are turned away


class Gateway:
    def __init__(self) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self.ready = False
        self.notices = PolicyNotices()
        self._database = ThreadPoolExecutor(1, thread_name_prefix="gateway-database")
        # What it tells goes by a thread of its own: who is locked out of its table must not keep a
        # change of policy waiting.
        self._teller = ThreadPoolExecutor(1, thread_name_prefix="gateway-telling")
        self._tasks: list[asyncio.Task[None]] = []
        self._learnt: dict[str, tuple[EndpointPolicy, ...]] = {}
        self._remembered = learnt.Dumps()
        self._sender: Sender | None = None

    async def start(self) -> None:
        at = datetime.now(UTC)
        folder: Path = settings.FAIRLANE_DATA_DIR / "journal"
        snapshot = await self._in_thread(load_snapshot)
        await self._in_thread(lambda: recover(folder, PolicyBudgets(lambda: snapshot)))
        self.state = self._make_state()
        await self.state.load(snapshot, scheduler_config(snapshot), at)
        self.estimates = Estimates(await self._in_thread(learnt.load))
        self.journal = Journal.start(folder, self.name)
        self._assemble(snapshot)
        self.budget_of = PolicyBudgets(lambda: self.snapshot)
        self.writer = LedgerWriter(self.journal, self.budget_of)
        self.writer.start()
        self._apply(snapshot)
        self._sender = await asyncio.to_thread(self._start_telemetry)
        self._tasks = [
            asyncio.create_task(self.notices.listen(), name="policy notices"),
            asyncio.create_task(
                keep(self._poll_policy, POLL_S, self._until_news), name="policy poll"
            ),
            asyncio.create_task(keep(self._sample, SAMPLE_S), name="live sample"),
            asyncio.create_task(keep(self._cut, CUT_S), name="ledger check"),
            asyncio.create_task(keep(self._remember, REMEMBER_S), name="learnt"),
            asyncio.create_task(keep(self._alert, ALERT_S), name="budget alerts"),
            asyncio.create_task(measure_lag(), name="loop lag"),
            *(
                asyncio.create_task(keep(step, every_s), name=name)
                for step, every_s, name in self.state.open(self.journal)
            ),
        ]
        gc.collect()
        gc.freeze()  # what the start made stays; looking through it costs 0.1 s, again and again
        gc.collect()  # how often all is looked through goes by how much there was the last time
        self.ready = True
        log.info("gateway ready", gateway=self.name, revision=snapshot.revision)

    def _make_state(self) -> State:
        if not settings.REDIS_URL:
            return LocalState(self.name, self._in_thread)
        from gateway.shared.state import SharedState

        opens = settings.FAIRLANE_STATE_LOSS == "fail-open"
        return SharedState(self.name, self._in_thread, settings.REDIS_URL, opens=opens)

    def _assemble(self, snapshot: PolicySnapshot) -> None:
        self.client = EngineClient(EngineTransport(allowed=settings.FAIRLANE_LINK_LOCAL_ENGINES))
        self.prober = EndpointProber(self._endpoint_changed, self.client)
        self.engines = Engines(
            self.client,
            settings.SECRET_KEY.encode(),
            self.prober.is_healthy,
            self.prober.failed,
            self._heard,
        )
        self.loads = LoadWatch(self.client, self.engines.key_header, self.state.scheduler)
        self.calls = Calls(
            snapshot,
            self.state.governor,
            self.engines,
            self.estimates,
            self.journal,
            settings.FAIRLANE_MAX_BODY_BYTES,
            settings.FAIRLANE_LOG_CALLS,
        )
        self.telling = Telling(
            self.name, self.calls, self.state, self.engines, self.loads, self.prober.fault
        )

    def _start_telemetry(self) -> Sender | None:
        """Loaded only where it is on: the SDK takes memory and half a second."""
        wanted = settings.OTEL
        if not (wanted.traces or wanted.metrics):
            return None
        from gateway.otel.start import Sender

        sender = Sender(self.name, traces=wanted.traces, metrics=wanted.metrics)
        self.calls.telemetry = sender.telemetry
        return sender

    @property
    def fault(self) -> str:
        """Why it is not ready; empty when it is."""
        return self.state.fault if self.ready else "starting or stopping"

    @property
    def snapshot(self) -> PolicySnapshot:
        return self.calls.snapshot

    def drain(self) -> None:
        """Not ready from now on. What still waits for a place shortly before the server stops
        waiting is told to come again, instead of losing its connection."""
        self.ready = False
        wait_s = max(0.0, settings.FAIRLANE_DRAIN_SECONDS - DRAIN_MARGIN_S)
        asyncio.get_running_loop().call_later(wait_s, self._turn_away)

    def _turn_away(self) -> None:
        for request_id in list(self.calls.waiting):
            self.state.drop(request_id, "shutting_down")

    async def stop(self) -> None:
        self.ready = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.prober.aclose()
        await self.loads.aclose()
        await self.client.aclose()
        self.calls.counter.close()
        if self._sender is not None:
            await asyncio.to_thread(self._sender.stop)
        await self.state.aclose()
        await asyncio.to_thread(self.writer.stop, 10.0)
        await self._leave_database()
        log.info("gateway stopped", gateway=self.name)

    async def _leave_database(self) -> None:
        """A server that hangs is in the way of no stop: what matters is in the journal."""

        async def last_words() -> None:
            with suppress(Exception):
                await self._remember()
            await self._in_thread(connections.close_all)
            await self._aside(connections.close_all)

        with suppress(TimeoutError):
            await asyncio.wait_for(last_words(), LEAVE_S)
        for threads in (self._database, self._teller):
            threads.shutdown(wait=False, cancel_futures=True)

    def _apply(self, snapshot: PolicySnapshot) -> None:
        """One step, without an await: no request sees half of it."""
        self.calls.snapshot = snapshot
        self.budget_of.note()
        self.loads.configure(snapshot)
        self.state.configure(scheduler_config(snapshot, self.loads.learnt), snapshot)
        for name in self.engines.configure(snapshot):
            log.error("an engine's key is not in the environment", variable=name)
        self.prober.configure(
            {p.model: [e.url for e in p.endpoints] for p in snapshot.pools.values()},
            [(p.model, e.url) for p in snapshot.pools.values() for e in p.endpoints if e.drain],
        )
        self._drop_barred()
        metrics.keep_tenants(snapshot.tenants)
        for pool in snapshot.pools.values():
            if self._learnt.get(pool.model) != pool.endpoints:
                self._learn(pool)
        self._learnt = {p.model: p.endpoints for p in snapshot.pools.values()}
        if self.calls.counter.configure(snapshot):
            self._start(self.calls.counter.load(snapshot), "tokenizer files")

    def _drop_barred(self) -> None:
        """Waiting requests whose key or tenant may no longer ask: revoked, suspended, expired."""
        at = datetime.now(UTC)
        for request_id, run in list(self.calls.waiting.items()):
            reason = why_drop(self.snapshot, run, at)
            if reason is not None:
                self.state.drop(request_id, reason)

    def _learn(self, pool: PoolPolicy) -> None:
        self._start(self.engines.learn(pool), f"learn {pool.model}")

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    def _heard(self, pool: str, url: str, what: Heard) -> None:
        if what == "answered":
            self.prober.answered(pool, url)
        elif what == "failed":
            self.prober.faulty(pool, url)
        else:
            self.loads.refused((pool, url))

    def _endpoint_changed(self, pool: str, url: str, healthy: bool, reason: str) -> None:
        log.warning("endpoint changed", model=pool, url=url, healthy=healthy, reason=reason)
        self.state.set_available(pool, url, healthy)
        policy = self.snapshot.pools.get(pool)
        if healthy and policy is not None:
            self._learn(policy)

    async def _poll_policy(self) -> None:
        known = self.snapshot.version
        self._drop_barred()  # keys expire without a change of policy
        try:
            if await self._in_thread(current_version) == known:
                return
            snapshot = await self._in_thread(load_snapshot)
            at = datetime.now(UTC)
            change = await self.state.read_change(self.snapshot, snapshot, at)
        except Exception:
            metrics.policy_failures.inc()
            raise
        self._apply(snapshot)
        await self.state.take_up(change, self.budget_of, at)
        log.info("policy in force", revision=snapshot.revision, version=snapshot.version)

    async def _sample(self) -> None:
        at = datetime.now(UTC)
        state = await self.telling.sample(at)
        await self._aside(lambda: write_sample(self.name, state))

    async def _cut(self) -> None:
        """The counters as they are, into the journal: its reader holds them against the ledger."""
        self.state.cut(self.calls.waiting, datetime.now(UTC))

    async def _alert(self) -> None:
        """Tell of budgets that let calls in though they are used up; and of those that are over."""
        at = datetime.now(UTC)
        new = self.calls.alerts.take()
        known = await self._aside(alerting.open_accounts)
        left = await self._left({*known, *new}, at)
        still = self.calls.alerts.still(
            known, new, self.budget_of, lambda policy: left.get(policy.account, inf), at
        )
        if new or still != set(known):
            await self._aside(lambda: alerting.write(new, still, at))
        self.calls.alerts.told()

    async def _left(self, accounts: set[str], at: datetime) -> dict[str, float]:
        """What remains of these budgets."""
        if not accounts:
            return {}
        owned = budgets_by_tenant(self.snapshot)
        asked = {
            tenant: found
            for tenant, budgets in owned.items()
            if (found := [policy for name, policy in budgets.items() if name in accounts])
        }
        await self.state.look(asked, at)
        shown = self.state.budgets(asked, at).values()
        return {one["account"]: one["remaining"] for budgets in shown for one in budgets}

    async def _remember(self) -> None:
        known = self.estimates.learnt()
        if known != self._remembered:
            await self._aside(lambda: learnt.save(known, datetime.now(UTC)))
            self._remembered = known

    def measure(self) -> None:
        """Fill in the gauges of this moment, for who reads the metrics."""
        if self.ready:
            gauges.show_live(self.telling.live(datetime.now(UTC)), self.snapshot)
            gauges.show_policy(self.snapshot, self.prober.is_healthy)
            gauges.show_state(self.state.name)
            gauges.show_ledger(self.writer, self.journal)

    async def _until_news(self, every_s: float) -> None:
        await self.notices.wait(POLL_WHILE_TOLD_S if self.notices.connected else every_s)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Database work of policy and state, on the one thread that holds their connection."""
        return await asyncio.get_running_loop().run_in_executor(self._database, ready_for(work))

    async def _aside(self, work: Callable[[], T]) -> T:
        """Database work of what is told, which may wait."""
        return await asyncio.get_running_loop().run_in_executor(self._teller, ready_for(work))


def ready_for(work: Callable[[], T]) -> Callable[[], T]:
    def run() -> T:
        if connection.vendor != "sqlite":  # making one costs several times what most work does
            close_old_connections()
        return work()

    return run
