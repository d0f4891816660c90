"""What a preview warns of, from the gateways' samples and the ledger; the same by page and API."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from metering.models import BudgetWindow, GatewaySample, UsageRow
from tenants import preview as previews
from tenants import services
from tests import builders
from tests.integration.console.forms import applied, filled, previewed

pytestmark = [pytest.mark.django_db, pytest.mark.store]


@pytest.fixture
def busy(people: Any) -> None:
    """acme runs 3 and queues 2, next to globex and initech."""
    at = datetime.now(UTC)
    GatewaySample.objects.create(gateway="host-a:4711", at=at, state=builders.live_state(at))


def warned(preview: Any) -> list[str]:
    return [each.message for each in (*preview.context["warnings"], *preview.context["notes"])]


@pytest.mark.usefixtures("busy")
def test_suspending_a_busy_tenant_is_warned_of_and_can_still_be_done(admin: Client) -> None:
    preview = admin.post("/bulk/tenants/", {"name": "acme", "state": "suspended"})
    assert warned(preview) == [
        "acme is suspended while 3 of its requests run and 2 wait; those that wait are refused."
    ]
    assert "1 warning" in preview.content.decode()
    assert "in force" in applied(admin, preview).content.decode()


@pytest.mark.usefixtures("busy")
def test_a_weight_is_told_as_the_share_that_it_means_now(admin: Client) -> None:
    assert warned(previewed(admin, "/tenants/acme/edit/", weight="4")) == [
        "acme: 50% → 33% of interactive-standard, by weight among the 3 tenants active there now."
    ]


@pytest.mark.usefixtures("busy")
def test_a_budget_that_a_gateway_knows_to_be_used_up_is_warned_of(admin: Client) -> None:
    row = {
        "budgets-0-name": "hourly",
        "budgets-0-kind": "sustained",
        "budgets-0-cost": "4103200",
        "budgets-0-period": "hour",
    }
    found = warned(previewed(admin, "/tenants/acme/edit/", **row))
    assert found == [
        "acme: budget hourly would be used up at once: 4,103,200 of 4,103,200 units in this hour; "
        "then: reject."
    ]


@pytest.mark.usefixtures("busy")
def test_draining_a_busy_endpoint_is_warned_of(admin: Client) -> None:
    found = warned(previewed(admin, "/pools/demo-chat/edit/", **{"endpoints-0-drain": "on"}))
    assert found[0].startswith("http://127.0.0.1:9101/v1 is drained while it runs 6 requests")


@pytest.mark.usefixtures("busy")
def test_a_limit_is_held_against_the_ledgers_last_minute(admin: Client) -> None:
    for n in range(4):
        UsageRow.objects.create(
            request_id=f"r{n}",
            at=datetime.now(UTC),
            tenant="acme",
            prompt_tokens=900,
            completion_tokens=100,
            finish_reason="throttled" if n == 3 else "stop",
        )
    found = warned(previewed(admin, "/tenants/acme/edit/", limits__tokens_per_minute="2500"))
    assert found == ["acme: tokens_per_minute 2,500 is below its 3,000 tokens in the last minute."]


@pytest.mark.usefixtures("busy")
def test_moving_to_a_tier_without_a_model_that_calls_used_is_warned_of(admin: Client) -> None:
    builders.seed_usage(hours=0.5)
    services.edit_object("tier", "bronze", {"models": ["org/*"]}, actor=builders.ROOT)
    found = warned(previewed(admin, "/tenants/globex/edit/", tier="bronze"))
    assert any("may no longer use model demo-chat" in each for each in found)
    assert any("may no longer use lane interactive-standard" in each for each in found)


def test_an_applications_budget_is_held_against_the_ledger_without_a_gateway(
    admin: Client,
) -> None:
    now = datetime.now(UTC)
    BudgetWindow.objects.create(
        account="application:acme/nightly/daily",
        window_start=now - timedelta(hours=1),
        window_end=now + timedelta(hours=1),
        used=50,
    )
    row = {
        "budgets-0-name": "daily",
        "budgets-0-kind": "sustained",
        "budgets-0-cost": "40",
        "budgets-0-period": "day",
    }
    found = warned(previewed(admin, "/tenants/acme/applications/nightly/edit/", **row))
    assert found[0].startswith("acme/nightly: budget daily would be used up at once")
    assert found[1].startswith("No gateway is heard of")


@pytest.mark.usefixtures("busy")
def test_a_dry_run_says_the_same_to_api_and_command(people: Any) -> None:
    data = builders.policy()
    data["tenants"][0]["enabled"] = False
    applied = services.apply_document(data, actor=builders.ROOT, dry_run=True)
    assert [each.field for each in applied.warnings] == ["enabled"]


@pytest.mark.usefixtures("busy")
def test_live_state_that_cannot_be_read_keeps_nobody_from_changing_the_policy(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_tenants: list[str]) -> Any:
        raise RuntimeError("the ledger is away")

    monkeypatch.setattr(previews, "_readers", [broken])
    preview = previewed(admin, "/tenants/acme/edit/", weight="4")
    assert warned(preview)[0].startswith("No gateway is heard of")
    assert "in force" in applied(admin, preview).content.decode()


@pytest.mark.usefixtures("busy")
def test_a_preview_asks_as_often_whatever_the_number_of_tenants(admin: Client) -> None:
    asked = []
    for number in (10, 200):
        data = builders.policy()
        data["tenants"] += [{"name": f"t{n}", "tier": "gold"} for n in range(number)]
        builders.apply_policy(data)
        form = filled(admin.get("/tiers/gold/edit/"), step="preview", weight="5")
        with CaptureQueriesContext(connection) as queries:
            admin.post("/tiers/gold/edit/", form)
        asked.append(len(queries))
    assert asked[0] == asked[1] <= 25
