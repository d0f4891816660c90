"""Who changed what: found by each filter, a page at a time, and as a file."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tenants import selectors, services
from tenants.core.document import canonical
from tenants.models import AuditEntry, PolicyRevision
from tenants.streaming import Streamed
from tests import builders
from tests.integration.console.forms import changed

pytestmark = [pytest.mark.django_db, pytest.mark.store]

ROBOT = services.Actor("robot", "api", "192.0.2.9")


@pytest.fixture
def changes(people: Any) -> None:
    services.edit_object("tenant", "acme", {"weight": 5}, actor=ROBOT, reason="Nightly sync")
    services.edit_object("tenant", "acme", {"limits": {"max_running": 9}}, actor=builders.ROOT)
    services.edit_object("application", "acme/nightly", {"weight": 2}, actor=builders.ROOT)
    services.edit_object(
        "pool",
        "demo-chat",
        {"endpoints": [{"url": "http://127.0.0.1:9101/v1", "drain": True}]},
        actor=ROBOT,
    )


def test_a_tiers_limit_leaves_the_same_entry_whichever_way_it_is_changed(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D19: by page, by API, by an imported file."""
    changed(admin, "/tiers/gold/edit/", "By page", limits__max_running="11")
    admin.patch(
        "/api/v1/tiers/gold/?reason=By API",
        {"limits": {"max_running": 12}},
        content_type="application/json",
        headers={"If-Match": "*"},
    )
    document = canonical(selectors.current_document())
    document["tiers"][0]["limits"]["max_running"] = 13
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(document)))
    call_command("policy", "apply", "-", reason="By file", author="ada", stdout=io.StringIO())
    entries = AuditEntry.objects.filter(kind="tier", name="gold", field="limits.max_running")
    told = [(e.actor, e.source, e.new, e.reason) for e in entries.order_by("id")]
    assert told == [
        ("ada", "page", 11, "By page"),
        ("ada", "api", 12, "By API"),
        ("ada", "command", 13, "By file"),
    ]
    assert [e.old for e in entries.order_by("id")][1:] == [11, 12]
    assert all(e.at for e in entries)
    assert {e.address for e in entries} == {"127.0.0.1", ""}


def found(client: Client, query: str) -> list[tuple[str, str]]:
    page = client.get(f"/audit/?{query}").context["page"]
    return [(entry.name, entry.field) for entry in page.object_list]


@pytest.mark.usefixtures("changes")
@pytest.mark.parametrize(
    ("query", "entries"),
    [
        ("actor=robot&kind=tenant", [("acme", "weight")]),
        ("source=api&kind=tenant", [("acme", "weight")]),
        ("field=weight", [("acme/nightly", "weight"), ("acme", "weight")]),
        ("field=limits.max_running", [("acme", "limits.max_running")]),
        ("field=limits", []),
        (
            "name=acme/*",
            [("acme/nightly", "weight"), ("acme/support-bot", ""), ("acme/nightly", "")],
        ),
        ("name=acme/nightly&field=weight", [("acme/nightly", "weight")]),
        ("name=acme&kind=pool", []),
        (
            "field=endpoints.http://127.0.0.1:9101/v1.drain",
            [("demo-chat", "endpoints.http://127.0.0.1:9101/v1.drain")],
        ),
    ],
)
def test_entries_are_found_by_each_filter(
    admin: Client, query: str, entries: list[tuple[str, str]]
) -> None:
    assert sorted(found(admin, query)) == sorted(entries)


def test_fields_that_begin_alike_for_long_are_told_apart(admin: Client) -> None:
    urls = [f"http://engine.example/{'x' * 60}/{n}" for n in (1, 2)]
    endpoints = [{"url": url} for url in urls]
    services.edit_object("pool", "demo-chat", {"endpoints": endpoints}, actor=ROBOT)
    assert found(admin, f"field=endpoints.{urls[1]}") == [("demo-chat", f"endpoints.{urls[1]}")]


@pytest.mark.usefixtures("changes")
def test_each_entry_links_to_its_object_its_revision_and_the_undo(admin: Client) -> None:
    text = admin.get("/audit/?kind=tenant&field=weight").content.decode()
    for link in ("/tenants/acme/", "/revisions/2/", "/revisions/2/revert/"):
        assert f'href="{link}"' in text


def test_a_moment_is_told_on_the_viewers_clock_and_a_long_field_may_break(admin: Client) -> None:
    key, _ = services.create_key("acme", name="old", actor=ROBOT)
    services.revoke_key(key.public_id, actor=ROBOT)
    AuditEntry.objects.create(
        actor="robot", source="api", kind="pool", name="p", field="endpoints.http://a:1/v1.<b>"
    )
    text = admin.get("/audit/").content.decode()
    assert re.search(r'<ins class="now">\d{4}-\d\d-\d\d \d\d:\d\d:\d\d</ins>', text)
    assert "endpoints.<wbr>http://<wbr>a:1/<wbr>v1.<wbr>&lt;b&gt;" in text


