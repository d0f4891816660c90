"""The demo's traffic has every shape that the dashboards are there to show."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from fairlane.demo.traffic import AGENT, BATCH, BURST, CHAT, CONTEXT, NOISY, WRITING, Traffic, User
from fairlane.management.commands.demo import users_of
from fairlane.quickstart import POLICY
from tenants.core import yaml_text
from tenants.core.compile import compile_snapshot
from tenants.core.validation import validate

SHAPES = (CHAT, CONTEXT, WRITING, AGENT, BATCH, NOISY, BURST)


def snapshot() -> Any:
    text = yaml_text.parse(POLICY.read_text())
    return compile_snapshot(validate(text.data, text.line), (), revision=1, version=1)


def heard(user: User, status: int = 200) -> list[tuple[dict[str, Any], str]]:
    """The bodies and interactions of one turn of a user."""
    calls = []

    async def answer(request: httpx.Request) -> httpx.Response:
        interaction = request.headers.get("x-fairlane-interaction", "")
        calls.append((json.loads(await request.aread()), interaction))
        stream = httpx.ByteStream(b"")
        return httpx.Response(status, headers={"retry-after": "0"}, stream=stream)

    async def turn() -> None:
        traffic = Traffic("http://gateway", "chat", 1.0)
        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(base_url="http://gateway", transport=transport) as client:
            await traffic.turn(client, user, traffic.text(user.shape.same_tokens))

    asyncio.run(turn())
    return calls


def test_the_demo_policys_tenants_have_every_shape_and_each_application_some() -> None:
    tenants = list(snapshot().tenants.values())
    keys: list[tuple[str, str | None]] = []

    def key_for(tenant: str, application: str | None) -> str:
        keys.append((tenant, application))
        return f"{tenant}/{application}"

    users = users_of(tenants, key_for)
    assert {user.shape for user in users} == set(SHAPES)
    named = {(tenant.name, app) for tenant in tenants for app in tenant.applications}
    assert named <= set(keys)


def test_the_noisy_ones_come_later_and_belong_to_one_tenant() -> None:
    users = users_of(list(snapshot().tenants.values()), lambda tenant, _: tenant)
    late = [user for user in users if user.begins_at > 0]
    assert {user.shape for user in late} == {NOISY, BURST}
    assert {user.tenant for user in late} == {"initech"}


def test_an_agents_calls_are_one_interaction_that_grows() -> None:
    calls = heard(User("acme", "k", AGENT))
    assert len({interaction for _, interaction in calls}) == 1
    assert calls[0][1]
    lengths = [len(body["messages"]) for body, _ in calls]
    assert lengths == list(range(2, 2 + AGENT.calls))
    first = calls[0][0]["messages"]
    assert all(body["messages"][: len(first)] == first for body, _ in calls)


def test_who_is_refused_gives_up_its_interaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.demo.traffic.POLITE_S", (0.0, 0.0))
    assert len(heard(User("acme", "k", AGENT), status=429)) == 1


def test_prompts_begin_alike_so_that_engines_find_them_in_their_cache() -> None:
    body, interaction = heard(User("acme", "k", CONTEXT))[0]
    assert not interaction
    assert len(body["messages"][0]["content"].split()) == CONTEXT.same_tokens
    assert body["stream"]


async def test_stopped_in_the_middle_it_leaves_nobody_asking() -> None:
    """At Ctrl-C the run is cancelled: its users are, too, before their client is closed."""
    ticked = asyncio.Event()

    async def tick() -> None:
        ticked.set()

    traffic = Traffic("http://127.0.0.1:9", "chat", 3600.0)  # nobody listens there
    running = asyncio.create_task(traffic.run([User("acme", "k", CHAT)] * 5, tick))
    await ticked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert asyncio.all_tasks() == {asyncio.current_task()}
