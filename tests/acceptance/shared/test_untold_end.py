"""A gateway is killed after it has written how a request ended, and before Redis has heard that."""

from __future__ import annotations

import signal
from typing import Any

import psutil
import pytest
import valkey

from scheduling.shared.wire import decode
from tests.acceptance.gateway.caller import Answer
from tests.acceptance.shared.deployment import Deployment
from tests.acceptance.stack import Stack, until

TENANT = "killed"
OWN = f"fl:accounts:{{{TENANT}}}:"


def of_redis(pair: Deployment, hash_: str) -> list[dict[str, Any]]:
    with pair.redis.client() as client:
        return [decode(raw) for raw in client.hvals(f"{OWN}{hash_}")]


def used(pair: Deployment) -> float:
    with pair.redis.client() as client:
        raw = client.get(f"{OWN}window:tenant:{TENANT}/daily")
    return float(decode(raw)["counters"][-1]["used"])


def spent(pair: Deployment) -> float:
    return float(sum(record["cost"] for record in pair.records(TENANT).values()))


def kill(pair: Deployment, gateway: Stack) -> None:
    """And until Redis has seen it go: nothing that it had sent is carried out later."""
    assert gateway.serving is not None
    process = psutil.Process(gateway.serving.pid)
    ports = {c.laddr.port for c in process.net_connections() if c.laddr}
    gateway.serving.send_signal(signal.SIGKILL)
    gateway.serving.wait()
    gateway.serving = None
    with pair.redis.client() as client:

        def connected() -> set[int]:
            return {int(c["addr"].rpartition(":")[2]) for c in client.client_list()}

        until(lambda: not connected() & ports, "its connections are gone")


def answered_while_paused(pair: Deployment, client: valkey.Valkey) -> Answer | None:
    """Its end is written, and Redis takes nothing."""
    call = pair.callers(TENANT)[1].start(max_tokens=20)
    until(lambda: any("entry" in each for each in of_redis(pair, "open")), "an engine was asked")
    client.execute_command("CLIENT", "PAUSE", "600000", "WRITE")
    if pair.engine.load():
        return call.answer()
    client.execute_command("CLIENT", "UNPAUSE")  # on a slow machine it was too late
    call.answer()
    return None


@pytest.mark.parametrize("at_once", [True, False])
def test_the_budget_is_what_the_record_says_to_the_unit(pair: Deployment, at_once: bool) -> None:
    """Whether it is started again before it is taken for dead, or after that."""
    victim = pair.gateways[1]
    pair.engine.script("in=1,out=3,hold=2s")
    with pair.redis.client() as client:
        answer = until(lambda: answered_while_paused(pair, client), "Redis did not hear of its end")
        assert answer.status == 200
        cost = answer.json["usage"]["total_tokens"]
        kill(pair, victim)
        client.execute_command("CLIENT", "UNPAUSE")
    pair.engine.script("in=1,out=20")
    if not at_once:
        until(lambda: pair.open_reservations(TENANT) == 0, "what it held is settled")
        assert of_redis(pair, "guessed")  # by its estimate
    victim.start("--role", "gateway")
    until(lambda: pair.open_reservations(TENANT) == 0, "what it held is settled")
    until(lambda: pair.records(TENANT).get(answer.id, {}).get("cost") == cost, "by its record")
    until(lambda: used(pair) == spent(pair), "so is the budget")
    more = pair.callers(TENANT)[0].chat(max_tokens=20)
    assert more.status == 200
    until(lambda: more.id in pair.records(TENANT), "the ledger has it")
    until(lambda: used(pair) == spent(pair), "the budget is the ledger's")
