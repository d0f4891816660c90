"""Admission's accounts: Alice's tenant against its limits, one at a time and all together."""

from datetime import UTC, datetime, timedelta

import pytest

from metering.core.accounts import LocalAccounts, PastUse
from tenants.core.snapshot import Limits
from tests.unit.metering.policies import NOON, admitted, burst, hold, refused, sustained

SUSTAINED = sustained(1_000)


@pytest.fixture
def accounts():
    return LocalAccounts()


def state(accounts, *budgets, now=0.0, limits=Limits(1000, 10**6)):  # noqa: B008
    """Everything that a caller can see of the accounts."""
    shown = accounts.budgets(budgets, now, NOON)
    return shown, accounts.rates("alice", limits, now), accounts.open_reservations


def run(accounts, request, tokens=None, cost=None, now=0.0, at=NOON):
    admitted(accounts.reserve(request, now, at))
    tokens = request.tokens if tokens is None else tokens
    accounts.settle(request.request_id, tokens, request.cost if cost is None else cost, now, at)


# --- each limit, at its edge ----------------------------------------------------------------


def test_the_request_past_the_minutes_limit_is_told_when_to_come_back(accounts):
    limits = Limits(requests_per_minute=2)
    for now in (10.0, 12.5):
        admitted(accounts.reserve(hold(limits=limits), now, NOON))
    no = refused(accounts.reserve(hold(limits=limits), 20.0, NOON))
    assert (no.limit, no.code) == ("requests_per_minute", "rate_limit_exceeded")
    assert "2 requests a minute" in no.message
    assert no.retry_after_s == pytest.approx(51.0)
    admitted(accounts.reserve(hold(limits=limits), 20.0 + no.retry_after_s, NOON))


def test_tokens_a_minute_are_charged_by_the_token(accounts):
    limits = Limits(tokens_per_minute=100)
    seen = []
    for _ in range(3):
        one = hold(limits=limits, tokens=30)
        seen.append(admitted(accounts.reserve(one, 0.0, NOON)).rates.remaining_tokens)
        accounts.settle(one.request_id, 30, 30.0, 0.0, NOON)
    assert seen == [70, 40, 10]
    no = refused(accounts.reserve(hold(limits=limits, tokens=30), 5.0, NOON))
    assert no.limit == "tokens_per_minute"
    admitted(accounts.reserve(hold(limits=limits, tokens=30), 5.0 + no.retry_after_s, NOON))


def test_five_at_once_whose_callers_name_a_bound_cannot_share_a_minute_with_room_for_one(accounts):
    """Cases D04, on a model that has learnt short answers: 5 tokens are expected, 60 may come."""
    limits = Limits(tokens_per_minute=100)
    five = [hold(limits=limits, tokens=15, ceiling_tokens=70) for _ in range(5)]
    verdicts = [accounts.reserve(one, 0.0, NOON) for one in five]
    assert admitted(verdicts[0]).tokens == 70
    for verdict in verdicts[1:]:
        no = refused(verdict)
        assert (no.limit, no.retry_after_s) == ("tokens_per_minute", 1.0)
        assert "70 are held" in no.message
        assert "max_tokens" in no.message
    accounts.settle(five[0].request_id, 70, 70.0, 0.0, NOON)
    assert refused(accounts.reserve(hold(limits=limits, tokens=31), 0.0, NOON)).retry_after_s > 1
    assert accounts.rates("alice", limits, 0.0).remaining_tokens == 30


def test_a_large_bound_is_no_reason_to_refuse_a_call_that_is_alone_on_its_minute(accounts):
    limits = Limits(tokens_per_minute=100)
    for _ in range(4):  # 80 of 100 in the end; a bound that no minute has room for each time
        one = hold(limits=limits, tokens=20, ceiling_tokens=4_000)
        admitted(accounts.reserve(one, 0.0, NOON))
        assert accounts.rates("alice", limits, 0.0).remaining_tokens == 0
        beside = refused(accounts.reserve(hold(limits=limits, tokens=1), 0.0, NOON))
        assert "Come back when one has ended" in beside.message
        accounts.settle(one.request_id, 20, 20.0, 0.0, NOON)
    assert accounts.rates("alice", limits, 0.0).remaining_tokens == 20


