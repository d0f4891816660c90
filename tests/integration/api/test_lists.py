"""Every list: a page at a time in a stable order, filtered by what it names and by nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from tenants import services
from tenants.models import AuditEntry
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]
V1 = "/api/v1"
LISTS = {
    "tenants": "name",
    "applications": "name",
    "tiers": "name",
    "lanes": "name",
    "pools": "model",
    "budgets": "id",
    "keys": "id",
    "users": "username",
    "tokens": "id",
    "policy/history": "number",
    "audit": "at",
    "usage/records": "request_id",
}


@pytest.fixture
def full(admin: Client) -> Client:
    builders.seed_usage(datetime(2026, 11, 29, 12, tzinfo=UTC), hours=0.1)
    for tenant in ("acme", "globex", "acme"):
        services.create_key(tenant, name="same", actor=builders.ROOT)
    for number in range(3):
        services.edit_object("tenant", "acme", {"weight": 2 + number}, actor=builders.ROOT)
        services.create_service_token(f"ci-{number}", "operator", actor=builders.ROOT)
    return admin


def walk(client: Client, address: str, way: str = "next") -> Iterator[dict[str, Any]]:
    while address:
        page = client.get(address).json()
        yield page
        address = page[way]


def told(pages: Iterator[dict[str, Any]], key: str) -> list[Any]:
    return [each[key] for page in pages for each in page["results"]]


@pytest.mark.parametrize(("name", "key"), LISTS.items())
def test_pages_add_up_to_the_whole_there_and_back(full: Client, name: str, key: str) -> None:
    whole = told(walk(full, f"{V1}/{name}/"), key)
    assert len(whole) > 1
    pages = list(walk(full, f"{V1}/{name}/?limit=2"))
    assert [len(page["results"]) for page in pages[:-1]] == [2] * (len(pages) - 1)
    assert told(iter(pages), key) == whole
    assert pages[0]["previous"] is None
    assert pages[-1]["next"] is None
    back = list(walk(full, pages[-1]["previous"] or "", "previous"))
    assert [p["results"] for p in reversed(back)] == [p["results"] for p in pages[:-1]]


@pytest.mark.parametrize("name", LISTS)
def test_each_order_can_be_turned_round(full: Client, name: str) -> None:
    wrong = full.get(f"{V1}/{name}/?ordering=shoe_size")
    assert wrong.status_code == 400
    takes = wrong.json()["errors"][0]["message"].partition("takes one of: ")[2].split(", ")
    assert len(takes) >= 2
    for order in takes:
        turned = order.removeprefix("-") if order.startswith("-") else f"-{order}"
        there = told(walk(full, f"{V1}/{name}/?limit=3&ordering={order}"), LISTS[name])
        back = told(walk(full, f"{V1}/{name}/?limit=3&ordering={turned}"), LISTS[name])
        assert there == back[::-1], order


@pytest.mark.parametrize("name", LISTS)
def test_an_unknown_filter_is_refused_with_those_that_are_known(full: Client, name: str) -> None:
    answer = full.get(f"{V1}/{name}/?colour=red&limit=2")
    (error,) = answer.json()["errors"]
    assert (answer.status_code, error["field"], error["value"]) == (400, "colour", "red")
    known = error["message"].partition("known: ")[2].split(", ")
    assert {"cursor", "limit", "ordering"} < set(known)
    for each in known:
        assert full.get(f"{V1}/{name}/?{each}=").status_code == 200, each


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("tenants/?enabled=maybe", "enabled is 'maybe'; it takes one of: true, false"),
        ("keys/?state=lost", "state is 'lost'; it takes one of: active, expired, revoked"),
        ("audit/?revision=seven", "revision is 'seven'; it takes a whole number"),
        ("audit/?since=soon", "since is 'soon'; it takes 2026-11-29T18:00:00Z"),
        ("users/?limit=0", "limit is '0'; it takes 1 to 1000"),
        ("users/?limit=1001", "limit is '1001'; it takes 1 to 1000"),
        ("usage/summary/?colour=red", "unknown parameter; known: by, since, tenant, until"),
    ],
)
def test_a_wrong_value_is_told_with_what_is_allowed(full: Client, query: str, message: str) -> None:
    answer = full.get(f"{V1}/{query}")
    assert (answer.status_code, answer.json()["errors"][0]["message"]) == (400, message)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("tenants/?q=ACM", ["acme"]),
        ("tenants/?tier=bronze&enabled=true", ["hooli", "umbrella"]),
        ("tenants/?enabled=false", ["stark"]),
        ("applications/?tenant=acme", ["nightly", "support-bot"]),
        ("applications/?lane=interactive-critical", ["support-bot"]),
        ("tiers/?lane=async-batch", ["bronze"]),
        ("tiers/?ordering=-weight", ["gold", "bronze"]),
        ("lanes/", ["interactive-critical", "interactive-standard", "async-batch"]),
        ("budgets/?tier=gold&kind=burst", ["burst"]),
        ("tokens/?q=ci-1&state=active", ["ci-1"]),
    ],
)
def test_filters_choose(full: Client, query: str, names: list[str]) -> None:
    assert told(walk(full, f"{V1}/{query}"), "name") == names


def test_people_audit_and_records_are_found_by_what_they_hold(full: Client) -> None:
    assert told(walk(full, f"{V1}/users/?role=tenant-admin"), "username") == ["alice", "bob"]
    assert told(walk(full, f"{V1}/users/?tenant=acme&role=tenant-viewer"), "username") == ["vic"]
    assert told(walk(full, f"{V1}/audit/?revision=3"), "new") == [3]
    assert told(walk(full, f"{V1}/audit/?kind=tenant&field=weight"), "new") == [4, 3, 2]
    busy = told(walk(full, f"{V1}/usage/records/?model=demo-chat&tenant=acme&limit=5"), "tenant")
    assert set(busy) == {"acme"}


def test_a_page_stays_where_it_was_while_others_write(full: Client) -> None:
    first = full.get(f"{V1}/audit/?limit=3").json()
    services.edit_object("tenant", "acme", {"weight": 77}, actor=builders.ROOT)
    second = full.get(first["next"]).json()["results"]
    whole = list(AuditEntry.objects.values_list("field", "name"))
    assert [(each["field"], each["name"]) for each in second] == whole[4:7]


def test_a_thousand_rows_alike_are_told_once_each(full: Client) -> None:
    moment = datetime(2026, 11, 29, 3, tzinfo=UTC)
    AuditEntry.objects.bulk_create(
        AuditEntry(at=moment, actor="bulk", source="system", kind="tier", name=str(number))
        for number in range(1100)
    )
    names = told(walk(full, f"{V1}/audit/?actor=bulk&limit=400"), "name")
    assert sorted(map(int, names)) == list(range(1100))


def test_a_cursor_is_of_one_list_in_one_order(full: Client) -> None:
    cursor = full.get(f"{V1}/tenants/?limit=2").json()["next"].partition("cursor=")[2].split("&")[0]
    other = full.get(f"{V1}/tiers/?cursor={cursor}")
    assert (other.status_code, other.json()["detail"]) == (404, "Invalid cursor")
    turned = full.get(f"{V1}/tenants/?cursor={cursor}&ordering=-name")
    assert turned.status_code == 404


def test_what_was_read_before_is_not_sent_again(full: Client) -> None:
    for address in ("tenants/", "keys/", "audit/", "tenants/acme/", "users/ada/", "policy/"):
        read = full.get(f"{V1}/{address}")
        seen = {"If-None-Match": read.headers["etag"]}
        assert full.get(f"{V1}/{address}", headers=seen).status_code == 304, address
    services.edit_object("tenant", "acme", {"weight": 66}, actor=builders.ROOT)
    assert full.get(f"{V1}/policy/", headers=seen).status_code == 200


def test_a_tenants_people_page_through_their_own_only(
    full: Client, as_: Callable[[str], Client]
) -> None:
    alice = as_("tenant-admin")
    assert set(told(walk(alice, f"{V1}/keys/?limit=1"), "tenant")) == {"acme"}
    assert told(walk(alice, f"{V1}/keys/?tenant=globex"), "tenant") == []


def test_a_page_takes_few_queries_however_many_rows(
    full: Client, django_assert_max_num_queries: Any
) -> None:
    for _ in range(20):
        services.create_key("acme", "nightly", actor=builders.ROOT)
    for name in LISTS:
        with django_assert_max_num_queries(6):
            assert full.get(f"{V1}/{name}/").status_code == 200, name


def test_a_keys_own_budgets_are_told_with_it(admin: Client) -> None:
    cap = {"name": "cap", "kind": "sustained", "cost": 500, "period": "day"}
    order = {"tenant": "acme", "budgets": [cap]}
    made = admin.post("/api/v1/keys/", order, "application/json").json()
    admin.post("/api/v1/keys/", {"tenant": "acme"}, "application/json")
    one = admin.get(f"/api/v1/keys/{made['id']}/").json()
    listed = {each["id"]: each for each in admin.get("/api/v1/keys/").json()["results"]}
    for told in (made, one, listed[made["id"]]):
        [budget] = told["budgets"]
        assert {name: budget[name] for name in cap} == cap
    assert sorted(len(each["budgets"]) for each in listed.values()) == [0, 1]
