"""Every address of the URL conf, as everybody. A new one is covered by being there: what this
file does not name as open is expected to be closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tenants import services
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]

OPEN = {"login/", "logout/", "theme/", "assets/plotly-<str:release>.min.js"}
FOR_TENANTS = {
    "usage/",
    "keys/",
    "api/docs/",
    "api/schema/",
    "api/v1/keys/",
    "api/v1/keys/<str:public_id>/",
    "api/v1/usage/records/",
    "api/v1/usage/summary/",
}
FOR_TENANT_ADMINS = {
    "new/key/",
    "keys/<str:public_id>/rotate/",
    "keys/<str:public_id>/revoke/",
}
CHANGING = ("edit/", "delete/", "restore/", "rotate/", "revoke/")


def addresses(patterns: list[Any], prefix: str = "") -> Iterator[str]:
    for pattern in patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver) and not route.startswith("admin/"):
            yield from addresses(pattern.url_patterns, route)
        elif isinstance(pattern, URLPattern):
            yield route


ROUTES = sorted(set(addresses(get_resolver().url_patterns)))
PAGES = [route for route in ROUTES if not route.startswith("api/v1/") and route not in OPEN]
CALLS = [route for route in ROUTES if route.startswith("api/v1/")]
METHODS = ("get", "post", "put", "patch", "delete")


def address(route: str, key: str = "nosuchkey234") -> str:
    values = {
        "<str:public_id>": key,
        "<str:tenant>": "acme",
        "<int:number>": "1",
        "<str:release>": "1",
        "<path:budget_id>": "tier:gold/hourly",
    }
    if "pools/" in route:
        values["<path:name>"] = "demo-chat"
    for kind, name in (("tiers", "gold"), ("lanes", "async-batch"), ("applications", "nightly")):
        if f"{kind}/" in route:
            values["<str:name>"] = name
    values.setdefault("<str:name>", "acme")
    for placeholder, value in values.items():
        route = route.replace(placeholder, value)
    return f"/{route}"


def key_of(tenant: str) -> str:
    return services.create_key(tenant, actor=builders.ROOT)[0].public_id


def test_the_walk_finds_the_pages_and_the_api() -> None:
    assert len(PAGES) > 30
    assert len(CALLS) > 20
    assert all("<" not in address(route) for route in ROUTES)


def test_nobody_sees_a_page_without_logging_in(client: Client) -> None:
    for route in PAGES:
        if route.startswith("api/"):
            continue
        answer = client.get(address(route))
        assert (answer.status_code, answer.headers.get("location", "")[:7]) == (302, "/login/"), (
            route
        )


def test_nobody_calls_the_api_without_a_token(client: Client) -> None:
    for route in [*CALLS, "api/schema/"]:
        for method in METHODS:
            assert getattr(client, method)(address(route)).status_code == 401, (method, route)


@pytest.mark.parametrize("role", ["tenant-admin", "tenant-viewer"])
def test_a_tenants_people_open_their_own_pages_only(
    as_: Callable[[str], Client], role: str
) -> None:
    client, key = as_(role), key_of("acme")
    allowed = FOR_TENANTS | (FOR_TENANT_ADMINS if role == "tenant-admin" else set())
    for route in [*PAGES, *CALLS]:
        status = client.get(address(route, key)).status_code
        if route in allowed:
            assert status == 200, route
        elif route == "":
            assert status == 302
        else:
            assert status in (403, 404, 405), route


@pytest.mark.parametrize("role", ["tenant-admin", "tenant-viewer", "operator"])
def test_who_is_no_admin_changes_nothing_of_the_policy(
    as_: Callable[[str], Client], role: str
) -> None:
    client = as_(role)
    for route in [*PAGES, *CALLS]:
        if "keys/" in route or "key/" in route:
            continue
        for method in METHODS[1:]:
            status = getattr(client, method)(address(route), {}, "application/json").status_code
            asks_only = route == "api/v1/policy/diff/" and role == "operator"
            assert status in (302, 403, 404, 405) or asks_only, (method, route)
    assert (
        services.apply_document(builders.policy(), actor=builders.ROOT, dry_run=True).changes == []
    )


def test_an_operator_reads_everything_and_is_refused_every_form(
    as_: Callable[[str], Client],
) -> None:
    client, key = as_("operator"), key_of("acme")
    for route in PAGES:
        changes = route.startswith("new/") or route.endswith(CHANGING)
        assert client.get(address(route, key)).status_code == (403 if changes else 200), route


def test_the_outsider_learns_nothing_of_anothers_key(as_: Callable[[str], Client]) -> None:
    client, key = as_("outsider"), key_of("acme")
    for route in [*PAGES, *CALLS]:
        if "<str:public_id>" in route:
            for method in ("get", "post"):
                ask = getattr(client, method)
                theirs, nobodys = (
                    ask(address(route, each), {}, "application/json").status_code
                    for each in (key, "nosuchkey234")
                )
                assert theirs == nobodys, (method, route)
                assert theirs in (403, 404), (method, route)
    assert key not in client.get("/keys/").content.decode()
    assert client.get("/api/v1/keys/").json() == []


def test_an_account_without_a_role_sees_nothing(client: Client, django_user_model: Any) -> None:
    client.force_login(django_user_model.objects.create_user("nobody"))
    for route in PAGES:
        assert client.get(address(route)).status_code == 403, route
    for route in CALLS:
        assert client.get(address(route)).status_code == 403, route


def test_a_superuser_without_a_role_counts_as_admin(client: Client, django_user_model: Any) -> None:
    builders.apply_policy()
    client.force_login(django_user_model.objects.create_superuser("su"))
    assert client.get("/tenants/acme/edit/").status_code == 200