def test_callers_that_name_no_bound_are_held_to_what_is_expected_of_them(accounts):
    limits = Limits(tokens_per_minute=100)
    six = [hold(limits=limits, tokens=20) for _ in range(6)]
    verdicts = [accounts.reserve(one, 0.0, NOON) for one in six]
    assert [hasattr(verdict, "limit") for verdict in verdicts] == [False] * 5 + [True]


def test_what_runs_past_its_hold_is_counted_as_it_comes(accounts):
    limits, bucket, budget = Limits(tokens_per_minute=100), burst(1_000, 0.001), sustained(1_000)
    one = hold(bucket, budget, limits=limits, tokens=20, cost=20.0)
    admitted(accounts.reserve(one, 0.0, NOON))
    accounts.charge(one.request_id, 10, 10.0, 0.0)  # within it
    assert accounts.rates("alice", limits, 0.0).remaining_tokens == 80
    accounts.charge(one.request_id, 95, 95.0, 0.0)
    assert accounts.rates("alice", limits, 0.0).remaining_tokens == 5
    shown = accounts.budgets((bucket, budget), 0.0, NOON)
    assert [b["reserved"] for b in shown] == [95, 95]
    refused(accounts.reserve(hold(limits=limits, tokens=10), 0.0, NOON))
    accounts.settle(one.request_id, 85, 85.0, 0.0, NOON)
    assert accounts.rates("alice", limits, 0.0).remaining_tokens == 15
    shown = accounts.budgets((bucket, budget), 0.0, NOON)
    assert [(b["used"], b["reserved"]) for b in shown] == [(85, 0), (85, 0)]
    accounts.charge(one.request_id, 500, 500.0, 0.0)  # it is over
    assert accounts.rates("alice", limits, 0.0).remaining_tokens == 15


def test_five_at_once_on_a_burst_budget_with_room_for_one(accounts):
    """Cases D04: reserved before dispatch."""
    budget = burst(100, refill=0.001)
    verdicts = [accounts.reserve(hold(budget, cost=70), 0.0, NOON) for _ in range(5)]
    admitted(verdicts[0])
    assert [refused(v).limit for v in verdicts[1:]] == ["tenant:alice/burst"] * 4


def test_two_hundred_at_once_on_a_budget_with_room_for_twenty(accounts):
    budget = sustained(2_000)
    verdicts = [accounts.reserve(hold(budget, cost=40, ceiling=100), 0, NOON) for _ in range(200)]
    assert sum(not hasattr(v, "limit") for v in verdicts) == 20


def test_a_used_up_budget_says_until_when(accounts):
    budget = sustained(100, period="day", timezone="Asia/Tokyo")
    run(accounts, hold(budget, cost=100))
    at = datetime(2026, 11, 29, 14, 59, 59, tzinfo=UTC)  # 23:59:59 in Tokyo
    no = refused(accounts.reserve(hold(budget, cost=1), 1.0, at))
    assert (no.limit, no.code) == ("tenant:alice/hourly", "insufficient_quota")
    assert no.retry_after_s == 1.0
    admitted(accounts.reserve(hold(budget, cost=1), 2.0, at + timedelta(seconds=no.retry_after_s)))


def test_a_budget_only_held_by_running_requests_does_not_claim_to_be_used_up(accounts):
    budget = sustained(100, period="month")
    first = hold(budget, cost=10, ceiling=90)
    admitted(accounts.reserve(first, 0.0, NOON))
    no = refused(accounts.reserve(hold(budget, cost=10, ceiling=90), 0.0, NOON))
    assert (no.code, no.retry_after_s) == ("rate_limit_exceeded", 1.0)
    accounts.settle(first.request_id, 10, 10, 1.0, NOON)
    admitted(accounts.reserve(hold(budget, cost=10, ceiling=90), 1.0, NOON))


@pytest.mark.parametrize(("queued", "name"), [(0, "max_running"), (2, "max_queued")])
def test_no_more_requests_are_open_than_may_run_and_queue(accounts, queued, name):
    limits = Limits(max_running=1, max_queued=queued)
    holds = [hold(limits=limits) for _ in range(1 + queued)]
    for one in holds:
        admitted(accounts.reserve(one, 0.0, NOON))
    assert refused(accounts.reserve(hold(limits=limits), 0.0, NOON)).limit == name
    accounts.settle(holds[0].request_id, 0, 0.0, 0.0, NOON)
    admitted(accounts.reserve(hold(limits=limits), 0.0, NOON))


