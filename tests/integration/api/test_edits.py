"""Edits by the API: one revision for many objects, one change taken back, budgets, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from tenants import selectors, services
from tenants.core.diff import named
from tenants.models import ApiKey
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]
JSON = "application/json"
V1 = "/api/v1"
ANY = {"If-Match": "*"}


def part(kind: Any, name: str) -> Any:
    return named(selectors.current_document(), kind)[name]


class TestBulk:
    def test_many_tenants_change_as_one_revision(self, admin: Client) -> None:
        etag = admin.get(f"{V1}/policy/").headers["etag"]
        order = {
            "reason": "Quarter's end",
            "tenants": [
                {"name": "acme", "changes": {"weight": 3}},
                {"name": "globex", "changes": {"enabled": False, "limits": {"max_running": 2}}},
            ],
        }
        answer = admin.post(f"{V1}/tenants/bulk/", order, JSON, headers={"If-Match": etag})
        assert answer.json()["revision"] == 2
        assert part("tenant", "acme").weight == 3
        assert part("tenant", "globex").limits.max_running == 2
        entries = admin.get(f"{V1}/audit/?revision=2").json()["results"]
        assert {entry["reason"] for entry in entries} == {"Quarter's end"}
        assert len(entries) == 3
        late = admin.post(f"{V1}/tenants/bulk/", order, JSON, headers={"If-Match": etag})
        assert late.status_code == 412
        assert admin.post(f"{V1}/tenants/bulk/", order, JSON).status_code == 428

    @pytest.mark.parametrize(
        ("tenants", "status", "field"),
        [
            ([{"name": "acme", "changes": {"wieght": 3}}], 400, "tenants[acme].wieght"),
            ([{"name": "nobody", "changes": {}}], 404, None),
            ([{"name": "acme", "changes": {}}] * 2, 400, "tenants"),
            ([{"name": "acme", "change": {}}], 400, "tenants.1.changes"),
            (
                [{"name": "acme", "changes": {"applications": []}}],
                400,
                "tenants[acme].applications",
            ),
            ([], 400, "tenants"),
        ],
    )
    def test_all_or_none(
        self, admin: Client, tenants: list[Any], status: int, field: str | None
    ) -> None:
        order = {"tenants": [{"name": "globex", "changes": {"weight": 7}}, *tenants]}
        if not tenants:
            order = {"tenants": []}
        answer = admin.post(f"{V1}/tenants/bulk/", order, JSON, headers=ANY)
        assert answer.status_code == status
        assert field in [error["field"] for error in answer.json()["errors"]] or field is None
        assert selectors.current_revision() == 1

    def test_a_tenant_may_be_called_bulk(self, admin: Client) -> None:
        admin.post(f"{V1}/tenants/", {"name": "bulk", "tier": "gold"}, JSON)
        assert admin.get(f"{V1}/tenants/bulk/").json()["name"] == "bulk"
        changed = admin.patch(f"{V1}/tenants/bulk/", {"weight": 2}, JSON, headers=ANY)
        assert changed.json()["weight"] == 2

    def test_keys_are_revoked_all_or_none(
        self, admin: Client, as_: Callable[[str], Client]
    ) -> None:
        ids = [services.create_key(t, actor=builders.ROOT)[0].public_id for t in ("acme", "globex")]
        page = f"{V1}/keys/bulk/revoke/"
        assert as_("tenant-admin").post(page, {"ids": ids}, JSON).status_code == 404
        assert admin.post(page, {"ids": [*ids, "nosuchkey234"]}, JSON).status_code == 404
        assert set(ApiKey.objects.values_list("revoked_at", flat=True)) == {None}
        told = admin.post(page, {"ids": ids, "reason": "Leaked"}, JSON).json()["results"]
        assert [(key["id"], key["state"]) for key in told] == [(each, "revoked") for each in ids]


class TestTakingOneRevisionBack:
    def test_later_changes_stay(self, admin: Client) -> None:
        services.edit_object("tenant", "acme", {"weight": 2}, actor=builders.ROOT)
        services.edit_object("tenant", "globex", {"weight": 3}, actor=builders.ROOT)
        order = {"revision": 2, "dry_run": True}
        seen = admin.post(f"{V1}/policy/revert/", order, JSON, headers={"If-Match": '"3"'})
        assert [(c["name"], c["new"]) for c in seen.json()["changes"]] == [("acme", 8)]
        assert seen.json()["created"] is False
        order = {"revision": 2}
        done = admin.post(f"{V1}/policy/revert/", order, JSON, headers={"If-Match": '"3"'})
        assert (done.json()["revision"], done.headers["etag"]) == (4, '"4"')
        assert (part("tenant", "acme").weight, part("tenant", "globex").weight) == (8, 3)
        assert selectors.history(1)[0].reason == "Revert revision 2"
        late = admin.post(f"{V1}/policy/revert/", order, JSON, headers={"If-Match": '"3"'})
        assert late.status_code == 412

    def test_where_a_later_one_changed_the_same_field_the_caller_chooses(
        self, admin: Client
    ) -> None:
        services.edit_object("tenant", "acme", {"weight": 2}, actor=builders.ROOT)
        services.edit_object("tenant", "acme", {"weight": 5}, actor=builders.ROOT)
        asked = admin.post(f"{V1}/policy/revert/", {"revision": 2}, JSON, headers=ANY)
        assert asked.status_code == 409
        (error,) = asked.json()["errors"]
        assert (error["field"], error["value"]) == ("tenant acme weight", 5)
        assert "say in keep which one holds" in error["message"]
        order = {"revision": 2, "keep": {error["field"]: "yours"}}
        admin.post(f"{V1}/policy/revert/", order, JSON, headers=ANY)
        assert part("tenant", "acme").weight == 8


class TestBudgets:
    BODY = {"name": "own", "kind": "sustained", "cost": 5, "period": "day"}

    @pytest.mark.parametrize(
        ("kind", "owner"), [("tier", "gold"), ("tenant", "acme"), ("application", "acme/nightly")]
    )
    def test_one_is_made_changed_and_taken_away(self, admin: Client, kind: str, owner: str) -> None:
        order = {**self.BODY, "owner_kind": kind, "owner": owner}
        made = admin.post(f"{V1}/budgets/", order, JSON)
        page = f"{V1}/budgets/{kind}:{owner}/own/"
        assert (made.status_code, made.json()["id"]) == (201, f"{kind}:{owner}/own")
        body = admin.get(page).json() | {"cost": 6}
        assert admin.patch(page, body, JSON).status_code == 428
        assert admin.patch(page, body, JSON, headers=ANY).json()["cost"] == 6
        etag = {"If-Match": admin.get(page).headers["etag"]}
        services.edit_object("tier", "gold", {"weight": 3}, actor=builders.ROOT)
        assert admin.delete(page, headers=etag).status_code == (412 if kind == "tier" else 204)
        if kind == "tier":
            assert admin.delete(page, headers=ANY).status_code == 204
        assert admin.get(page).status_code == 404

    @pytest.mark.parametrize(
        ("order", "field"),
        [
            ({"owner_kind": "key", "owner": "acme"}, "owner_kind"),
            ({"owner_kind": "tier", "owner": "gold", "name": "hourly"}, "name"),
            ({"owner_kind": "tier", "owner": "gold", "perid": "day"}, "budgets[own].perid"),
        ],
    )
    def test_a_wrong_one_is_refused(self, admin: Client, order: dict[str, Any], field: str) -> None:
        answer = admin.post(f"{V1}/budgets/", self.BODY | order, JSON)
        assert answer.status_code == 400
        assert field in [error["field"] for error in answer.json()["errors"]]

    def test_a_budget_keeps_its_owner(self, admin: Client) -> None:
        page = f"{V1}/budgets/tier:gold/hourly/"
        answer = admin.patch(page, {"owner": "bronze"}, JSON, headers=ANY)
        assert answer.json()["errors"][0]["field"] == "owner"


def test_an_application_keeps_its_tenant(admin: Client) -> None:
    page = f"{V1}/applications/acme/nightly/"
    answer = admin.patch(page, {"tenant": "globex"}, JSON, headers=ANY)
    assert answer.json()["errors"][0]["field"] == "tenant"


def test_a_diff_tells_what_runs_now_would_feel(admin: Client) -> None:
    policy = builders.policy()
    policy["lanes"][0]["reserved_share"] = 0.65
    told = admin.post(f"{V1}/policy/diff/", {"document": policy}, JSON).json()
    assert told["warnings"][0]["level"] == "warning"
    assert "Reserved shares add up to 95%" in told["warnings"][0]["message"]


def test_the_files_schema_is_served(admin: Client) -> None:
    schema = admin.get(f"{V1}/policy/schema/").json()
    assert schema["$schema"].endswith("2020-12/schema")
    assert schema["$defs"]["Tenant"]["additionalProperties"] is False


ORDERS = [
    ("keys/", {"tenant": "acme"}),
    ("keys/bulk/revoke/", {"ids": ["x"]}),
    ("users/", {"username": "x", "role": "operator"}),
    ("tokens/", {"name": "x", "role": "operator"}),
    ("tenants/", {"name": "x", "tier": "gold"}),
    ("applications/", {"tenant": "acme", "name": "x"}),
    ("tiers/", {"name": "x", "lane": "async-batch"}),
    ("lanes/", {"name": "x", "rank": 9}),
    ("pools/", {"model": "x", "endpoints": [{"url": "http://127.0.0.1:1/v1"}]}),
    ("budgets/", {**TestBudgets.BODY, "owner_kind": "tier", "owner": "gold"}),
    ("policy/diff/", {"document": {"version": 1}}),
    ("policy/apply/", {"document": {"version": 1}}),
    ("policy/rollback/", {"revision": 0}),
    ("policy/revert/", {"revision": 1}),
    ("tenants/bulk/", {"tenants": [{"name": "acme", "changes": {}}]}),
    ("simulations/", {"workload": "on-off"}),
]


@pytest.mark.parametrize(("page", "order"), ORDERS, ids=[page for page, _ in ORDERS])
def test_an_unknown_field_is_refused_by_name(
    admin: Client, page: str, order: dict[str, Any]
) -> None:
    answer = admin.post(f"{V1}/{page}", {**order, "colour": "red"}, JSON, headers=ANY)
    assert answer.status_code == 400
    (error,) = answer.json()["errors"]
    assert error["field"].rpartition(".")[2] == "colour"
    assert "known: " in error["message"] or "allowed: " in error["message"]


def test_a_slip_in_the_query_of_an_edit_is_refused(admin: Client) -> None:
    answer = admin.patch(f"{V1}/tenants/acme/?resaon=x", {"weight": 2}, JSON, headers=ANY)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "resaon")
    assert selectors.current_revision() == 1
