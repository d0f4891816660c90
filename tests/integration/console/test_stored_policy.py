"""A policy that an older version stored, with what is refused today: it stays in force, every
reader of it works and says what is wrong, and no change is taken before that is mended."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.test import Client

from fairlane.doctor import running
from gateway.policy import scheduler_config
from metering.core.windows import window_at
from tenants import selectors, services
from tenants.core.document import FromNewer, canonical, stored
from tenants.errors import PolicyRefused
from tenants.models import PolicyRevision, PolicyState
from tenants.services import Actor, documents
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]

ALICE = Actor("alice", "command")
FAULTS = (
    "tenants[initech].timezone: timezone is 'localtime': it takes a time zone's name",
    "pools[demo-chat].endpoints[http://127.1:9101/v1].url: url is 'http://127.1:9101/v1': the host",
    "pools[demo-chat].api_key_env: api_key_env is 'PATH': Fairlane's own variables are never sent",
)


@pytest.fixture
def old(people: dict[str, Any]) -> dict[str, Any]:
    """In force as an older version left it; `people` applied the same without its faults."""
    data = builders.policy()
    tenant = next(each for each in data["tenants"] if each["name"] == "initech")
    tenant["timezone"] = "localtime"
    data["pools"][0]["endpoints"][0]["url"] = "http://127.1:9101/v1"
    data["pools"][0]["api_key_env"] = "PATH"
    document = stored(data)
    documents._write(PolicyState.read(), document, [], ALICE, "by an older version")
    selectors._document.cache_clear()
    return canonical(document)


def test_a_gateway_takes_it_and_counts_the_day_by_utc(
    old: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        snapshot = selectors.load_snapshot()
    for fault in FAULTS:
        assert fault in caplog.text
    assert snapshot.revision == 2
    tenant = snapshot.tenants["initech"]
    assert {tenant.timezone, *(each.timezone for each in tenant.budgets)} == {"UTC"}
    window_at("day", tenant.timezone, datetime.now(UTC))
    assert "demo-chat" in scheduler_config(snapshot).pools


@pytest.mark.parametrize(
    "page",
    [
        *("/", "/tenants/", "/tenants/initech/", "/tenants/initech/edit/", "/pools/", "/budgets/"),
        *("/usage/?tenant=initech", "/policy/edit/", "/revisions/2/", "/api/v1/policy/"),
        *("/api/v1/tenants/initech/", "/api/v1/pools/", "/api/v1/live/"),
    ],
)
def test_every_page_of_it_opens(old: dict[str, Any], admin: Client, page: str) -> None:
    assert admin.get(page).status_code == 200


def test_the_policy_page_and_the_doctor_say_what_is_wrong(
    old: dict[str, Any], admin: Client
) -> None:
    told = [str(issue) for issue in admin.get("/policy/").context["stale"]]
    doctor = [finding.found for finding in running.policy() if finding.state == "fail"]
    for fault in FAULTS:
        assert any(line.startswith(fault) for line in told), told
        assert any(line.startswith(fault) for line in doctor), doctor


def test_its_export_is_what_is_in_force(
    old: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("policy", "export", "-")
    assert yaml.safe_load(capsys.readouterr().out) == old


@pytest.mark.parametrize(
    "change",
    [
        lambda old: services.apply_document(old, actor=ALICE),
        lambda _old: services.edit_object("tenant", "acme", {"weight": 9}, actor=ALICE),
        lambda _old: services.rollback(2, actor=ALICE),
    ],
)
def test_no_change_is_taken_that_leaves_it_wrong(
    old: dict[str, Any], change: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises(PolicyRefused) as refused:
        change(old)
    for fault in FAULTS:
        assert fault in str(refused.value)
    assert selectors.current_revision() == 2


def test_one_that_mends_it_is(old: dict[str, Any]) -> None:
    applied = services.apply_document(builders.policy(), actor=ALICE)
    assert {change.field for change in applied.changes} >= {"timezone", "api_key_env"}
    assert next(iter(running.policy())).state == "ok"


@pytest.fixture
def newer(people: dict[str, Any]) -> None:
    """In force as a newer release left it, with a field that it has in a tier."""
    data = canonical(selectors.current_document())
    data["tiers"][0]["limits"]["max_tool_calls"] = 3
    number = PolicyState.read().revision + 1
    PolicyRevision.objects.create(number=number, packed=PolicyRevision.pack(data), changes=1)
    PolicyState.objects.filter(id=1).update(revision=number)


@pytest.mark.parametrize("page", ["/", "/tenants/initech/", "/policy/edit/", "/api/v1/policy/"])
def test_one_that_a_newer_release_stored_is_told_as_that(
    newer: None, admin: Client, page: str, caplog: pytest.LogCaptureFixture
) -> None:
    admin.raise_request_exception = False
    answer = admin.get(page)
    assert answer.status_code == 503
    assert "stored by a newer release: this one does not take its tiers.0" in answer.text
    assert "Traceback" not in caplog.text


def test_a_gateway_does_not_leave_out_what_it_does_not_know(newer: None) -> None:
    with pytest.raises(FromNewer, match=r"limits\.max_tool_calls"):
        selectors.load_snapshot()