@pytest.mark.usefixtures("changes")
def test_an_operator_reads_the_audit_and_is_offered_no_undo(as_: Any) -> None:
    assert "/revert/" not in as_("operator").get("/audit/").content.decode()


def many(number: int, day: int = 1) -> None:
    revision = PolicyRevision.objects.get(number=1)
    at = datetime(2026, 1, day, tzinfo=UTC)
    AuditEntry.objects.bulk_create(
        AuditEntry(
            at=at + timedelta(seconds=n // 3),  # some share their moment
            actor="robot",
            source="api",
            kind="tenant",
            name=f"t{n % 7}",
            field="weight",
            old=n,
            new=n + 1,
            revision=revision,
        )
        for n in range(number)
    )


def test_pages_part_the_entries_without_gap_or_repeat_both_ways(admin: Client) -> None:
    many(130)
    query, olds, pages = "actor=robot", [], 0
    while query:
        page = admin.get(f"/audit/?{query}").context["page"]
        olds += [entry.old for entry in page.object_list]
        last, query, pages = page, page.older, pages + 1
    assert olds == list(range(129, -1, -1))
    assert pages == 3
    middle = admin.get(f"/audit/?{last.newer}").context["page"]
    assert [entry.old for entry in middle.object_list] == list(range(79, 29, -1))
    first = admin.get(f"/audit/?{middle.newer}").context["page"]
    assert first.newer == ""
    assert [entry.old for entry in first.object_list] == list(range(129, 79, -1))


def test_entries_that_come_meanwhile_move_no_page(admin: Client) -> None:
    many(60)
    second = admin.get("/audit/?actor=robot").context["page"].older
    many(5, day=2)
    page = admin.get(f"/audit/?{second}").context["page"]
    assert [entry.old for entry in page.object_list] == list(range(9, -1, -1))


def test_a_page_counts_nothing_and_asks_as_often_whatever_there_is(admin: Client) -> None:
    asked = []
    for number in (60, 400):
        many(number)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            admin.get("/audit/?name=t1&field=weight&source=api")
        assert not [sql for sql in queries if re.search("COUNT.*tenants_auditentry", sql["sql"])]
        asked.append(len(queries))
    assert asked[0] == asked[1] <= 8


def test_a_position_that_cannot_be_read_is_the_first_page(admin: Client) -> None:
    for wrong in (
        "x",
        "2026-01-01",
        "2026-01-01_x",
        "_5",
        "7",
        "2026-01-01T00:00_99999999999999999999",
    ):
        assert admin.get("/audit/", {"before": wrong}).context["page"].object_list, wrong


@pytest.mark.usefixtures("changes")
def test_the_filtered_list_is_had_as_a_file(admin: Client) -> None:
    services.edit_object(
        "tenant", "acme", {"weight": 6}, actor=ROBOT, reason='=HYPERLINK("https://evil.example")'
    )
    answer = admin.get("/audit/?kind=tenant&field=weight&format=csv")
    assert 'filename="audit.csv"' in answer.headers["content-disposition"]
    text = b"".join(answer.streaming_content).decode()  # type: ignore[attr-defined]
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(row["actor"], row["name"], row["old"], row["new"]) for row in rows] == [
        ("robot", "acme", "5", "6"),
        ("robot", "acme", "8", "5"),
    ]
    assert rows[0]["reason"].startswith("'=")
    assert rows[1]["revision"] == "2"


async def test_a_file_is_sent_while_it_is_made() -> None:
    made: list[int] = []

    def parts() -> Iterator[str]:
        for number in range(3):
            made.append(number)
            yield str(number)

    sent = [(part, list(made)) async for part in Streamed(parts())]
    assert sent == [(b"0", [0]), (b"1", [0, 1]), (b"2", [0, 1, 2])]


def test_a_filter_that_cannot_be_read_makes_no_file(admin: Client) -> None:
    answer = admin.get("/audit/?since=soon&format=csv")
    assert "since is " in answer.content.decode()


def test_a_tenants_page_leads_to_all_that_was_done_to_it_and_its_own(admin: Client) -> None:
    services.edit_object("application", "acme/nightly", {"weight": 5}, actor=builders.ROOT)
    key, _ = services.create_key("acme", actor=builders.ROOT)
    services.create_key("globex", actor=builders.ROOT)
    services.edit_object("tenant", "globex", {"weight": 5}, actor=builders.ROOT)
    page = admin.get("/tenants/acme/").content.decode()
    assert 'href="/audit/?tenant=acme"' in page
    entries = admin.get("/audit/?tenant=acme").context["page"].object_list
    about = {(each.kind, each.name) for each in entries}
    assert about >= {("tenant", "acme"), ("application", "acme/nightly"), ("key", key.public_id)}
    assert not any("globex" in f"{each.name} {each.new}" for each in entries)
    told = admin.get("/api/v1/audit/?tenant=acme&limit=1000").json()["results"]
    assert {(each["kind"], each["name"]) for each in told} == about
