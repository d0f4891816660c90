"""The accounts under any interleaving: what is counted is what was settled plus what is open."""

from __future__ import annotations

import itertools
from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from metering.core.accounts import LocalAccounts
from metering.core.hold import Admitted
from metering.core.interactions import LIFE_S
from metering.core.windows import window_at
from tenants.core.snapshot import Limits
from tests.unit.metering.policies import NOON, burst, hold, sustained

LIMITS = Limits(requests_per_minute=12, tokens_per_minute=900, max_running=4, max_queued=3)
BURST = burst(400, refill=7)
HOURLY = sustained(1_000)
DAILY = sustained(2_500, "daily", "key:k1", period="day", timezone="Asia/Tokyo")
SUSTAINED = (HOURLY, DAILY)


class Accounting(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.accounts = LocalAccounts()
        self.now = 1_000.0
        self.numbers = itertools.count()  # ids in the same order in each run of the same steps
        self.open: dict[str, tuple] = {}
        self.settled: Counter = Counter()  # (account, window) -> units
        self.entered: list[tuple[float, str]] = []
        self.interactions: dict[str, tuple[int, float]] = {}  # name -> calls, latest

    @property
    def at(self):
        return NOON + timedelta(seconds=self.now - 1_000)

    @rule(seconds=st.sampled_from([0.0, 0.3, 1.0, 7.0, 61.0, 1_800.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(
        cost=st.integers(0, 300),
        more=st.integers(0, 300),
        tokens=st.integers(0, 400),
        interaction=st.sampled_from(["", "", "one", "two"]),
    )
    def a_request_arrives(self, cost: int, more: int, tokens: int, interaction: str) -> None:
        one = hold(
            BURST,
            *SUSTAINED,
            limits=LIMITS,
            tokens=tokens,
            cost=cost,
            ceiling=cost + more,
            interaction=interaction,
            request_id=f"r{next(self.numbers):04}",
            ceiling_tokens=tokens + more if more % 2 else 0,
        )
        before = self.seen()
        verdict = self.accounts.reserve(one, self.now, self.at)
        if not isinstance(verdict, Admitted):
            assert verdict.retry_after_s >= 1
            assert self.seen() == before
            return
        self.open[one.request_id] = (one, self.at)
        assert verdict.goes_on == self.is_open(interaction)
        if interaction:
            calls = self.interactions[interaction][0] if verdict.goes_on else 0
            self.interactions[interaction] = (calls + 1, self.now)
        if not verdict.goes_on:
            self.entered.append((self.now, one.request_id))
        self.within_every_limit()

    def is_open(self, interaction: str) -> bool:
        calls, latest = self.interactions.get(interaction, (0, self.now))
        return calls > 0 and self.now - latest < LIFE_S

    def within_every_limit(self) -> None:
        for budget in self.accounts.budgets(SUSTAINED, self.now, self.at):
            assert budget["used"] + budget["reserved"] <= budget["limit"] * (1 + 1e-6)
        assert sum(self.now - then < 60 for then, _ in self.entered) <= 12
        assert len(self.open) <= 7

    def seen(self):
        return (
            self.accounts.budgets((BURST, *SUSTAINED), self.now, self.at),
            self.accounts.rates("alice", LIMITS, self.now),
            self.accounts.open_reservations,
        )

    @precondition(lambda self: self.open)
    @rule(data=st.data(), cost=st.integers(0, 500), tokens=st.integers(0, 600))
    def one_ends(self, data: st.DataObject, cost: int, tokens: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        _, arrived = self.open.pop(name)
        for repeat in range(2):  # settling again changes nothing
            self.accounts.settle(name, tokens, cost * (repeat + 1), self.now, self.at)
        for policy in SUSTAINED:
            window = window_at(policy.period, policy.timezone, arrived)
            self.settled[policy.account, window] += cost

    @precondition(lambda self: self.open)
    @rule(data=st.data(), cost=st.integers(0, 500), tokens=st.integers(0, 600))
    def one_streams(self, data: st.DataObject, cost: int, tokens: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        one, arrived = self.open[name]
        before = self.accounts.rates("alice", LIMITS, self.now).remaining_tokens
        self.accounts.charge(name, tokens, cost, self.now)
        after = self.accounts.rates("alice", LIMITS, self.now).remaining_tokens
        assert before - tokens <= after <= before
        self.open[name] = (replace(one, ceiling_cost=max(one.ceiling_cost, cost)), arrived)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def the_queue_turns_one_away(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.open)))
        one, _ = self.open.pop(name)
        self.accounts.release(name, self.now, self.at)
        self.entered = [entry for entry in self.entered if entry[1] != name]
        if self.is_open(one.interaction):
            calls, latest = self.interactions[one.interaction]
            self.interactions[one.interaction] = (calls - 1, latest)

    @invariant()
    def used_is_what_was_settled(self) -> None:
        for policy, shown in zip(
            SUSTAINED, self.accounts.budgets(SUSTAINED, self.now, self.at), strict=True
        ):
            window = window_at(policy.period, policy.timezone, self.at)
            assert shown["used"] == self.settled[policy.account, window]
            mine = [one for one, arrived in self.open.values() if arrived in window]
            assert shown["reserved"] <= sum(one.ceiling_cost for one in mine) + 1e-6
            assert shown["reserved"] == 0 or mine
        assert self.accounts.open_reservations == len(self.open)

    def teardown(self) -> None:
        for name in list(self.open):
            self.accounts.settle(name, 0, 0.0, self.now, self.at)
        burst_shown, *shown = self.accounts.budgets((BURST, *SUSTAINED), self.now, self.at)
        assert [budget["reserved"] for budget in shown] == [0, 0]
        assert burst_shown["reserved"] == pytest.approx(0)
        assert self.accounts.open_reservations == 0


TestAccounting = Accounting.TestCase
TestAccounting.settings = settings(max_examples=150, stateful_step_count=40)
