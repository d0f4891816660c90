"""The admin API: reads, guarded edits, errors that name the field, and tenants kept apart."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client

from tenants import selectors, services
from tenants.core.diff import named
from tenants.core.document import canonical
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]
JSON = "application/json"
V1 = "/api/v1"


def part(kind: Any, name: str) -> Any:
    return named(selectors.current_document(), kind)[name]


def test_a_token_opens_the_api_as_its_owner(people: dict[str, Any]) -> None:
    _, token = services.renew_token("ada", actor=builders.ROOT)
    client = Client(headers={"authorization": f"Token {token}"})
    assert [each["name"] for each in client.get(f"{V1}/tenants/").json()["results"]][:2] == [
        "acme",
        "globex",
    ]
    assert Client(headers={"authorization": "Token no"}).get(f"{V1}/tenants/").status_code == 401


@pytest.mark.parametrize(
    "address",
    [
        "tenants/acme",
        "applications/acme/support-bot",
        "tiers/gold",
        "lanes/async-batch",
        "pools/demo-chat",
        "pools/org/code-7b",
    ],
)
def test_what_was_read_can_be_put_back(admin: Client, address: str) -> None:
    read = admin.get(f"{V1}/{address}/")
    put = admin.put(
        f"{V1}/{address}/", read.json(), JSON, headers={"If-Match": read.headers["etag"]}
    )
    assert put.status_code == 200, put.json()
    assert put.json() == read.json()
    assert put.headers["etag"] == read.headers["etag"]
    assert selectors.current_revision() == 1


def test_put_replaces_and_patch_merges(admin: Client) -> None:
    page, any_ = f"{V1}/tenants/initech/", {"If-Match": "*"}
    admin.patch(page, {"limits": {"max_queued": 9}}, JSON, headers=any_)
    assert part("tenant", "initech").limits.max_running == 8
    admin.put(
        page, {"name": "initech", "tier": "bronze", "limits": {"max_queued": 7}}, JSON, headers=any_
    )
    limits = part("tenant", "initech").limits
    assert (limits.max_running, limits.max_queued) == (None, 7)
    assert part("tenant", "initech").tier == "bronze"


def test_an_edit_needs_the_state_that_it_has_seen(admin: Client) -> None:
    page = f"{V1}/tenants/acme/"
    seen = admin.get(page).headers["etag"]
    assert admin.patch(page, {"weight": 2}, JSON).status_code == 428
    services.edit_object("tenant", "acme", {"weight": 5}, actor=builders.ROOT)
    late = admin.patch(page, {"weight": 2}, JSON, headers={"If-Match": seen})
    assert late.status_code == 412
    assert part("tenant", "acme").weight == 5
    now = admin.get(page).headers["etag"]
    assert admin.patch(page, {"weight": 2}, JSON, headers={"If-Match": now}).status_code == 200


def test_a_reason_stands_in_the_audit(admin: Client) -> None:
    admin.patch(
        f"{V1}/tenants/acme/?reason=They+grew", {"weight": 2}, JSON, headers={"If-Match": "*"}
    )
    entry = admin.get(f"{V1}/audit/?kind=tenant&name=acme").json()["results"][0]
    assert (entry["actor"], entry["source"], entry["field"]) == ("ada", "api", "weight")
    assert (entry["old"], entry["new"], entry["reason"]) == (8, 2, "They grew")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"wieght": 2}, "wieght"),
        ({"weight": -1}, "weight"),
        ({"weight": "4"}, "weight"),
        ({"limits": {"max_runing": 2}}, "limits.max_runing"),
        ({"lane": "nowhere"}, "lane"),
        ({"applications": []}, "applications"),
    ],
)
def test_a_wrong_field_is_named(admin: Client, fields: dict[str, Any], field: str) -> None:
    answer = admin.patch(f"{V1}/tenants/acme/", fields, JSON, headers={"If-Match": "*"})
    assert answer.status_code == 400
    assert field in [error["field"] for error in answer.json()["errors"]]
    assert selectors.current_revision() == 1


@pytest.mark.parametrize("body", ["[]", "3", "null", "{", "NaN"])
def test_what_is_no_object_is_refused(admin: Client, body: str) -> None:
    answer = admin.post(f"{V1}/tenants/", body, JSON)
    assert answer.status_code == 400
    assert set(answer.json()) == {"detail", "errors"}


@pytest.mark.parametrize("body", ["[" * 100_000, '{"name":' * 20_000])
@pytest.mark.parametrize("page", ["tenants", "keys", "policy/apply"])
def test_a_body_that_is_nested_too_deeply_is_refused(admin: Client, page: str, body: str) -> None:
    answer = admin.post(f"{V1}/{page}/", body, JSON, headers={"If-Match": "*"})
    assert (answer.status_code, answer.json()["detail"]) == (400, "the body is nested too deeply")


@pytest.mark.parametrize("page", ["usage/records", "usage/summary", "audit"])
@pytest.mark.parametrize(
    "query",
    [
        "since=0001-01-01T00:00:00%2B23:00",
        "until=9999-12-31T23:59:59-23:00",
        "until=0001-01-01",
        "since=2026-13-45",
    ],
)
def test_a_time_that_no_calendar_holds_is_refused(admin: Client, page: str, query: str) -> None:
    answer = admin.get(f"{V1}/{page}/?{query}")
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["field"] == query[:5]


@pytest.mark.parametrize("page", ["usage/records", "policy/history", "audit"])
@pytest.mark.parametrize("position", ["\0", "soon", "9" * 5000])
def test_a_cursor_that_was_made_up_leads_nowhere(admin: Client, page: str, position: str) -> None:
    cursor = b64encode(urlencode({"p": position}).encode()).decode()
    answer = admin.get(f"{V1}/{page}/", {"cursor": cursor})
    assert answer.status_code == 404
    assert answer.json() == {"detail": "Invalid cursor", "errors": []}


def test_objects_are_made_and_deleted(admin: Client) -> None:
    made = admin.post(f"{V1}/tenants/", {"name": "wayne", "tier": "gold"}, JSON)
    assert (made.status_code, made.headers["location"]) == (201, f"{V1}/tenants/wayne/")
    made = admin.post(f"{V1}/applications/", {"tenant": "wayne", "name": "bat"}, JSON)
    assert made.headers["location"] == f"{V1}/applications/wayne/bat/"
    gone = admin.delete(f"{V1}/tenants/wayne/", headers={"If-Match": "*"})
    assert gone.status_code == 204
    assert admin.get(f"{V1}/tenants/wayne/").status_code == 404


def test_a_budget_is_changed_through_its_owner(admin: Client) -> None:
    page = f"{V1}/budgets/tier:gold/hourly/"
    seen = admin.get(page)
    answer = admin.patch(page, {"cost": 7}, JSON, headers={"If-Match": seen.headers["etag"]})
    assert answer.json()["cost"] == 7
    assert [each.cost for each in part("tier", "gold").budgets] == [200_000, 7]
    late = admin.patch(page, {"cost": 8}, JSON, headers={"If-Match": seen.headers["etag"]})
    assert late.status_code == 412


def test_keys_are_made_rotated_and_revoked(admin: Client) -> None:
    made = admin.post(f"{V1}/keys/", {"tenant": "acme", "application": "nightly"}, JSON)
    assert made.status_code == 201
    assert made.json()["key"].startswith(f"fl_{made.json()['id']}_")
    page = f"{V1}/keys/{made.json()['id']}/"
    assert "key" not in admin.get(page).json()
    turned = admin.post(f"{page}rotate/", {"grace_hours": 1.5}, JSON)
    assert turned.json()["key"] != made.json()["key"]
    assert admin.post(f"{page}revoke/", {}, JSON).json()["state"] == "revoked"
    assert admin.post(f"{page}rotate/", {}, JSON).status_code == 400


def test_a_keys_budgets_are_changed_and_its_expiry_stays(admin: Client) -> None:
    made = admin.post(f"{V1}/keys/", {"tenant": "acme", "expires_days": 3}, JSON).json()
    page = f"{V1}/keys/{made['id']}/"
    first = admin.get(page)
    own = [{"name": "hourly", "kind": "sustained", "cost": 5, "period": "hour"}]
    seen = {"If-Match": first.headers["etag"]}
    changed = admin.patch(page, {"budgets": own, "reason": "a pilot"}, JSON, headers=seen)
    assert [each["cost"] for each in changed.json()["budgets"]] == [5]
    assert changed.json()["expires_at"] == made["expires_at"]
    assert changed.headers["etag"] == admin.get(page).headers["etag"] != first.headers["etag"]
    assert admin.patch(page, {"budgets": []}, JSON, headers=seen).status_code == 412
    now = {"If-Match": changed.headers["etag"]}
    twice = admin.patch(page, {"budgets": own * 2}, JSON, headers=now)
    assert (twice.status_code, "given twice" in twice.content.decode()) == (400, True)
    nothing = admin.patch(page, {"reason": "none"}, JSON, headers=now)
    assert (nothing.status_code, "budgets, or both" in nothing.content.decode()) == (400, True)
    never = admin.patch(page, {"expires_days": None, "budgets": []}, JSON, headers=now).json()
    assert (never["expires_at"], never["budgets"]) == (None, [])
    fields = [each["field"] for each in admin.get(f"{V1}/audit/?kind=key").json()["results"]]
    assert fields == ["budgets", "expires_at", "budgets", ""]


def test_unknown_fields_of_an_order_are_named(admin: Client) -> None:
    answer = admin.post(f"{V1}/keys/", {"tenant": "acme", "expires": 3}, JSON)
    assert answer.status_code == 400
    assert [error["field"] for error in answer.json()["errors"]] == ["expires"]


def test_the_policy_goes_out_as_yaml_and_comes_back(admin: Client) -> None:
    text = admin.get(f"{V1}/policy/?format=yaml").content.decode()
    same = admin.post(f"{V1}/policy/diff/", {"document": text}, JSON)
    assert same.json()["changes"] == []
    other = {"document": text.replace("weight: 8", "weight: 9"), "reason": "file"}
    assert admin.post(f"{V1}/policy/apply/", other, JSON).status_code == 428
    applied = admin.post(f"{V1}/policy/apply/", other, JSON, headers={"If-Match": '"1"'})
    assert (applied.json()["revision"], applied.json()["created"]) == (2, True)
    assert (
        admin.post(f"{V1}/policy/apply/", other, JSON, headers={"If-Match": '"1"'}).status_code
        == 412
    )
    assert admin.get(f"{V1}/policy/history/").json()["results"][0]["reason"] == "file"
    assert admin.get(f"{V1}/policy/history/2/").json()["document"]["tenants"][0]["weight"] == 9
    back = admin.post(f"{V1}/policy/rollback/", {"revision": 1}, JSON, headers={"If-Match": '"2"'})
    assert back.json()["revision"] == 3
    assert part("tenant", "acme").weight == 8


def test_a_wrong_policy_is_refused_with_the_line(admin: Client) -> None:
    answer = admin.post(f"{V1}/policy/diff/", {"document": "version: 1\nlanse: []\n"}, JSON)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["line"] == 2


def test_records_come_page_by_page_in_order(admin: Client) -> None:
    until = datetime(2026, 11, 29, 12, tzinfo=UTC)
    count = builders.seed_usage(until, hours=0.5)
    address, seen = f"{V1}/usage/records/?limit=100", []
    while address:
        page = admin.get(address).json()
        seen += page["results"]
        address = page["next"]
    assert len({record["request_id"] for record in seen}) == len(seen) == count
    assert [r["at"] for r in seen] == sorted(r["at"] for r in seen)
    some = admin.get(f"{V1}/usage/records/?tenant=acme&since=2026-11-29T11:50:00Z").json()[
        "results"
    ]
    assert some
    assert all(r["tenant"] == "acme" and r["at"] >= "2026-11-29T11:50" for r in some)


def test_a_tenants_people_read_their_own_usage_only(as_: Callable[[str], Client]) -> None:
    builders.seed_usage(datetime(2026, 11, 29, 12, tzinfo=UTC), hours=0.2)
    for role, own in (("tenant-viewer", "acme"), ("outsider", "globex")):
        client = as_(role)
        records = client.get(f"{V1}/usage/records/").json()["results"]
        assert {record["tenant"] for record in records} == {own}
        span = "since=2026-11-29T00:00:00Z&until=2026-11-30T00:00:00Z"
        summary = client.get(f"{V1}/usage/summary/?{span}").json()["results"]
        assert [share["name"] for share in summary] == [own]
        assert client.get(f"{V1}/usage/records/?tenant=hooli").status_code == 404
        assert client.get(f"{V1}/usage/summary/?tenant=hooli").status_code == 404


def test_a_time_that_is_none_is_refused(admin: Client) -> None:
    answer = admin.get(f"{V1}/usage/records/?since=yesterday")
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["field"] == "since"


def test_live_state_is_what_gateways_wrote_last(admin: Client) -> None:
    assert admin.get(f"{V1}/live/").json() == {"gateways": []}
    builders.seed_samples(minutes=0)
    assert admin.get(f"{V1}/live/").json()["gateways"][0]["gateway"] == "host-a:4711"


def test_the_schema_is_openapi_3_1_and_names_every_address(admin: Client) -> None:
    schema = admin.get("/api/schema/?format=json").json()
    assert schema["openapi"].startswith("3.1")
    assert "/api/v1/tenants/{name}/" in schema["paths"]
    assert schema["components"]["schemas"]["Tenant"]["additionalProperties"] is False
    ids = [call["operationId"] for path in schema["paths"].values() for call in path.values()]
    assert len(ids) == len(set(ids)) > 40


def test_the_policy_reads_the_same_by_api_as_by_command(admin: Client) -> None:
    answer = admin.get(f"{V1}/policy/")
    assert answer.json() == canonical(selectors.current_document())
    assert answer.headers["etag"] == '"1"'
