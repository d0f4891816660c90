"""Two gateways on one Redis are one to a tenant: budgets, limits and shares hold over both."""

from __future__ import annotations

from collections import Counter

from tests.acceptance.gateway.caller import Caller
from tests.acceptance.shared.deployment import Deployment
from tests.acceptance.stack import until


def test_a_budget_holds_over_both(pair: Deployment) -> None:
    pair.engine.script("in=1,out=20,hold=300ms")
    both = pair.callers("alice")
    calls = [caller.start(max_tokens=20) for _ in range(6) for caller in both]
    answers = [call.answer() for call in calls]
    pair.engine.script("in=1,out=20")
    while answers[-1].status == 200 or len(answers) == len(calls):
        answers.append(both[len(answers) % 2].chat(max_tokens=20))
    for caller in both:
        answers.append(refused := caller.chat(max_tokens=20))
        assert (refused.status, refused.code) == (429, "insufficient_quota"), refused.message
    until(lambda: len(pair.records("alice")) == len(answers), "the ledger has all that was asked")
    served = [answer.status for answer in answers].count(200)
    costs = [record["cost"] for record in pair.records("alice").values() if record["cost"]]
    assert len(costs) == served
    assert 200 - 2 * 30 < sum(costs) <= 200, costs
    assert f"{sum(costs):g} are used" in refused.message


def test_a_key_that_is_revoked_at_one_is_refused_at_both_from_then_on(pair: Deployment) -> None:
    """D08: warm at both, revoked through the first."""
    first = pair.gateways[0]
    key = first.key("light")
    both = [Caller(each.port, "light", key, "", "chat") for each in pair.gateways]
    for caller in both:
        until(lambda c=caller: c.chat(max_tokens=1).status == 200, "the key is in force")
    first.manage("keys", "revoke", key)
    for caller in both:
        until(lambda c=caller: c.chat(max_tokens=1).status == 401, "the key is refused")
    again = [caller.chat(max_tokens=1) for _ in range(10) for caller in both]
    assert {(answer.status, answer.code) for answer in again} == {(401, "invalid_api_key")}


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


def test_weights_hold_over_both(pair: Deployment) -> None:
    """Each tenant at a gateway of its own; another holds the two places of the pool at first."""
    pair.engine.script("in=10,out=10,hang@5")
    first = [caller.start(stream=True) for caller in pair.callers("bob", "few")]
    until(lambda: pair.engine.load() == 2, "the pool is full")
    pair.engine.script("in=10,out=10,hold=50ms")
    heavy, light = pair.callers("thrice", "few")[0], pair.callers("once", "few")[1]
    callers = {"thrice": heavy, "once": light}
    calls = {n: [c.start(max_tokens=10) for _ in range(16)] for n, c in callers.items()}
    for name in calls:
        until(lambda n=name: pair.open_reservations(n) == 16, "all wait")
    for call in first:
        call.hang_up()
    answers = {name: [call.answer() for call in calls[name]] for name in calls}
    assert {answer.status for name in answers for answer in answers[name]} == {200}
    ids = {answer.id: name for name in answers for answer in answers[name]}
    served = [ids[seen["headers"]["x-request-id"]] for seen in pair.engine.seen(*ids)][:16]
    assert 10 <= served.count("thrice") <= 14  # 12, and 8 if each gateway were fair alone


def test_a_share_holds_over_both_however_tenants_are_spread(pair: Deployment) -> None:
    """4:2:1, all requests alike. The bound of docs/scheduling.md; each gateway fair for itself
    would serve 23, 35 and 12 of these 70, with a place each."""
    weights, bound = {"four": 4, "two": 2, "one": 1}, 2 * 2  # of two places, in requests a weight
    asked = {"four": (56, 0), "two": (20, 20), "one": (0, 28)}  # at each gateway
    pair.engine.script("in=10,out=10,hang@5")
    first = [caller.start(stream=True) for caller in pair.callers("bob", "few")]
    until(lambda: pair.engine.load() == 2, "the pool is full")
    pair.engine.script("in=10,out=10,hold=20ms")
    calls = {
        name: [
            caller.start(max_tokens=10)
            for caller, count in zip(pair.callers(name, "few"), counts, strict=True)
            for _ in range(count)
        ]
        for name, counts in asked.items()
    }
    for name, counts in asked.items():
        until(lambda n=name, c=counts: pair.open_reservations(n) == sum(c), "all wait")
    for call in first:
        call.hang_up()
    ids = {call.answer().id: name for name in calls for call in calls[name]}
    served = Counter(ids[seen["headers"]["x-request-id"]] for seen in pair.engine.seen(*ids)[:70])
    normal = [served[name] / weight for name, weight in weights.items()]
    assert max(normal) - min(normal) <= bound, served
