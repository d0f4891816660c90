"""Which replica is alive, and what it asks anew when it may have missed something.

1. A replica is registered in each pool under `name.epoch` and renews that once a second. Whoever
   renews also ends what replicas hold whose lease ran out (`reap` in calls.lua).
2. A registration is good until it was reaped, not until its time is over: places are given away
   only by reaping, so a late replica that nobody reaped lost nothing.
3. One that was reaped (fenced) learns so from its next call, and registers as the next epoch. Then
   what it still runs takes its places again, also past an endpoint's limit (the engine runs it in
   any case; nobody new comes until there is room), what waits is queued anew, and what it found
   down is told. An empty Redis is the same, after the policy was sent; and so is one that may be an
   older copy of what it was (`rejoin`): what has ended since is there again.
4. A replica that cannot have renewed in time takes no grant that it hears of until it has renewed:
   who holds what is asked then.
5. On a new subscription, and every lease for the oldest waiters, it asks what became of its own:
   a message that was published meanwhile is lost.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog
from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import RedisError

from scheduling.shared.ending import end
from scheduling.shared.link import OUT_OF_REACH, StateUnavailable
from scheduling.shared.wire import Answer, decode

if TYPE_CHECKING:
    from scheduling.shared.scheduler import SharedScheduler

BEAT_S = 1.0
OLDEST = 256  # waiters that are asked for though nothing seems lost
PAUSE_S = 0.2
DEAF_S = 30.0  # until a channel that was refused is asked for again
SUBSCRIBED_S = 5.0  # at a start
QUIET_S = 3.0  # without a message: is the channel still there?

log = structlog.get_logger()


class Reaped(NamedTuple):
    """A request of a replica whose lease ran out."""

    request_id: str
    replica: str
    state: str  # "queued" or "running"
    charged: float  # what it was settled at


async def heard_on(pubsub: PubSub) -> AsyncIterator[dict[str, Any]]:
    """What comes, until nothing answers a ping.

    Raises:
        redis.exceptions.ConnectionError
    """
    pinged = False
    while True:
        message = await pubsub.get_message(timeout=QUIET_S)
        if message is not None:
            pinged = False
            yield message
        elif pinged:
            raise LostConnection("the channel is silent")
        else:
            await pubsub.ping()
            pinged = True


class Leases:
    def __init__(
        self,
        owner: SharedScheduler,
        redis: Redis,
        lease_s: float,
        ended: Callable[[list[Reaped]], None],
        lost: Callable[[list[str]], None],
    ) -> None:
        self._owner = owner
        self._redis = redis
        self._lease_s = lease_s
        self._ended = ended
        self._lost = lost
        self._epochs: dict[str, int] = {}  # of each pool where it is registered
        self.renewed: dict[str, float] = {}  # when the last renewal was sent that arrived
        self.born: dict[str, float] = {}  # when each pool came to be on this server, by its clock
        self._unsure: set[str] = set()  # pools where a grant was not taken
        self.tasks: list[asyncio.Task[None]] = []

    def me(self, pool: str) -> str:
        return f"{self._owner.name}.{self._epochs.get(pool, 0)}"

    async def start(self) -> None:
        """
        Raises:
            StateUnavailable: not yet; it goes on trying.
        """
        subscribed = asyncio.Event()
        self.tasks.append(asyncio.create_task(self._listen(subscribed), name="grants from redis"))
        self._owner.send_policy()
        self.join(self._owner.config.pools)
        self.tasks.append(asyncio.create_task(self._beat(), name="lease on redis"))
        await self._look()
        try:
            await asyncio.wait_for(subscribed.wait(), SUBSCRIBED_S)
        except TimeoutError:  # without a pool nothing was asked above that would have failed
            raise StateUnavailable("it takes no subscription") from None

    async def close(self) -> None:
        await end(self.tasks)
        for pool in self._epochs:
            self._owner.call("leave", pool)

    def in_doubt(self, pool: str) -> bool:
        """Whether the lease may have run out, and somebody else holds what this one was granted."""
        if time.monotonic() - self.renewed.get(pool, 0.0) <= self._lease_s:
            return False
        self._unsure.add(pool)
        return True

    # --- coming and coming back -------------------------------------------------------------

    def join(self, pools: Iterable[str]) -> None:
        for pool in sorted(pools):
            self._epochs[pool] = self._epochs.get(pool, -1) + 1
            self._register(pool)

    def fenced(self, pool: str, me: str) -> None:
        """The registration `me` is gone: register anew, and ask for everything again."""
        if me == self.me(pool) and pool in self._epochs:
            log.warning("lease lost, registering anew", pool=pool)
            self._come_back(pool)

    def rejoin(self) -> None:
        """Register anew everywhere: what is held under the name before and not told again ends."""
        for pool in sorted(self._epochs):
            self._come_back(pool)

    def _come_back(self, pool: str) -> None:
        self.join([pool])
        for down_in, endpoint in self._owner.down:
            if down_in == pool:
                self._owner.call("available", pool, endpoint, False)
        for waiter in self._owner.waiters.values():
            if waiter.ticket.pool == pool:
                waiter.send()

    def state_lost(self, pool: str, me: str) -> None:
        """Redis is empty: the policy first, then as after a lost lease."""
        if me != self.me(pool) or pool not in self._owner.config.pools:
            return
        log.error("the shared state is empty, building it again")
        self._owner.send_policy()
        for known in self._owner.config.pools if not self._owner.keys.cluster else [pool]:
            self._come_back(known)

    # --- once a second ----------------------------------------------------------------------

    async def _beat(self) -> None:
        beats = 0
        while True:
            await asyncio.sleep(min(BEAT_S, self._lease_s / 3))
            beats += 1
            try:
                await self.renew()
                await self._look()
            except Exception as error:  # Redis is out of reach: told by the link
                log.debug("no heartbeat", error=str(error))
            if beats % 5 == 0:
                self._ask_for(list(self._owner.waiters)[:OLDEST])

    async def renew(self) -> None:
        """In every pool.

        Raises:
            StateUnavailable
        """
        for pool in sorted(self._epochs):
            await self._beat_in(pool)

    async def _beat_in(self, pool: str) -> None:
        sent, epoch = time.monotonic(), self._epochs[pool]
        answer = await self._owner.ask("beat", pool, self._lease_s, False)
        if self._epochs.get(pool) == epoch:
            self._renewed_at(pool, sent, answer)

    def _register(self, pool: str) -> None:
        """With what it runs there, which had been ended for it."""
        sent = time.monotonic()
        running = [r for r in self._owner.running.values() if r.ticket.pool == pool]

        def then(answer: Answer) -> None:
            self._renewed_at(pool, sent, answer)
            if answer[0] == "done" and answer[4] < self._owner.revision:
                self._owner.send_policy()
            for each in running if answer[0] == "done" else ():
                each.born = answer[3]

        fields = [each.fields() for each in running]
        self._owner.call("beat", pool, self._lease_s, True, fields, then=then)
        if running:
            self._lost([each.ticket.request_id for each in running])

    def _renewed_at(self, pool: str, sent: float, answer: Answer) -> None:
        if answer[0] == "gone":
            if pool in self._owner.config.pools:  # which is older here, or newer than ours
                self._owner.send_policy()
            else:
                self._epochs.pop(pool, None)
        elif answer[0] == "done":
            self.renewed[pool], self.born[pool] = sent, answer[3]
            if answer[2]:
                self._ended([Reaped(*one) for one in answer[2]])
            if pool in self._unsure:
                self._unsure.discard(pool)
                self._ask_for(list(self._owner.waiters))

    async def _look(self) -> None:
        owner = self._owner
        for pool in sorted(self._epochs):
            answer = await owner.ask("live", pool, False)
            if answer[0] == "done":
                owner.figures.note(pool, *answer[2])
        owner.figures.keep(set(self._epochs), together=not owner.keys.cluster)

    # --- what was missed --------------------------------------------------------------------

    async def _listen(self, subscribed: asyncio.Event) -> None:
        channel = self._owner.keys.grants(self._owner.name)
        while True:
            try:
                async with self._redis.pubsub() as pubsub:
                    await pubsub.subscribe(channel)
                    async for message in heard_on(pubsub):
                        if message["type"] == "subscribe":
                            subscribed.set()
                            self._ask_for(list(self._owner.waiters))
                        elif message["type"] == "message":
                            self._heard(decode(message["data"]))
            except OUT_OF_REACH:
                await asyncio.sleep(PAUSE_S)
            except RedisError as error:  # it may use keys and not channels: no start waits for that
                log.error("grants come late, nothing is heard", channel=channel, error=str(error))
                subscribed.set()
                await asyncio.sleep(DEAF_S)

    def _heard(self, grants: list[list[Any]]) -> None:
        for request_id, endpoint, *reason in grants:
            if endpoint:
                self._owner.granted([(request_id, endpoint)])
            else:
                self._owner.dropped(request_id, reason[0])

    def _ask_for(self, ids: list[str]) -> None:
        """What became of waiters; one that Redis does not know is queued anew."""
        by_pool: dict[str, list[str]] = {}
        for id in ids:
            by_pool.setdefault(self._owner.waiters[id].ticket.pool, []).append(id)
        for pool, asked in by_pool.items():
            self._owner.call("states", pool, asked, then=self._told(asked))

    def _told(self, asked: list[str]) -> Callable[[Answer], None]:
        def then(answer: Answer) -> None:
            if answer[0] != "done":  # nothing is there: all of them are sent again
                return
            for id, (state, endpoint) in zip(asked, answer[2], strict=True):
                waiter = self._owner.waiters.get(id)
                if state == "running":
                    self._owner.granted([(id, endpoint)])
                elif state == "gone" and waiter is not None:
                    waiter.send()

        return then
