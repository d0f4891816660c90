"""Fields for one of thousands of names: they suggest some, and say which name they do not know."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]
FORMS = ("/new/user/", "/new/token/", "/users/alice/edit/", "/new/key/")
FILTERS = ("/", "/watch/latency/", "/keys/", "/users/", "/usage/?tenant=acme")


def suggested(client: Client, page: str, text: str) -> list[str]:
    return re.findall(r'value="([^"]*)"', client.get(page + text).content.decode())


@pytest.fixture
def thousand(people: dict[str, Any]) -> None:
    document = builders.policy()
    document["tenants"] += [{"name": f"team-{n:04}", "tier": "gold"} for n in range(1000)]
    builders.apply_policy(document)


@pytest.mark.usefixtures("thousand")
def test_no_page_holds_a_thousand_names_and_each_suggests_some(admin: Client) -> None:
    for page in (*FORMS, *FILTERS):
        text = admin.get(page).content.decode()
        assert 'hx-get="/names/tenants/"' in text, page
        assert "team-0500" not in text.partition("</form>")[0], page
    assert suggested(admin, "/names/tenants/?tenant=", "team-099") == [
        f"team-{n:04}" for n in range(990, 1000)
    ]
    assert len(suggested(admin, "/names/tenants/?tenant=", "")) == 20
    assert suggested(admin, "/names/tenants/?tenant=", "cme") == ["acme"]
    assert suggested(admin, "/names/budgets/?accounts=", "team-0007/") == [
        "tenant:team-0007/hourly"
    ]


@pytest.mark.parametrize(
    ("page", "fields"),
    [
        ("/new/user/", {"username": "zoe", "role": "tenant-viewer"}),
        ("/new/token/", {"name": "ci", "role": "tenant-viewer", "expires_days": "1"}),
        ("/users/alice/edit/", {"role": "tenant-viewer"}),
        ("/new/key/", {"name": "ci"}),
    ],
)
def test_a_mistyped_tenant_is_named_with_what_may_be_meant(
    admin: Client, page: str, fields: dict[str, str]
) -> None:
    answer = admin.post(page, {**fields, "tenant": "acmee"})
    fault = answer.context["form"].errors["tenant"][0]
    assert fault.startswith("There is no tenant 'acmee'")
    assert fault.endswith("Did you mean acme?")
    assert 'value="acmee"' in answer.content.decode()  # what was typed stays


def test_a_filter_for_a_tenant_that_is_none_says_so(admin: Client) -> None:
    for page in ("/?tenant=acmee", "/watch/throttles/?tenant=acmee", "/usage/?tenant=acmee"):
        assert "has no tenant “acmee”" in admin.get(page).content.decode()
        assert "has no tenant" not in admin.get(page.removesuffix("e")).content.decode()


def test_names_are_not_for_a_tenants_people(as_: Any) -> None:
    assert as_("tenant-admin").get("/names/tenants/").status_code == 403
    page = as_("tenant-admin").get("/new/key/").content.decode()
    assert 'value="acme"' in page
    assert "/names/" not in page