@pytest.mark.parametrize("queued", [None, 0, 5])
def test_a_tenant_that_may_run_nothing_waits_for_nothing(accounts, queued):
    limits = Limits(max_running=0, max_queued=queued)
    no = refused(accounts.reserve(hold(limits=limits), 0.0, NOON))
    assert (no.limit, no.code) == ("max_running", "rate_limit_exceeded")
    assert "max_running is 0" in no.message
    assert no.retry_after_s > 3600


def test_without_limits_nothing_is_refused(accounts):
    for _ in range(500):
        admitted(accounts.reserve(hold(tokens=10**6, cost=1e9), 0.0, NOON))


# --- all levels -----------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["key:k1", "application:alice/bot", "tenant:alice"])
def test_exactly_used_up_refuses_at_each_level_and_names_it(accounts, level):
    levels = {"tenant:alice": 1_000, "application:alice/bot": 1_000, "key:k1": 1_000, level: 50}
    budgets = [sustained(cost, "hourly", owner) for owner, cost in levels.items()]
    for _ in range(50):
        run(accounts, hold(*budgets, cost=1))
    no = refused(accounts.reserve(hold(*budgets, cost=1), 0.0, NOON))
    assert no.limit == f"{level}/hourly"
    assert "50" in no.message


def test_of_several_budgets_that_refuse_the_one_that_refuses_longest_decides(accounts):
    hourly, monthly = sustained(10), sustained(10, "monthly", period="month")
    run(accounts, hold(hourly, monthly, cost=10))
    no = refused(accounts.reserve(hold(hourly, monthly, cost=1), 0.0, NOON))
    assert no.limit == "tenant:alice/monthly"


def test_a_refusal_by_the_last_check_changes_nothing_anywhere(accounts):
    limits = Limits(1000, 10**6, max_running=1, max_queued=0)
    budgets = (burst(500, 10), SUSTAINED, sustained(900, "daily", "key:k1", period="day"))
    admitted(accounts.reserve(hold(*budgets, limits=limits), 0.0, NOON))
    before = state(accounts, *budgets)
    assert (
        refused(accounts.reserve(hold(*budgets, limits=limits), 0.0, NOON)).limit == "max_running"
    )
    assert state(accounts, *budgets) == before


def test_refused_requests_use_no_limit_up_so_raising_it_helps(accounts):
    """Cases D12."""
    for limit in (10, 20):
        verdicts = [
            accounts.reserve(hold(limits=Limits(requests_per_minute=limit)), 1.0, NOON)
            for _ in range(50)
        ]
        assert sum(not hasattr(v, "limit") for v in verdicts) == 10


def test_tripping_one_limit_opens_no_other(accounts):
    """Cases R47."""
    limits, daily = Limits(requests_per_minute=10), sustained(20, "daily", period="day")
    for _ in range(2):
        run(accounts, hold(daily, limits=limits, cost=10))
    refused(accounts.reserve(hold(daily, limits=limits, cost=10), 0.0, NOON))
    assert accounts.rates("alice", limits, 0.0).remaining_requests == 8


# --- settling -------------------------------------------------------------------------------


def test_the_actual_replaces_the_estimate(accounts):
    budget = burst(1_000, 0.001)
    limits = Limits(100, 10_000)
    one = hold(budget, SUSTAINED, limits=limits, tokens=500, cost=300, ceiling=800)
    admitted(accounts.reserve(one, 0.0, NOON))
    accounts.settle(one.request_id, 120, 70.0, 0.0, NOON)
    shown = {b["kind"]: b for b in accounts.budgets((budget, SUSTAINED), 0.0, NOON)}
    assert (shown["burst"]["used"], shown["burst"]["reserved"]) == (70, 0)
    assert (shown["sustained"]["used"], shown["sustained"]["remaining"]) == (70, 930)
    assert accounts.rates("alice", limits, 0.0).remaining_tokens == 10_000 - 120


