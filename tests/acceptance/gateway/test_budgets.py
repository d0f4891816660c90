"""Budgets of tenant, application and key: all must have room, and what is used stays true."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.acceptance.gateway.caller import Caller
from tests.acceptance.gateway.rig import Rig
from tests.acceptance.stack import until
from tests.calm import calm_zone


def daily(cost: float, name: str = "daily", **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, "kind": "sustained", "cost": cost, "period": "day", **more}]


def statuses(caller: Caller, count: int) -> list[int]:
    return [caller.chat(max_tokens=5).status for _ in range(count)]


def test_a_budget_used_up_exactly_refuses_and_says_so(rig: Rig) -> None:
    """R20, and the answer that official clients do not retry."""
    alice = rig.tenant(model=rig.pool(), budgets=daily(30))
    rig.engine.script("in=5,out=5")
    assert statuses(alice, 3) == [200] * 3
    refused = alice.chat(max_tokens=5)
    assert (refused.status, refused.code) == (429, "insufficient_quota")
    assert refused.error["type"] == "insufficient_quota"
    assert refused.headers["x-should-retry"] == "false"
    assert 1 <= int(refused.headers["retry-after"]) <= 86_400
    for word in (f"The budget daily of {alice.tenant}", "30 units a day", "The next day begins at"):
        assert word in refused.message
    assert rig.record(refused)["throttle_reason"] == f"tenant:{alice.tenant}/daily"


@pytest.mark.parametrize(
    ("period", "words"),
    [
        ("month", ("10 units a month", "The next month begins at")),
        ("week", ("10 units a week", "The next week begins at")),
        ("90d", ("10 units in 90 days", "The next 90 days begin at")),
    ],
)
def test_periods_longer_than_a_day(rig: Rig, period: str, words: tuple[str, str]) -> None:
    """R12."""
    long = [{"name": "long", "kind": "sustained", "cost": 10, "period": period}]
    zone = calm_zone()
    alice = rig.tenant(model=rig.pool(), budgets=long, timezone=zone)
    rig.engine.script("in=5,out=5")
    assert alice.chat(max_tokens=5).status == 200
    before = datetime.now(UTC)
    refused = alice.chat(max_tokens=5)
    after = datetime.now(UTC)
    assert refused.code == "insufficient_quota"
    for word in words:
        assert word in refused.message
    [budget] = until(lambda: rig.use(alice.tenant)["budgets"], "a sample that knows the tenant")
    ends = datetime.fromisoformat(budget["resets_at"])
    assert ends.astimezone(ZoneInfo(zone)).strftime("%H:%M") == "00:00"
    told = timedelta(seconds=int(refused.headers["retry-after"]))
    assert ends - after <= told <= ends - before + timedelta(seconds=1)
    until(lambda: rig.window(f"tenant:{alice.tenant}/long") == 10, "the ledger has it")


def test_discovery_is_free(rig: Rig) -> None:
    """R25."""
    alice = rig.tenant(model=rig.pool(), budgets=daily(0))
    assert alice.chat().code == "insufficient_quota"
    assert alice.get("/v1/models").status == 200
    assert alice.get("/v1/models/chat").status == 200


def test_the_tightest_of_key_application_and_tenant_decides(rig: Rig) -> None:
    """R21, R22: each level refuses when it is used up, and the answer says which."""
    rig.engine.script("in=5,out=5")
    application = {"name": "app", "budgets": daily(80)}
    first = rig.tenant(application, model=rig.pool(), budgets=daily(100))
    second = rig.key(first.tenant, "app", first.model, budgets=daily(50))
    third = rig.key(first.tenant, model=first.model)
    assert statuses(second, 5) == [200] * 5
    refused = second.chat(max_tokens=5)
    assert f"The budget daily of key fl_{second.key_id} " in refused.message
    assert statuses(first, 3) == [200] * 3
    of_app = f"The budget daily of application app of {first.tenant} "
    assert of_app in first.chat(max_tokens=5).message
    assert statuses(third, 2) == [200] * 2
    assert f"The budget daily of {first.tenant} " in third.chat(max_tokens=5).message
    rows = [row for row in rig.records(first.tenant, 13) if row["status"] == 200]
    assert sum(row["cost"] for row in rows) == 100


def test_failed_calls_leave_nothing_held(rig: Rig) -> None:
    """D06."""
    alice = rig.tenant(
        model=rig.pool(),
        budgets=[
            *daily(1000),
            {"name": "burst", "kind": "burst", "cost": 1000, "refill_per_second": 0.001},
        ],
    )
    rig.engine.script("status=500")
    for _ in range(5):
        calls = [alice.start(max_tokens=100) for _ in range(10)]
        assert {call.answer().status for call in calls} <= {502, 429}
    rig.engine.script("in=10,out=20")
    call = alice.chat(max_tokens=980)  # with the prompt it needs nearly all there is
    assert call.status == 200
    assert sum(row["cost"] for row in rig.records(alice.tenant, 51)) == 30


def test_a_stream_runs_to_its_end_though_the_budget_does_not(rig: Rig) -> None:
    """R45."""
    alice = rig.tenant(model=rig.pool(), budgets=daily(15))
    rig.engine.script("in=5,out=50,gap=1ms")
    answer = alice.chat(stream=True)
    assert answer.status == 200
    assert answer.done
    assert rig.record(answer)["cost"] == 55
    refused = alice.chat(stream=True)
    assert (refused.status, refused.code) == (429, "insufficient_quota")


def test_requests_at_once_cannot_overrun_a_budget(rig: Rig) -> None:
    alice = rig.tenant(model=rig.pool(), budgets=daily(100))
    rig.engine.script("in=5,out=20,hold=200ms")
    calls = [alice.start(max_tokens=20) for _ in range(30)]
    answers = [call.answer() for call in calls]
    served = [answer for answer in answers if answer.status == 200]
    assert 1 <= len(served) <= 4
    for answer in answers:
        assert answer.status == 200 or answer.code in ("rate_limit_exceeded", "insufficient_quota")
    assert sum(row["cost"] for row in rig.records(alice.tenant, 30)) <= 100


@pytest.mark.parametrize("then", ["demote", "alert"])
def test_a_budget_that_does_not_refuse(rig: Rig, then: str) -> None:
    alice = rig.tenant(model=rig.pool(), budgets=daily(10, on_exhausted=then))
    rig.engine.script("in=5,out=5")
    first, second = alice.chat(max_tokens=5), alice.chat(max_tokens=5)
    assert (first.status, first.headers["x-fairlane-lane"]) == (200, "normal")
    lane = "batch" if then == "demote" else "normal"
    assert (second.status, second.headers["x-fairlane-lane"]) == (200, lane)
    assert rig.engine.seen(second.id)[0]["priority"] == (21 if then == "demote" else 11)


def test_a_raised_budget_keeps_what_was_used(rig: Rig) -> None:
    alice = rig.tenant(model=rig.pool(), budgets=daily(20))
    rig.engine.script("in=5,out=5")
    assert statuses(alice, 3) == [200, 200, 429]
    rig.change("tenants", alice.tenant, budgets=daily(40))
    assert statuses(alice, 3) == [200, 200, 429]
    rig.change("tenants", alice.tenant, budgets=daily(30))
    assert "40 are used" in alice.chat(max_tokens=5).message


def test_a_cut_off_stream_holds_no_more_than_it_used(rig: Rig) -> None:
    """D02: the reservation of an aborted stream is replaced by what it came to."""
    alice = rig.tenant(model=rig.pool(), budgets=daily(1000))
    rig.engine.script("in=10,out=900,hang@20")
    call = alice.start(stream=True, max_tokens=900)
    call.read_events(10)
    call.hang_up()
    [row] = rig.records(alice.tenant, 1)
    rig.engine.script("in=10,out=1")
    assert alice.chat(max_tokens=800).status == 200  # it would not fit beside the whole hold
    account = f"tenant:{alice.tenant}/daily"
    used = until(lambda: rig.window(account), "the ledger's window")
    assert until(lambda: rig.window(account) == row["cost"] + 11, f"{used} is not all")


def test_live_state_has_the_budgets_of_applications_and_keys_too(rig: Rig) -> None:
    """Of a burst budget nobody but a gateway knows the level."""
    burst = [{"name": "burst", "kind": "burst", "cost": 1000, "refill_per_second": 0.001}]
    application = {"name": "app", "budgets": burst}
    first = rig.tenant(application, model=rig.pool(), budgets=daily(5000))
    second = rig.key(first.tenant, "app", first.model, budgets=burst)
    rig.engine.script("in=10,out=20")
    assert second.chat(max_tokens=20).status == 200
    accounts = {
        f"tenant:{first.tenant}/daily",
        f"application:{first.tenant}/app/burst",
        f"key:{second.key_id}/burst",
    }
    until(
        lambda: (
            accounts
            == {a for a, b in rig.budgets(first.tenant).items() if b["remaining"] < b["limit"]}
        ),
        "a sample in which all three have given something",
    )
