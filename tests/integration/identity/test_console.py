"""Users and tokens in the console, as an admin clicks through them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tenants import services
from tenants.models import AccessToken, AuditEntry
from tenants.services import Actor
from tests import builders
from tests.integration.identity.conftest import OWN, is_in, named, sign_in

pytestmark = [pytest.mark.django_db, pytest.mark.store]


def text_of(answer: Any) -> str:
    return str(answer.content.decode())


def secrets_in(answer: Any) -> list[str]:
    assert answer.headers["cache-control"].count("no-store")
    return [part.split("<")[0] for part in text_of(answer).split('class="secret" id="secret-')[1:]]


def with_token(text: str) -> Client:
    return Client(headers={"authorization": f"Token {text}"})


def told(answer: Any) -> list[str]:
    return [each.partition(">")[2] for each in secrets_in(answer)]


def test_somebody_new_gets_a_one_time_password_and_chooses_their_own(admin: Client) -> None:
    made = admin.post(
        "/new/user/",
        {"username": "nina", "role": "tenant-viewer", "tenant": "acme", "reason": "new at acme"},
    )
    password, token = told(made)
    assert AuditEntry.objects.get(reason="new at acme").new == {
        "role": "tenant-viewer",
        "tenant": "acme",
    }
    nina = Client()
    assert sign_in(nina, "nina", password).status_code == 302
    for address in ("/", "/keys/", "/account/", "/api/docs/"):
        assert nina.get(address).headers["location"] == "/account/password/", address
    refused = nina.get("/api/v1/keys/")
    assert (refused.status_code, "one-time" in refused.json()["detail"]) == (403, True)
    assert with_token(token).get("/api/v1/keys/").status_code == 200

    key_before = nina.session.session_key
    wrong = nina.post("/account/password/", {"old": password, "new": OWN, "again": "other"})
    assert "do not match" in text_of(wrong)
    chosen = nina.post("/account/password/", {"old": password, "new": OWN, "again": OWN})
    assert chosen.headers["location"] == "/account/"
    assert nina.session.session_key != key_before
    assert is_in(nina)
    assert sign_in(Client(), "nina", OWN).status_code == 302


def test_somebody_new_of_a_tenant_is_made_from_its_page(admin: Client) -> None:
    tenant = text_of(admin.get("/tenants/globex/"))
    assert 'href="/new/user/?tenant=globex">New user</a>' in tenant
    assert '<a href="/users/bob/">bob</a>' in text_of(admin.get("/tenants/globex/"))
    form = admin.get("/new/user/?tenant=globex").context["form"]
    assert (form["tenant"].value(), form["role"].value()) == ("globex", "tenant-admin")


def test_a_user_that_cannot_be_is_refused_at_the_field(admin: Client) -> None:
    answer = admin.post("/new/user/", {"username": "nina", "role": "tenant-viewer"})
    assert "needs a tenant" in text_of(answer)
    assert "already exists" in text_of(
        admin.post("/new/user/", {"username": "ada", "role": "admin"})
    )


def test_the_list_is_searched_and_filtered(admin: Client) -> None:
    def found(query: str) -> list[str]:
        page = admin.get(f"/users/?{query}").context["page"]
        return [user.username for user in page]

    services.set_enabled("bob", False, actor=builders.ROOT)
    assert found("") == ["ada", "alice", "bob", "eve", "otto", "vic"]
    assert found("q=A") == ["ada", "alice"]
    assert found("role=admin") == ["ada", "eve"]
    assert found("tenant=acme") == ["alice", "vic"]
    assert found("state=disabled") == ["bob"]
    assert found("role=none") == []
    assert "Nobody fits" in text_of(admin.get("/users/?q=nobody"))


def test_the_list_costs_the_same_for_one_page_as_for_many(
    admin: Client, django_user_model: Any
) -> None:
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as caught:
            assert admin.get("/users/").status_code == 200
        return len(caught)

    before = queries()
    django_user_model.objects.bulk_create(
        django_user_model(username=f"u{number:04}") for number in range(300)
    )
    assert queries() == before
    assert "Page 1 of 7" in text_of(admin.get("/users/"))


def test_another_role_is_given_with_a_reason(admin: Client) -> None:
    answer = admin.post("/users/otto/edit/", {"role": "admin", "tenant": "", "reason": "on call"})
    assert answer.headers["location"] == "/users/otto/"
    assert AuditEntry.objects.get(reason="on call").new == "admin"
    assert named("otto").is_superuser


def test_the_last_admin_and_oneself_are_refused_with_words(admin: Client) -> None:
    services.set_role("eve", "operator", actor=builders.ROOT)
    demoted = admin.post("/users/ada/edit/", {"role": "operator", "tenant": ""})
    assert "last admin" in text_of(demoted)
    disabled = admin.post("/users/ada/disable/")
    assert (disabled.status_code, "own account" in text_of(disabled)) == (409, True)
    assert named("ada").is_active


@pytest.mark.parametrize("step", ["disable", "password", "sign-out"])
def test_what_ends_sessions_ends_them_at_once(
    admin: Client, as_: Callable[[str], Client], step: str
) -> None:
    alice, vic = as_("tenant-admin"), as_("tenant-viewer")
    assert is_in(alice)
    assert admin.get(f"/users/alice/{step}/").status_code == 200
    assert admin.post(f"/users/alice/{step}/", {"reason": "left"}).status_code in (200, 302)
    assert not is_in(alice)
    assert is_in(vic)
    assert AuditEntry.objects.filter(name="alice", reason="left").exists()


def test_enabling_lets_in_again_but_no_session_from_before(
    admin: Client, as_: Callable[[str], Client]
) -> None:
    before = as_("tenant-admin")
    admin.post("/users/alice/disable/")
    assert sign_in(Client(), "alice", builders.PASSWORD).status_code == 200  # the form again
    admin.post("/users/alice/enable/")
    assert sign_in(Client(), "alice", builders.PASSWORD).status_code == 302
    assert not is_in(before)


def test_a_token_of_somebody_is_renewed_and_revoked(admin: Client) -> None:
    assert "stops working" in text_of(admin.get("/users/otto/token/"))
    (text,) = told(admin.post("/users/otto/token/", {"expires_days": "30", "reason": "rotation"}))
    client = with_token(text)
    assert client.get("/api/v1/tenants/").status_code == 200
    admin.post("/users/otto/revoke-token/")
    assert client.get("/api/v1/tenants/").status_code == 401


def test_service_tokens_are_made_listed_and_revoked(admin: Client) -> None:
    wrong = admin.post("/new/token/", {"name": "CI", "role": "operator", "expires_days": "30"})
    assert "takes 1 to 63" in text_of(wrong)
    (text,) = told(
        admin.post("/new/token/", {"name": "ci", "role": "operator", "expires_days": "30"})
    )
    page = text_of(admin.get("/tokens/?q=ci"))
    token = AccessToken.objects.get(name="ci")
    assert token.masked in page
    assert text not in page
    assert admin.post(f"/tokens/{token.public_id}/revoke/").status_code == 302
    assert "revoked" in text_of(admin.get("/tokens/"))
    assert admin.post("/tokens/nosuchtoken2/revoke/").status_code == 404


def test_ones_own_account_is_looked_after_by_oneself(as_: Callable[[str], Client]) -> None:
    vic, other = as_("tenant-viewer"), as_("tenant-viewer")
    assert "vic" in text_of(vic.get("/account/"))
    (text,) = told(vic.post("/account/token/", {"expires_days": "7"}))
    assert with_token(text).get("/api/v1/keys/").status_code == 200
    vic.post("/account/token/revoke/")
    assert with_token(text).get("/api/v1/keys/").status_code == 401
    assert is_in(other)
    gone = vic.post("/account/sign-out/")
    assert gone.headers["location"] == "/login/"
    assert not is_in(vic)
    assert not is_in(other)
    assert is_in(as_("tenant-viewer"))


def test_a_superuser_of_createsuperuser_is_managed_like_others(
    ada: Actor, django_user_model: Any, client: Client
) -> None:
    client.force_login(django_user_model.objects.create_superuser("su"))
    assert client.get("/users/su/").status_code == 200
    services.end_sessions("su", actor=ada)
    assert client.get("/users/").status_code == 302
    assert named("su").membership.role == "admin"