def test_a_request_that_came_to_nothing_gives_all_back_but_its_place_in_the_minute(accounts):
    limits, budget = Limits(100, 10_000), burst(1_000, 0.001)
    one = hold(budget, SUSTAINED, limits=limits, tokens=500, cost=300)
    before = state(accounts, budget, SUSTAINED, limits=limits)
    run(accounts, one, tokens=0, cost=0)
    shown, rates, still_open = state(accounts, budget, SUSTAINED, limits=limits)
    assert (shown, still_open) == (before[0], 0)
    assert (rates.remaining_requests, rates.remaining_tokens) == (99, 10_000)


def test_only_the_first_settlement_counts(accounts):
    one = hold(SUSTAINED, cost=100)
    admitted(accounts.reserve(one, 0.0, NOON))
    for cost in (40, 999):
        accounts.settle(one.request_id, 10, cost, 0.0, NOON)
    accounts.settle("never heard of", 10, 999, 0.0, NOON)
    assert accounts.budgets((SUSTAINED,), 0.0, NOON)[0]["used"] == 40


def test_an_id_cannot_be_reserved_twice(accounts):
    one = hold()
    admitted(accounts.reserve(one, 0.0, NOON))
    with pytest.raises(ValueError, match="already reserved"):
        accounts.reserve(one, 0.0, NOON)


def test_a_stream_that_outgrew_its_budget_finishes_and_the_next_is_refused(accounts):
    """Cases R45."""
    budget = sustained(15)
    run(accounts, hold(budget, cost=60), cost=60)
    refused(accounts.reserve(hold(budget, cost=1), 0.0, NOON))


def test_a_first_call_with_an_estimate_above_the_limits_runs_and_is_charged_the_truth(accounts):
    """Cases R07, D07."""
    limits = Limits(tokens_per_minute=100)
    budgets = (burst(100, 1), sustained(100))
    run(accounts, hold(*budgets, limits=limits, tokens=4_000, cost=8_000), tokens=10, cost=10)
    assert [b["used"] for b in accounts.budgets(budgets, 0.0, NOON)] == [10, 10]
    assert accounts.rates("alice", limits, 0.0).remaining_tokens == 90


# --- interactions, demotion, alerts ---------------------------------------------------------


def test_a_later_call_of_an_interaction_passes_rates_and_burst_and_is_still_charged(accounts):
    limits, budget = Limits(requests_per_minute=1, tokens_per_minute=10), burst(10, 0.001)
    run(accounts, hold(budget, limits=limits, interaction="i"))
    later = admitted(accounts.reserve(hold(budget, limits=limits, interaction="i"), 0.0, NOON))
    assert later.goes_on
    assert accounts.budgets((budget,), 0.0, NOON)[0]["reserved"] == 10
    assert refused(accounts.reserve(hold(limits=limits), 0.0, NOON)).limit == "requests_per_minute"


def test_a_later_call_of_an_interaction_does_not_pass_hard_walls(accounts):
    run(accounts, hold(SUSTAINED, cost=1_000, interaction="i"))
    refused(accounts.reserve(hold(SUSTAINED, interaction="i"), 0.0, NOON))
    limits = Limits(max_running=1, max_queued=0)
    assert admitted(accounts.reserve(hold(limits=limits, interaction="i"), 0.0, NOON)).goes_on
    refused(accounts.reserve(hold(limits=limits, interaction="i"), 0.0, NOON))


def test_an_interaction_is_one_tenants(accounts):
    limits = Limits(requests_per_minute=1)
    for tenant in ("alice", "bob"):
        first = hold(tenant=tenant, limits=limits, interaction="i")
        assert not admitted(accounts.reserve(first, 0.0, NOON)).goes_on
    refused(accounts.reserve(hold(tenant="bob", limits=limits, interaction="mine"), 0.0, NOON))


def test_a_refused_first_call_opens_no_interaction(accounts):
    limits = Limits(requests_per_minute=1)
    run(accounts, hold(limits=limits))
    for _ in range(2):
        refused(accounts.reserve(hold(limits=limits, interaction="i"), 1.0, NOON))


def test_a_first_call_that_the_queue_turned_away_opens_no_interaction(accounts):
    limits = Limits(requests_per_minute=1)
    first = hold(limits=limits, interaction="i")
    admitted(accounts.reserve(first, 0.0, NOON))
    accounts.release(first.request_id, 1.0, NOON)
    run(accounts, hold(limits=limits), now=1.0)
    refused(accounts.reserve(hold(limits=limits, interaction="i"), 1.0, NOON))


