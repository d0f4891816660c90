"""Times are in the viewer's zone, tables and charts alike, and the page names it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings
from django.test import Client

from metering.dashboards import figures
from tenants import services
from tenants.models import AuditEntry
from tenants.zone import COOKIE, viewer_zone, zone_of
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]


def in_zone(client: Client, zone: str) -> Client:
    client.cookies[COOKIE] = zone
    return client


def test_without_a_zone_of_the_viewer_it_is_utc(admin: Client) -> None:
    assert "Times are in UTC." in admin.get("/audit/").content.decode()


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "", "\x00"])
def test_what_names_no_zone_is_utc(admin: Client, zone: str) -> None:
    assert "Times are in UTC." in in_zone(admin, zone).get("/audit/").content.decode()


def test_a_table_has_the_viewers_clock_and_the_machines_moment(admin: Client) -> None:
    entry = AuditEntry.objects.order_by("-at", "-id")[0]
    text = in_zone(admin, "Asia/Kathmandu").get("/audit/").content.decode()
    local = entry.at.astimezone(ZoneInfo("Asia/Kathmandu"))
    machine = entry.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert f'<time datetime="{machine}">{local:%Y-%m-%d %H:%M:%S}</time>' in text
    assert "Times are in Asia/Kathmandu." in text


def test_a_zone_holds_for_its_request_only(admin: Client) -> None:
    in_zone(admin, "Asia/Tokyo").get("/audit/")
    del admin.cookies[COOKIE]
    assert "Times are in UTC." in admin.get("/audit/").content.decode()


def test_what_is_typed_is_in_the_viewers_zone(admin: Client) -> None:
    services.edit_object("tenant", "acme", {"weight": 3}, actor=builders.ROOT)
    newest = AuditEntry.objects.order_by("-at", "-id")[0]
    local = newest.at.astimezone(ZoneInfo("Asia/Tokyo"))
    asked = in_zone(admin, "Asia/Tokyo").get(f"/audit/?since={local:%Y-%m-%dT%H:%M:%S}")
    assert newest.name in asked.content.decode()
    later = in_zone(admin, "UTC").get(f"/audit/?since={local:%Y-%m-%dT%H:%M:%S}")
    assert "No entry matches" in later.content.decode()


def test_a_chart_has_the_clock_of_the_tables() -> None:
    at = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
    ink = figures.Ink(["acme"])

    def drawn(request: Any) -> list[str]:
        stamps: list[str] = figures.lines([at], {"acme": [1.0]}, ink, "")["data"][0]["x"]
        return stamps

    class Asking:
        COOKIES = {COOKIE: "America/New_York"}

    assert zone_of(Asking()) == ZoneInfo("America/New_York")  # type: ignore[arg-type]
    assert viewer_zone(drawn)(Asking()) == ["2026-07-01T08:00:00"]  # type: ignore[arg-type]


def test_no_template_says_utc_by_itself() -> None:
    """A page that did would be wrong for whoever is elsewhere: `{% zone %}` says which it is."""
    folder = Path(settings.ROOT) / "templates"
    said = [
        f"{path.relative_to(folder)}: {line.strip()[:80]}"
        for path in folder.rglob("*.html")
        for line in path.read_text().splitlines()
        if re.search(r"\bUTC\b", line)
    ]
    assert said == []
