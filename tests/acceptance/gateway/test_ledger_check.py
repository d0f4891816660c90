"""The running product against its own ledger: it agrees, and where it does not it is mended."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

from tests.acceptance.gateway.rig import Caller, Rig
from tests.acceptance.stack import until


def daily(cost: float) -> list[dict[str, Any]]:
    return [{"name": "daily", "kind": "sustained", "cost": cost, "period": "day"}]


def verify(rig: Rig, *options: str, fails: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        rig.stack.manage("usage", "verify", "--json", "--wait", "120", *options, fails=fails)
    )
    return found


def used_up(rig: Rig) -> tuple[Caller, str]:
    alice = rig.tenant(model=rig.pool(), budgets=daily(30))
    rig.engine.script("in=5,out=5")
    for _ in range(3):
        assert alice.chat(max_tokens=5).status == 200
    assert alice.chat(max_tokens=5).code == "insufficient_quota"
    rig.records(alice.tenant, 4)
    return alice, f"tenant:{alice.tenant}/daily"


def test_a_busy_gateway_agrees_with_its_ledger(rig: Rig) -> None:
    alice = rig.tenant(model=rig.pool(), budgets=daily(1e9))
    calls = [alice.start(max_tokens=20, stream=True) for _ in range(20)]
    for call in calls[::2]:
        call.read_events(2)
        call.hang_up()
    found = verify(rig)
    assert found == {"differences": [], "gateways_not_compared": []}
    for call in calls[1::2]:
        assert call.answer().status == 200


def test_a_correction_lets_a_tenant_in_again_that_a_wrong_cost_locked_out(rig: Rig) -> None:
    """R26."""
    alice, account = used_up(rig)
    rig.stack.manage(
        "usage", "correct", "--account", account, "--units", "-20", "--reason", "wrong price"
    )
    until(lambda: alice.chat(max_tokens=5).status == 200, "the gateway takes the correction up")
    assert verify(rig)["differences"] == []


def test_a_wrong_counter_is_told_and_mended(rig: Rig) -> None:
    alice, account = used_up(rig)
    with closing(sqlite3.connect(rig.stack.folder / "fairlane.sqlite3", timeout=20)) as database:
        database.execute("UPDATE metering_budgetwindow SET used = 12 WHERE account = ?", [account])
        database.commit()
    [found] = verify(rig, fails=True)["differences"]
    assert (found["account"], found["counter"]) == (account, "stored")
    assert (found["counted"], found["ledger"], found["difference"]) == (12, 30, -18)
    mended = verify(rig, "--repair", "--reason", "somebody used SQL")["differences"]
    assert [row["repaired"] for row in mended] == [True]
    assert alice.chat(max_tokens=5).code == "insufficient_quota"
    assert verify(rig) == {"differences": [], "gateways_not_compared": []}
