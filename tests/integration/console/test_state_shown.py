"""Whether the state that gateways share is whole, on the pages where one would look."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.test import Client

from metering.services import write_sample
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]


def told(gateway: str, state: str, fault: str = "") -> None:
    now = datetime.now(UTC)
    sample = builders.live_state(now) if state == "shared" else {"pools": {}, "tenants": {}}
    since = "2026-11-29T03:10:00Z"
    sample |= {"gateway": gateway, "at": now.isoformat(), "state": state, "state_since": since}
    write_sample(gateway, {"revision": 1, "version": 1, **sample, "state_fault": fault}, now)


def shown(client: Client, path: str) -> str:
    return " ".join(client.get(path).content.decode().split())


def test_a_gateway_that_lost_it_is_named_with_since_when_and_what_it_does(admin: Client) -> None:
    builders.apply_policy()
    told("host-a:1", "shared")
    told("host-b:2", "lost", "the state shared by gateways (REDIS_URL) is out of reach")
    told("host-c:3", "apart")
    for path in ("/", "/pools/"):
        page = shown(admin, path)
        assert "The shared state is out of reach</strong> at" in page
        assert "Lets no call in: each is answered 503, state_unavailable." in page
        assert "The shared state is apart</strong> at" in page
        assert "29 Nov" in page
        assert "(REDIS_URL) is out of reach" in page
    table = shown(admin, "/pools/").partition('id="state"')[2]
    assert table.index("host-a:1") < table.index("host-b:2") < table.index("host-c:3")
    assert [table.count(f">{word}</span>") for word in ("whole", "lost", "apart")] == [1, 1, 1]


def test_while_all_is_well_there_is_no_notice(admin: Client) -> None:
    builders.apply_policy()
    told("host-a:1", "shared")
    for path in ("/", "/pools/"):
        assert "shared state is" not in shown(admin, path)
    assert "Shared with the other gateways, on Redis." in shown(admin, "/pools/")
