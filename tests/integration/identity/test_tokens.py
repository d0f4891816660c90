"""Tokens for the admin API: told once, kept as digests, and they end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from tenants import services
from tenants.models import AccessToken, AuditEntry
from tenants.services import Actor
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("people")]
V1 = "/api/v1"


def with_token(text: str) -> Client:
    return Client(headers={"authorization": f"Token {text}"})


def test_a_token_is_stored_nowhere(ada: Actor) -> None:
    _, text = services.create_service_token("ci", "operator", actor=ada)
    secret = text.rpartition("_")[2]
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT * FROM "{table}"')
            assert not [row for row in cursor.fetchall() if secret in repr(row)], table


def test_an_expired_token_is_refused_with_its_moment(ada: Actor) -> None:
    token, text = services.create_service_token("ci", "operator", actor=ada)
    assert with_token(text).get(f"{V1}/tenants/").status_code == 200
    AccessToken.objects.filter(pk=token.pk).update(expires_at=timezone.now() - timedelta(days=1))
    answer = with_token(text).get(f"{V1}/tenants/")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Token"
    assert "expired on" in answer.json()["detail"]
    assert token.masked in answer.json()["detail"]


def test_a_revoked_token_is_refused_and_says_so(ada: Actor) -> None:
    token, text = services.create_service_token("ci", "operator", actor=ada)
    for _ in range(2):
        services.revoke_token(token.public_id, actor=ada, reason="leaked")
    answer = with_token(text).get(f"{V1}/tenants/")
    assert (answer.status_code, "was revoked" in answer.json()["detail"]) == (401, True)
    assert AuditEntry.objects.filter(kind="token", name="ci", reason="leaked").count() == 1


def test_a_service_token_has_a_role_and_a_tenant_of_its_own(ada: Actor) -> None:
    _, text = services.create_service_token("acme-ci", "tenant-admin", "acme", actor=ada)
    client = with_token(text)
    mine, _ = services.create_key("acme", actor=builders.ROOT)
    services.create_key("globex", actor=builders.ROOT)
    keys = client.get(f"{V1}/keys/").json()
    assert mine.public_id in repr(keys)
    assert "globex" not in repr(keys)
    assert client.get(f"{V1}/tenants/").status_code == 403
    refused = client.post(f"{V1}/keys/", {"tenant": "globex"}, "application/json")
    assert refused.status_code == 404
    made = client.post(f"{V1}/keys/", {"tenant": "acme"}, "application/json")
    assert made.status_code == 201
    entry = AuditEntry.objects.filter(kind="key").order_by("-id").first()
    assert entry is not None
    assert (entry.actor, entry.source) == ("token:acme-ci", "api")


def test_a_personal_token_has_the_role_that_its_person_has_now(ada: Actor) -> None:
    _, text = services.renew_token("otto", actor=ada)
    assert with_token(text).get(f"{V1}/tenants/").status_code == 200
    services.set_role("otto", "tenant-viewer", "acme", actor=ada)
    assert with_token(text).get(f"{V1}/tenants/").status_code == 403
    services.set_enabled("otto", False, actor=ada)
    assert "disabled" in with_token(text).get(f"{V1}/keys/").json()["detail"]


def test_renewing_ends_the_one_before(people: dict[str, Any]) -> None:
    otto = services.actor_for(people["operator"], "page")
    _, old = services.renew_token("otto", actor=otto)
    _, new = services.renew_token("otto", 30, actor=otto)
    assert with_token(old).get(f"{V1}/tenants/").status_code == 401
    assert with_token(new).get(f"{V1}/tenants/").status_code == 200
    assert services.revoke_own_token("otto", actor=otto) is not None
    assert services.revoke_own_token("otto", actor=otto) is None
    assert with_token(new).get(f"{V1}/tenants/").status_code == 401


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": "CI"}, "takes 1 to 63 of a-z"),
        ({"name": "-ci"}, "not - at an end"),
        ({"name": "taken"}, "a token had it before"),
        ({"role": "root"}, "takes one of"),
        ({"role": "tenant-viewer"}, "needs a tenant"),
        ({"tenant": "acme"}, "takes none"),
        ({"expires_days": 0}, "more than 0 up to 3650"),
        ({"expires_days": float("nan")}, "more than 0 up to 3650"),
        ({"expires_days": 4000}, "more than 0 up to 3650"),
    ],
)
def test_a_wrong_service_token_is_not_made(ada: Actor, given: dict[str, Any], said: str) -> None:
    gone, _ = services.create_service_token("taken", "operator", actor=ada)
    services.revoke_token(gone.public_id, actor=ada)
    with pytest.raises(services.PolicyRefused, match=said):
        services.create_service_token(**{"name": "ci", "role": "operator", **given}, actor=ada)
    assert AccessToken.objects.filter(user=None).count() == 1


def test_a_token_in_use_says_when_it_was_used_last(ada: Actor) -> None:
    token, text = services.create_service_token("ci", "operator", actor=ada)
    with_token(text).get(f"{V1}/tenants/")
    token.refresh_from_db()
    assert token.last_used_at is not None