def test_an_idle_tenants_interactions_are_forgotten_with_it(accounts):
    run(accounts, hold(interaction="i"))
    for now in (100.0, 899.0):
        run(accounts, hold(tenant="bob"), now=now)
    assert accounts.remembered_tenants == 2
    for now in range(901, 910):
        run(accounts, hold(tenant="bob"), now=now)
    assert accounts.remembered_tenants == 1


@pytest.mark.parametrize("name", ["requests_per_minute", "tokens_per_minute"])
def test_a_soft_limit_does_not_refuse_and_still_counts(accounts, name):
    limits = Limits(**{name: 1})
    soft = frozenset([name])
    for _ in range(3):
        admitted(accounts.reserve(hold(limits=limits, soft_limits=soft), 0.0, NOON))
    assert refused(accounts.reserve(hold(limits=limits), 0.0, NOON)).limit == name


def test_a_soft_limit_says_nothing_of_the_other_one(accounts):
    limits = Limits(requests_per_minute=1, tokens_per_minute=10)
    soft = frozenset(["requests_per_minute"])
    admitted(accounts.reserve(hold(limits=limits, soft_limits=soft), 0.0, NOON))
    no = refused(accounts.reserve(hold(limits=limits, soft_limits=soft), 0.0, NOON))
    assert no.limit == "tokens_per_minute"


def test_budgets_that_demote_or_alert_let_in_say_so_and_count(accounts):
    demoting = sustained(10, "soft", on_exhausted="demote")
    alerting = sustained(10, "watch", on_exhausted="alert")
    first = admitted(accounts.reserve(hold(demoting, alerting, cost=10), 0.0, NOON))
    second = admitted(accounts.reserve(hold(demoting, alerting, cost=10), 0.0, NOON))
    assert (first.demote, first.alerts) == (False, ())
    assert (second.demote, second.alerts) == (True, ("tenant:alice/watch",))
    assert accounts.budgets((demoting,), 0.0, NOON)[0]["reserved"] == 20


# --- pages, restart, memory -----------------------------------------------------------------


def test_a_budget_is_shown_whole(accounts):
    admitted(accounts.reserve(hold(SUSTAINED, cost=30, ceiling=80), 0.0, NOON))
    assert accounts.budgets((SUSTAINED,), 0.0, NOON) == [
        {
            "account": "tenant:alice/hourly",
            "name": "hourly",
            "kind": "sustained",
            "limit": 1_000,
            "used": 0,
            "reserved": 80,
            "remaining": 920,
            "resets_at": "2026-11-29T13:00:00Z",
        }
    ]


def test_a_restart_forgets_no_use(accounts):
    limits, budget = Limits(10, 1_000), burst(100, 1)
    recent = [PastUse(age, "alice", 50, 20, (budget,)) for age in (5.0, 50.0, 70.0, 500.0)]
    accounts.restore([(SUSTAINED, 990.0)], recent, now=10_000.0, at=NOON)
    rates = accounts.rates("alice", limits, 10_000.0)
    assert (rates.remaining_requests, rates.remaining_tokens) == (8, 900)
    shown = accounts.budgets((SUSTAINED, budget), 10_000.0, NOON)
    assert [b["used"] for b in shown] == [990, 15]
    refused(accounts.reserve(hold(SUSTAINED, cost=11), 10_000.0, NOON))


def test_idle_accounts_are_forgotten(accounts):
    for number in range(300):
        budgets = (burst(100, 10, owner=f"tenant:t{number}"), sustained(9, owner=f"key:{number}"))
        run(accounts, hold(*budgets, tenant=f"t{number}", cost=5))
    for step in range(1_000):
        run(accounts, hold(), now=8_000.0 + step, at=NOON + timedelta(seconds=8_000 + step))
    assert len(accounts._tenants) == 1
    assert not accounts._bursts
    assert not accounts._sustained


def test_a_used_up_budget_is_not_forgotten_by_a_clock_that_jumps_ahead_and_back(accounts):
    budget = sustained(10)
    run(accounts, hold(budget, cost=10))
    for _ in range(5):
        run(accounts, hold(), now=1.0, at=NOON + timedelta(days=900))
    refused(accounts.reserve(hold(budget, cost=1), 2.0, NOON))
