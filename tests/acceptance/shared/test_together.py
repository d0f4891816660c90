"""Two gateways on one Redis are one to a tenant: budgets, limits and shares hold over both."""

from __future__ import annotations

import signal

from tests.acceptance.shared.deployment import Deployment
from tests.acceptance.stack import until


def test_a_budget_holds_over_both(pair: Deployment) -> None:
    pair.engine.script("in=20,out=20,hold=300ms")
    both = pair.callers("alice")
    calls = [caller.start(max_tokens=20) for _ in range(6) for caller in both]
    served = [call.answer().status for call in calls].count(200)
    pair.engine.script("in=20,out=20")
    while both[served % 2].chat(max_tokens=20).status == 200:
        served += 1
    assert served == 5
    for caller in both:
        refused = caller.chat(max_tokens=20)
        assert (refused.status, refused.code) == (429, "insufficient_quota")
        assert "200 are used" in refused.message
    until(lambda: len(pair.records("alice")) >= 14, "the ledger has all that was asked")
    costs = [record["cost"] for record in pair.records("alice").values()]
    assert sum(costs) == 200


def test_max_running_holds_over_both(pair: Deployment) -> None:
    pair.engine.script("in=5,out=20,hang@10")
    calls = [caller.start(stream=True) for _ in range(3) for caller in pair.callers("bob")]
    until(lambda: pair.open_reservations("bob") == 6, "all are let in")
    until(lambda: pair.engine.load() == 2, "two run")
    for _ in range(20):
        assert pair.engine.load() == 2
    pair.engine.script("in=5,out=20")
    for call in calls:
        call.hang_up()
    until(lambda: pair.open_reservations("bob") == 0, "all came back")
    until(lambda: pair.engine.load() == 0, "the engine is idle")
