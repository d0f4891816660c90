"""The list of tenants: found, filtered and sorted by what is known of them now; and one tenant."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from metering.core.windows import window_at
from metering.models import BudgetWindow
from tenants import services
from tests import builders
from tests.calm import calm_zone

pytestmark = [pytest.mark.django_db, pytest.mark.store]


def shown(client: Client, query: str) -> list[str]:
    return [row.name for row in client.get(f"/tenants/?{query}").context["page"]]


def text_of(client: Client, page: str) -> str:
    answer = client.get(page)
    assert answer.status_code == 200, page
    return answer.content.decode()


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("q=glob", {"globex"}),
        ("q=NIGHTLY", {"acme"}),
        ("tier=bronze", {"umbrella", "hooli", "stark"}),
        ("lane=async-batch", {"acme", "umbrella", "hooli", "stark"}),
        ("state=suspended", {"stark"}),
        ("tier=gold&state=suspended", set()),
        ("state=nonsense", {"acme", "globex", "initech", "umbrella", "hooli", "stark"}),
    ],
)
def test_tenants_are_found(admin: Client, query: str, found: set[str]) -> None:
    assert set(shown(admin, query)) == found


def test_who_waits_was_throttled_or_is_over_its_budget_is_found(admin: Client) -> None:
    zone, at = calm_zone(), timezone.now()
    builders.seed_usage(at, hours=0.9)
    builders.seed_samples(at, minutes=0)
    services.edit_object("tenant", "hooli", {"timezone": zone}, actor=builders.ROOT)
    day = window_at("day", zone, at)
    BudgetWindow.objects.create(
        account="tenant:hooli/daily", window_start=day.start, window_end=day.end, used=2_000_000
    )
    assert set(shown(admin, "state=waiting")) == {"acme", "globex", "initech"}
    assert "umbrella" in shown(admin, "state=throttled")
    assert "initech" not in shown(admin, "state=throttled")
    assert shown(admin, "state=over+budget") == ["hooli"]


def test_a_budget_that_an_ended_window_used_up_counts_no_more(admin: Client) -> None:
    at = timezone.now()
    ended = at - timedelta(minutes=1)
    BudgetWindow.objects.create(
        account="tenant:hooli/daily",
        window_start=at - timedelta(days=1),
        window_end=ended,
        used=9e9,
    )
    assert shown(admin, "state=over+budget") == []


@pytest.mark.parametrize(
    ("sort", "first"),
    [
        ("name", ["acme", "globex"]),
        ("-name", ["umbrella", "stark"]),
        ("-weight", ["acme", "globex", "initech", "hooli"]),
        ("weight", ["stark", "umbrella", "hooli"]),
        ("-queued", ["initech", "globex", "acme", "hooli"]),
        ("nonsense", ["acme", "globex"]),
    ],
)
def test_tenants_are_sorted_and_names_decide_between_equals(
    admin: Client, sort: str, first: list[str]
) -> None:
    builders.seed_samples(minutes=0)
    assert shown(admin, f"sort={sort}")[: len(first)] == first


def test_the_noisiest_comes_first_by_tokens_and_by_throttles(admin: Client) -> None:
    builders.seed_usage(hours=0.9)
    rows = list(admin.get("/tenants/?sort=-tokens").context["page"])
    assert [row.tokens for row in rows] == sorted((row.tokens for row in rows), reverse=True)
    assert rows[0].tokens > 0
    assert shown(admin, "sort=-throttled")[0] == "umbrella"


def test_whoever_has_no_figure_comes_last_in_both_directions(admin: Client) -> None:
    builders.seed_samples(minutes=0)
    for sort in ("debt", "-debt"):
        assert set(shown(admin, f"sort={sort}")[:3]) == {"acme", "globex", "initech"}


def test_a_long_list_has_pages_that_keep_filter_and_order(admin: Client) -> None:
    document = builders.policy()
    document["tenants"] += [{"name": f"t{n:03}", "tier": "bronze"} for n in range(120)]
    services.apply_document(document, actor=builders.ROOT)
    assert shown(admin, "tier=bronze&sort=-name&page=3")[-1] == "hooli"
    text = text_of(admin, "/tenants/?tier=bronze&sort=-name&page=2")
    assert "?tier=bronze&amp;sort=-name&amp;page=3" in text
    assert 'href="?tier=bronze&amp;sort=name"' in text  # its heading leads to a first page
    assert "Page 2 of 3, 123 in all" in text


def test_a_heading_turns_the_order_round(admin: Client) -> None:
    first = {each["label"]: each for each in admin.get("/tenants/").context["columns"]}
    assert first["Tenant"]["order"] == "ascending"
    assert first["Tenant"]["sort"] == "-name"
    assert first["Weight"]["sort"] == "-weight"
    turned = {
        each["label"]: each for each in admin.get("/tenants/?sort=-weight").context["columns"]
    }
    assert (turned["Weight"]["order"], turned["Weight"]["sort"]) == ("descending", "weight")


def test_a_tenant_is_suspended_from_the_list_by_way_of_the_preview(admin: Client) -> None:
    answer = admin.post("/bulk/tenants/", {"name": "acme", "state": "suspended"})
    assert answer.status_code == 200
    assert "enabled" in answer.content.decode()
    assert shown(admin, "state=suspended") == ["stark"]


def test_nobody_but_an_admin_sees_a_switch(as_: Any) -> None:
    for page in ("/tenants/", "/tenants/acme/", "/pools/"):
        assert "<button" in text_of(as_("admin"), page)
        seen = text_of(as_("operator"), page)
        assert "Suspend" not in seen
        assert "Drain" not in seen


def test_the_page_of_a_tenant_tells_of_each_queue_it_is_in(admin: Client) -> None:
    builders.seed_samples(minutes=0)
    places = admin.get("/tenants/globex/").context["places"]
    assert [(each.pool, each.lane, each.queued) for each in places] == [
        ("demo-chat", "interactive-standard", 3)
    ]
    assert places[0].counter == 812.5
    assert places[0].entitlement == pytest.approx(4 / 16)


def test_budgets_are_the_ledgers_where_no_gateway_tells(admin: Client) -> None:
    zone = calm_zone()
    services.edit_object("tenant", "globex", {"timezone": zone}, actor=builders.ROOT)
    hour = window_at("hour", zone, timezone.now())
    BudgetWindow.objects.create(
        account="tenant:globex/hourly",
        window_start=hour.start,
        window_end=hour.end,
        used=1_000_000,
    )
    left = {each.name: each for each in admin.get("/tenants/globex/").context["budgets"]}
    assert (left["hourly"].remaining, left["hourly"].part) == (4_000_000, pytest.approx(0.2))
    assert left["hourly"].resets == hour.end
    assert left["burst"].part is None
    builders.seed_samples(minutes=0)
    told = {each.name: each for each in admin.get("/tenants/acme/").context["budgets"]}
    assert (told["hourly"].reserved, told["hourly"].remaining) == (3200, 896_800)


def test_the_reason_of_each_throttle_is_told_in_words_with_what_helps(admin: Client) -> None:
    builders.seed_usage(hours=1)
    text = text_of(admin, "/tenants/umbrella/")
    assert "Too many requests at once." in text or "Too many tokens in a minute." in text
    assert "Budget daily of the tenant was used up." in text or "lower your concurrency" in text


def test_the_page_of_a_tenant_names_its_people_and_the_lanes_of_its_applications(
    admin: Client,
) -> None:
    seen = admin.get("/tenants/acme/")
    assert [each.user.username for each in seen.context["members"]] == ["alice", "vic"]
    text = text_of(admin, "/tenants/globex/")
    assert (
        'interactive-standard <span class="muted">the tenant&#x27;s' in text
        or "the tenant's" in text
    )


def test_an_endpoint_is_drained_by_way_of_the_preview(admin: Client) -> None:
    asked = {"url": "http://127.0.0.1:9101/v1", "drain": "on"}
    answer = admin.post("/pools/demo-chat/drain/", asked)
    assert answer.status_code == 200
    assert "Drain http://127.0.0.1:9101/v1" in answer.content.decode()
    pools = admin.get("/pools/").context["rows"]
    assert [row.endpoint.drain for row in pools[0][1]] == [False, False]
    assert admin.post("/pools/demo-chat/drain/", {"url": "http://other/"}).status_code == 302
