"""The same requests through the accounts of one process and those on a server: the same verdicts,
words, waits and numbers, to the last bit."""

from __future__ import annotations

import itertools
from copy import deepcopy
from datetime import timedelta

import pytest
import valkey
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from metering.core.accounts import LocalAccounts
from tenants.core.snapshot import Limits
from tests.integration.shared.accounts_on_redis import TEXT, RedisAccounts
from tests.redis_server import RedisServer
from tests.unit.metering.policies import NOON, burst, hold, sustained

TIGHT = Limits(requests_per_minute=12, tokens_per_minute=900, max_running=4, max_queued=3)
POLICIES = [
    (TIGHT, (burst(400, refill=7.3), sustained(1_000), sustained(2_500, "daily", period="day"))),
    (
        Limits(tokens_per_minute=2_000),
        (
            burst(300, refill=1 / 3, name="own", owner="key:k1"),
            burst(700, refill=0.0, on_exhausted="demote"),
            sustained(900, period="minute", on_exhausted="alert"),
            sustained(1_100.1, "daily", period="day", timezone="Asia/Kathmandu"),
        ),
    ),
    (Limits(max_running=0), (sustained(1_000, period="minute"),)),
    (Limits(max_queued=2, max_running=9), (sustained(1_000, period="day"),)),
]
EVERY = tuple({b.account: b for _, budgets in POLICIES for b in budgets}.values())


class Remembering(LocalAccounts):
    """On the server what is idle goes by its own clock, which is not the test's."""

    def _forget_idle(self, now, at) -> None:
        pass


class Alike(RuleBasedStateMachine):
    client: valkey.Valkey

    def __init__(self) -> None:
        super().__init__()
        self.client.flushdb()
        self.here, self.there = Remembering(), RedisAccounts(self.client)
        self.now = 1_000.25
        self.shift = 0.0
        self.numbers = itertools.count()
        self.open: list[str] = []

    @property
    def at(self):
        return NOON + timedelta(seconds=self.now - 1_000 + self.shift)

    @rule(seconds=st.sampled_from([0.0, 0.1, 0.3, 1.0, 7.7, 61.0, 1_800.0, 90_000.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(seconds=st.sampled_from([-7_200.0, 7_200.0, 40.0]))
    def the_calendar_is_set(self, seconds: float) -> None:
        self.shift += seconds

    @rule(
        policy=st.sampled_from(POLICIES),
        cost=st.floats(0, 400) | st.integers(0, 400),
        more=st.sampled_from([0, 0.1, 250, 10_000]),
        tokens=st.integers(0, 400),
        interaction=st.sampled_from(["", "", "one", "two"]),
        soft=st.sampled_from([[], ["tokens_per_minute"], ["requests_per_minute"]]),
        queued=st.sampled_from([0, 0, 1, 4]),
    )
    def a_request_arrives(self, policy, cost, more, tokens, interaction, soft, queued) -> None:
        limits, budgets = policy
        one = hold(
            *budgets,
            limits=limits,
            tokens=tokens,
            cost=cost,
            ceiling=cost + more,
            ceiling_tokens=tokens + (int(more) if tokens % 2 else 0),
            interaction=interaction,
            soft_limits=frozenset(soft),
            queued=queued,
            request_id=f"r{next(self.numbers):04}",
        )
        verdict = self.here.reserve(one, self.now, self.at)
        assert self.there.reserve(one, self.now, self.at) == verdict
        if hasattr(verdict, "goes_on"):
            self.open.append(one.request_id)

    @precondition(lambda self: self.open)
    @rule(
        which=st.randoms(use_true_random=False),
        verb=st.sampled_from(["settle", "settle", "release", "charge"]),
        cost=st.floats(0, 900) | st.integers(0, 900),
        tokens=st.integers(0, 900),
    )
    def one_goes_on_or_ends(self, which, verb, cost, tokens) -> None:
        name = which.choice(self.open)
        for accounts in (self.here, self.there):
            if verb == "charge":
                accounts.charge(name, tokens, cost, self.now)
            elif verb == "release":
                accounts.release(name, self.now, self.at)
            else:
                accounts.settle(name, tokens, cost, self.now, self.at)
        if verb != "charge":
            self.open.remove(name)

    @invariant()
    def every_number_is_the_same(self) -> None:
        for policy in EVERY:
            assert self.there.windows(policy.account) == self.here.windows(policy.account)
        here = deepcopy(self.here)  # showing refills a bucket by a step of its own
        seen = here.budgets(EVERY, self.now, self.at)
        assert self.there.budgets(EVERY, self.now, self.at) == seen
        assert self.there.rates("alice", TIGHT, self.now) == here.rates("alice", TIGHT, self.now)
        assert self.there.open_reservations == here.open_reservations


@pytest.mark.usefixtures("client")
def test_both_accounts_decide_alike(server: RedisServer) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    with server.client() as client:
        client.function_load(TEXT, replace=True)
        Alike.client = client
        run_state_machine_as_test(
            Alike,
            settings=settings(
                max_examples=60, stateful_step_count=40, phases=[Phase.explicit, Phase.generate]
            ),
        )
