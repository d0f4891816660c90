"""Pages beside the forms: lists, filters, the trail, errors, colours."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tenants import services
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]


def text_of(client: Client, page: str) -> str:
    answer = client.get(page)
    assert answer.status_code == 200, page
    return answer.content.decode()


def test_effective_policy_tells_where_each_value_comes_from(admin: Client) -> None:
    rows = {row["label"]: row for row in admin.get("/tenants/initech/").context["effective"]}
    assert (rows["Running at once"]["value"], rows["Running at once"]["origin"]) == ("8", "tenant")
    assert (rows["Queued at once"]["value"], rows["Queued at once"]["origin"]) == ("200", "tier")
    assert rows["When overloaded"]["origin"] == "default"


def test_a_page_is_kept_nowhere_so_that_back_after_signing_out_shows_nothing(admin: Client) -> None:
    for page in ("/", "/tenants/initech/", "/audit/"):
        assert "no-store" in admin.get(page).headers["Cache-Control"], page


def test_reserved_shares_are_drawn_with_their_sum(admin: Client) -> None:
    text = text_of(admin, "/lanes/")
    assert "60% of each pool is promised" in text
    assert 'style="width:30.0%"' in text
    assert "up to 90% when others leave room" in text


def test_every_budget_is_listed_with_its_owner(admin: Client) -> None:
    rows = admin.get("/budgets/").context["page"]
    assert [(row.kind, row.owner, row.budget.name) for row in rows] == [
        ("tier", "gold", "burst"),
        ("tier", "gold", "hourly"),
        ("tier", "bronze", "daily"),
    ]
    assert len(admin.get("/budgets/?q=GOLD").context["page"]) == 2
    assert len(admin.get("/budgets/?of=tenant").context["page"]) == 0


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("kind=tenant&name=acme", 2),
        ("actor=ada", 0),
        ("actor=root&kind=lane", 3),
        ("since=2999-01-01T00:00", 0),
        ("kind=tenant&name=acme&until=2999-01-01", 2),
    ],
)
def test_the_audit_is_filtered(admin: Client, query: str, count: int) -> None:
    services.edit_object("tenant", "acme", {"weight": 3}, actor=builders.ROOT)
    assert len(admin.get(f"/audit/?{query}").context["page"].object_list) == count


def test_a_filter_that_cannot_be_read_is_told(admin: Client) -> None:
    assert "since is &#x27;soon&#x27;" in text_of(admin, "/audit/?since=soon")
    assert "since is " in text_of(admin, "/audit/?since=0001-01-01T00:00%2B23:00")


def test_the_document_downloads_as_it_can_be_applied(admin: Client) -> None:
    answer = admin.get("/policy/?download=1")
    assert "attachment" in answer.headers["content-disposition"]
    same = services.apply_document(answer.content.decode(), actor=builders.ROOT, dry_run=True)
    assert same.changes == []


def test_what_a_person_typed_is_text_and_never_markup(admin: Client) -> None:
    evil = "<script>alert(1)</script>"
    services.edit_object("tenant", "acme", {"weight": 3}, actor=builders.ROOT, reason=evil)
    services.create_key("acme", None, evil, actor=builders.ROOT)
    for page in ("/audit/", "/revisions/", "/revisions/2/", "/keys/", "/tenants/acme/"):
        assert evil not in text_of(admin, page)


def test_errors_look_like_the_rest_and_say_what_to_do(as_: Any) -> None:
    missing = as_("admin").get("/tenants/nobody/")
    assert missing.status_code == 404
    assert "There is nothing here" in missing.content.decode()
    refused = as_("operator").get("/new/tenant/")
    assert refused.status_code == 403
    assert "Ask an admin" in refused.content.decode()


def test_a_fault_of_ours_is_told_without_a_trace(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr("tenants.selectors.current_document", broken)
    admin.raise_request_exception = False
    answer = admin.get("/tiers/")
    assert answer.status_code == 500
    assert "Something broke on our side" in answer.content.decode()
    assert "secret detail" not in answer.content.decode()


def test_colours_are_kept_in_a_cookie(client: Client, db: None) -> None:
    assert "data-theme" not in text_of(client, "/login/")
    answer = client.post("/theme/", {"theme": "dark", "next": "/login/"})
    assert answer.headers["location"] == "/login/"
    assert 'data-theme="dark"' in text_of(client, "/login/")
    away = client.post("/theme/", {"theme": "light", "next": "https://evil.example/"})
    assert away.headers["location"] == "/"


def test_no_page_carries_script_within(admin: Client) -> None:
    for page in ("/", "/tenants/acme/", "/usage/?tenant=acme", "/audit/", "/api/docs/", "/login/"):
        answer = admin.get(page)
        scripts = [part.split(">")[0] for part in answer.content.decode().split("<script")[1:]]
        assert all("src=" in each or "application/json" in each for each in scripts), page
        assert (
            "unsafe-inline" not in answer.headers["content-security-policy"].split("style-src")[0]
        )
        assert " onclick=" not in answer.content.decode()
