"""People, roles and tokens by the API; what is told once is told once."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tenants import services
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]
JSON = "application/json"
V1 = "/api/v1"


def test_an_account_is_made_given_another_role_and_disabled(admin: Client) -> None:
    order = {"username": "nina", "role": "tenant-viewer", "tenant": "acme"}
    made = admin.post(f"{V1}/users/", order, JSON)
    assert made.status_code == 201
    assert {"password", "token"} < made.json().keys()
    assert made.headers["cache-control"] == "no-store"
    page = f"{V1}/users/nina/"
    read = admin.get(page)
    assert not {"password", "token"} & read.json().keys()
    seen = {"If-Match": read.headers["etag"]}
    assert admin.patch(page, {"role": "operator"}, JSON).status_code == 428
    changed = admin.patch(page, {"role": "operator", "enabled": False}, JSON, headers=seen)
    assert (changed.json()["role"], changed.json()["tenant"]) == ("operator", None)
    assert changed.json()["enabled"] is False
    assert admin.patch(page, {"enabled": True}, JSON, headers=seen).status_code == 412
    fields = [e["field"] for e in admin.get(f"{V1}/audit/?kind=user&name=nina").json()["results"]]
    assert {"role", "tenant", "enabled", ""} == set(fields)


def test_an_admin_who_is_disabled_is_refused_like_anybody_else(admin: Client) -> None:
    """R09: being blocked is asked at each call, whatever the role."""
    made = admin.post(f"{V1}/users/", {"username": "nora", "role": "admin"}, JSON).json()
    nora = Client(headers={"authorization": f"Token {made['token']}"})
    assert nora.get(f"{V1}/tenants/").status_code == 200
    page = f"{V1}/users/nora/"
    for enabled, status in ((False, 401), (True, 200)):
        changed = admin.patch(page, {"enabled": enabled}, JSON, headers={"If-Match": "*"})
        assert changed.status_code == 200
        assert nora.get(f"{V1}/tenants/").status_code == status
        order = {"name": f"t{status}", "tier": "open"}
        assert (nora.post(f"{V1}/tenants/", order, JSON).status_code == 401) is not enabled


def test_a_token_that_was_just_made_opens_the_api(admin: Client) -> None:
    order = {"name": "ci", "role": "operator", "expires_days": 7}
    made = admin.post(f"{V1}/tokens/", order, JSON).json()
    service = Client(headers={"authorization": f"Token {made['token']}"})
    assert service.get(f"{V1}/tenants/").status_code == 200
    assert service.post(f"{V1}/tokens/", order, JSON).status_code == 403
    page = f"{V1}/tokens/{made['id']}/"
    assert "token" not in admin.get(page).json()
    assert admin.post(f"{page}revoke/", {}, JSON).json()["state"] == "revoked"
    assert service.get(f"{V1}/tenants/").status_code == 401


def test_a_persons_token_is_renewed_and_ended(admin: Client) -> None:
    page = f"{V1}/users/otto/token/"
    token = admin.post(page, {"expires_days": 1}, JSON).json()["token"]
    otto = Client(headers={"authorization": f"Token {token}"})
    assert otto.get(f"{V1}/tenants/").status_code == 200
    assert admin.delete(page).status_code == 204
    assert otto.get(f"{V1}/tenants/").status_code == 401


def test_a_lost_password_and_a_lost_authenticator_are_reset(admin: Client) -> None:
    made = admin.post(f"{V1}/users/vic/password/", {"reason": "Lost"}, JSON).json()
    assert made["password"]
    assert admin.delete(f"{V1}/users/vic/totp/").status_code == 204
    assert admin.delete(f"{V1}/users/vic/sessions/").status_code == 204
    assert admin.post(f"{V1}/users/nobody/password/", {}, JSON).status_code == 404


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        ({"role": "chief"}, "role"),
        ({"role": "tenant-admin"}, "tenant"),
        ({"tenant": "acme"}, "tenant"),
        ({"role": None}, "role"),
        ({"active": False}, "active"),
        ({"enabled": "no"}, "enabled"),
    ],
)
def test_a_wrong_edit_is_refused(admin: Client, edit: dict[str, Any], field: str) -> None:
    answer = admin.patch(f"{V1}/users/otto/", edit, JSON, headers={"If-Match": "*"})
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["field"] == field


def test_the_last_admin_stays(admin: Client) -> None:
    edit = {"role": "operator"}
    answer = admin.patch(f"{V1}/users/ada/", edit, JSON, headers={"If-Match": "*"})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "role")


def test_a_key_is_let_expire(admin: Client) -> None:
    key, _ = services.create_key("acme", actor=builders.ROOT)
    page = f"{V1}/keys/{key.public_id}/"
    seen = {"If-Match": admin.get(page).headers["etag"]}
    assert admin.patch(page, {"expires_days": 3}, JSON).status_code == 428
    assert admin.patch(page, {"expires_days": 3}, JSON, headers=seen).json()["expires_at"]
    assert admin.patch(page, {"expires_days": None}, JSON, headers=seen).status_code == 412
    never = admin.patch(page, {"expires_days": None}, JSON, headers={"If-Match": "*"})
    assert never.json()["expires_at"] is None
