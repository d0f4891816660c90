"""Every address of the URL conf, by every method, as everybody.

A new address is covered by being there: it must declare who may open it, what it declares is what
is enforced, and what is open to a tenant's people is named here a second time.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.apps import apps
from django.conf import settings
from django.test import Client

from metering.models import UsageRow
from tenants import services
from tenants.api.base import MayDoThat
from tenants.core.permissions import TABLE, can
from tenants.gate import viewer_of
from tenants.models import AccessToken, AuditEntry
from tests import builders
from tests.integration.console.routes import METHODS, PLACEHOLDER, VALUES, Route, every

pytestmark = pytest.mark.django_db
store = pytest.mark.store  # a refusal comes before the store is asked; what is read and written not

ROUTES = every()
PAGES = [route for route in ROUTES if route.kind == "page"]
CALLS = [route for route in ROUTES if route.kind == "call"]
ADMIN = [route for route in ROUTES if route.kind == "admin"]

OPEN = {
    "login/",
    "login/code/",
    "logout/",
    "theme/",
    "assets/plotly-<str:release>.min.js",
}
OWN_ACCOUNT = {route.address for route in PAGES if route.address.startswith("account/")}
FOR_TENANTS = OWN_ACCOUNT | {
    "usage/",
    "keys/",
    "api/docs/",
    "api/schema/",
    "api/v1/keys/",
    "api/v1/keys/<str:public_id>/",
    "api/v1/usage/records/",
    "api/v1/usage/summary/",
}
FOR_TENANT_ADMINS = FOR_TENANTS | {
    "new/key/",
    "keys/<str:public_id>/rotate/",
    "keys/<str:public_id>/revoke/",
    "keys/<str:public_id>/budgets/",
    "keys/<str:public_id>/expire/",
    "keys/revoke/",
    "api/v1/keys/<str:public_id>/rotate/",
    "api/v1/keys/<str:public_id>/revoke/",
    "api/v1/keys/bulk/revoke/",
}
# What the walk has none of, so that even who may is told that it is not there.
NOT_MADE = (
    "api/v1/simulations/<",
    "alerts/<",
    "alerts/destinations/<",
    "api/v1/alerts/<",
    "api/v1/alerts/destinations/<",
)

# What a walk moves by itself: sessions, sign-ins, when a token was used.
FLEETING = {"Session", "AccessAttempt", "AccessLog", "LogEntry", "AuditEntry", "ContentType"}
FLEETING_FIELDS = {"last_login", "last_used_at", "version"}


# --- What is declared ------------------------------------------------------------------------


def test_every_address_declares_who_may_open_it() -> None:
    assert [route.address for route in ROUTES if route.kind == "undeclared"] == []
    assert {route.address for route in ROUTES if route.kind == "public"} == OPEN
    assert {action for route in ROUTES for action in route.actions.values()} <= set(TABLE)
    assert len(PAGES) > 60
    assert len(CALLS) > 40
    assert len(ADMIN) > 60


def test_every_call_has_an_action_for_each_method_and_asks_the_one_gate() -> None:
    for route in CALLS:
        served = {each.upper() for each in METHODS if hasattr(route.view.cls, each)}
        assert served == set(route.actions), route.address
        assert route.view.cls.permission_classes == [MayDoThat], route.address


def test_every_placeholder_has_something_that_stands_for_it() -> None:
    known = {*VALUES, "<str:name>", "<path:name>", "<str:public_id>", "<str:token_id>"}
    for route in (*PAGES, *CALLS):
        assert set(PLACEHOLDER.findall(route.address)) <= known, route.address


@pytest.mark.parametrize(
    ("role", "named"), [("tenant-admin", FOR_TENANT_ADMINS), ("tenant-viewer", FOR_TENANTS)]
)
def test_what_is_open_to_a_tenants_people_is_named_here(role: str, named: set[str]) -> None:
    declared = {
        route.address
        for route in (*PAGES, *CALLS)
        if any(can(role, action) for action in route.actions.values())
    }
    assert declared == named


# --- What is enforced ------------------------------------------------------------------------


@pytest.fixture
def ids(people: dict[str, Any]) -> dict[str, str]:
    """acme's key, token and request, which nobody of globex may learn of; and globex's own key."""
    key, _ = services.create_key("acme", "support-bot", "widget", actor=builders.ROOT)
    services.create_key("globex", None, "globex-own", actor=builders.ROOT)
    token, _ = services.create_service_token("acme-ci", "tenant-admin", "acme", actor=builders.ROOT)
    builders.seed_usage(hours=0.1)
    return {"public_id": key.public_id, "token_id": token.public_id}


def methods_of(route: Route) -> tuple[str, ...]:
    """The gate of a page refuses before it looks at the method; of the others one will do."""
    return METHODS if route.kind == "call" else ("get", "post", "delete")


def ask(client: Client, method: str, address: str, data: Any = None, **headers: str) -> Any:
    if method == "get":
        return client.get(address, data, headers=headers)
    if address.startswith("/api/"):
        every = {"If-Match": "*", **headers}
        return getattr(client, method)(address, data or {}, "application/json", headers=every)
    return getattr(client, method)(address, data or {}, headers=headers)


def rows(leave_out: Callable[[dict[str, Any]], bool] = lambda _: False) -> dict[str, Any]:
    """Everything that is stored, but for what a walk moves by itself."""
    found = {}
    for model in apps.get_models():
        if model.__name__ not in FLEETING:
            kept = [f.attname for f in model._meta.concrete_fields if f.name not in FLEETING_FIELDS]
            values = [row for row in model._default_manager.values(*kept) if not leave_out(row)]
            found[model.__name__] = sorted(map(repr, values))
    return found


def refused(route: Route, method: str, answer: Any) -> bool:
    """A page sends a tenant's people from the overview to their own start page."""
    if route.kind == "call":
        return answer.status_code in (401, 403)
    home = route.address == "" and answer.status_code == 302
    return answer.status_code == 403 or (home and answer.headers["location"] == "/usage/")


@pytest.mark.parametrize("role", ["operator", "tenant-admin", "tenant-viewer"])
def test_a_role_is_refused_what_it_is_not_granted(
    as_: Callable[[str], Client], ids: dict[str, str], role: str
) -> None:
    client, before = as_(role), rows()
    for route in (*PAGES, *CALLS):
        for method in methods_of(route):
            action = route.actions.get(method.upper())
            if action is None and any(can(role, each) for each in route.actions.values()):
                continue  # who may open it is told that there is no such method: looked at below
            if action is None or not can(role, action):
                answer = ask(client, method, route.at(**ids))
                unknown = action is None and answer.status_code == 404
                assert unknown or refused(route, method, answer), (method, route.address)
    assert rows() == before


def test_nothing_is_changed_by_a_method_that_an_address_does_not_have(
    admin: Client, ids: dict[str, str]
) -> None:
    before = rows()
    for route in (*PAGES, *CALLS):
        for method in methods_of(route):
            if method.upper() not in route.actions:
                answer = ask(admin, method, route.at(**ids))
                # The API asks for an action before it looks for the method.
                assert answer.status_code in (403, 404, 405), (method, route.address)
    assert rows() == before


@store
@pytest.mark.parametrize("role", ["operator", "tenant-admin", "tenant-viewer"])
def test_a_role_opens_what_it_is_granted(
    as_: Callable[[str], Client], ids: dict[str, str], role: str
) -> None:
    client, before = as_(role), rows()
    for route in (*PAGES, *CALLS):
        action = route.actions.get("GET")
        if action is not None and can(role, action) and not route.address.startswith(NOT_MADE):
            answer = client.get(route.at(**ids))
            assert answer.status_code in (200, 302), (route.address, answer.status_code)
    assert {k: v for k, v in rows().items() if k != "TOTPDevice"} == {
        k: v for k, v in before.items() if k != "TOTPDevice"
    }  # to look at the page of an authenticator makes its secret


@store
def test_an_admin_opens_everything(admin: Client, ids: dict[str, str]) -> None:
    for route in (*PAGES, *CALLS, *[each for each in ADMIN if "<" not in each.address]):
        posts_only = route.kind == "call" and "GET" not in route.actions
        if posts_only or route.address.startswith(NOT_MADE):
            continue
        answer = admin.get(route.at(**ids))
        # 409: what cannot be done is shown with the reason. Django's admin only shows.
        shown = (200, 302, 409) if "add/" not in route.address else (403,)
        if route.kind == "admin" and "autocomplete" in route.address:
            shown = (403,)
        assert answer.status_code in shown, (route.address, answer.status_code)


def test_nobody_gets_anywhere_without_signing_in(client: Client, ids: dict[str, str]) -> None:
    before = rows()
    for route in ROUTES:
        for method in methods_of(route) if route.kind != "admin" else ("get", "post"):
            if route.kind == "public":
                continue
            answer = ask(client, method, at(route, ids))
            if route.kind == "call":
                assert answer.status_code == 401, (method, route.address)
            else:
                place = answer.headers.get("location", "")
                assert answer.status_code == 302, (method, route.address)
                assert place.startswith(("/login/", "/admin/login/")), (route.address, place)
    assert rows() == before


def test_an_account_without_a_role_opens_nothing(
    client: Client, ids: dict[str, str], django_user_model: Any
) -> None:
    client.force_login(django_user_model.objects.create_user("nobody"))
    before = rows()
    for route in (*PAGES, *CALLS):
        for method in methods_of(route):
            answer = ask(client, method, route.at(**ids))
            assert answer.status_code == 403, (method, route.address)
    assert rows() == before


@pytest.mark.parametrize("role", ["operator", "tenant-admin", "tenant-viewer"])
def test_djangos_admin_lets_nobody_else_in(
    as_: Callable[[str], Client], ids: dict[str, str], role: str
) -> None:
    client, before = as_(role), rows()
    for route in ADMIN:
        for method in ("get", "post"):
            if route.address in ("admin/logout/",):
                continue
            answer = ask(client, method, at(route, ids))
            place = answer.headers.get("location", "")
            assert (answer.status_code, "login" in place) == (302, True), (method, route.address)
    assert rows() == before


def at(route: Route, ids: dict[str, str]) -> str:
    if route.kind != "admin":
        return route.at(**ids)
    return f"/{PLACEHOLDER.sub('1', route.address)}"


# --- Whose objects ---------------------------------------------------------------------------

ACMES_NAMES = re.compile(r"\b(support-bot|nightly|alice|vic|acme-ci|widget)\b")
ASKED = {"tenant": "acme", "application": "support-bot", "username": "alice"}


def secrets_of_acme(ids: dict[str, str]) -> list[str]:
    requests = UsageRow.objects.filter(tenant="acme").values_list("request_id", flat=True)
    assert requests
    return [*ids.values(), *requests]


@store
@pytest.mark.parametrize("by_token", [False, True], ids=["session", "service token"])
@pytest.mark.parametrize("role", ["tenant-admin", "tenant-viewer"])
def test_an_outsider_reads_and_writes_nothing_of_another_tenant(
    people: dict[str, Any], ids: dict[str, str], role: str, by_token: bool
) -> None:
    services.set_role("bob", role, "globex", actor=builders.ROOT)
    clients = outsiders(people["outsider"], role, by_token)
    theirs, last = rows(of_bob(people["outsider"])), AuditEntry.objects.count()
    hidden, saw_own = secrets_of_acme(ids), False
    for route in CALLS if by_token else (*PAGES, *CALLS):
        for method, action in route.actions.items():
            if not can(role, action):
                continue
            for asked, headers in (({}, {}), (ASKED, {"HX-Request": "true"})):
                answer = ask(next(clients), method.lower(), at(route, ids), asked, **headers)
                where = (method, route.address, asked)
                if ids["public_id"] in at(route, ids):
                    assert answer.status_code in ((400, 404) if asked else (404,)), where
                body = body_of(answer)
                saw_own = saw_own or "globex" in body
                assert [each for each in hidden if each in body] == [], where
                if method == "GET" and not asked:  # a search shows what was searched for
                    assert ACMES_NAMES.findall(body) == [], where
    assert saw_own
    assert rows(of_bob(people["outsider"])) == theirs
    for entry in AuditEntry.objects.order_by("id")[last:]:
        assert (entry.kind, entry.name) == ("user", "bob") or entry.new["tenant"] == "globex"


def outsiders(bob: Any, role: str, by_token: bool) -> Iterator[Client]:
    """Somebody of globex for each call, signed in again where the last one has signed out."""
    if by_token:
        _, text = services.create_service_token("bobs-ci", role, "globex", actor=builders.ROOT)
        while True:
            yield Client(headers={"authorization": f"Token {text}"})
    client = Client()
    while True:
        if settings.SESSION_COOKIE_NAME not in client.cookies or not client.session.session_key:
            client = Client()
            client.force_login(bob)
        yield client
        if not client.cookies[settings.SESSION_COOKIE_NAME].value:
            client = Client()


def of_bob(bob: Any) -> Callable[[dict[str, Any]], bool]:
    """Rows that are somebody's of globex: those may change as that somebody does things."""
    viewer = viewer_of(bob)
    assert viewer is not None
    globex = apps.get_model("tenants", "Tenant").objects.get(name="globex").pk
    own_keys = set(
        apps.get_model("tenants", "ApiKey").objects.filter(tenant=globex).values_list("pk")
    )

    def own(row: dict[str, Any]) -> bool:
        return (
            row.get("user_id") == bob.pk
            or row.get("username") == "bob"
            or row.get("tenant_id") == globex
            or (row.get("key_id"),) in own_keys
        )

    return own


def body_of(answer: Any) -> str:
    """Of a stream of events that does not end, what comes first."""
    if not answer.streaming:
        return str(answer.content.decode())
    endless = answer.headers["content-type"].startswith("text/event-stream")
    most = 2 if endless else None
    if answer.is_async:
        return async_to_sync(first_of)(answer.streaming_content, most)
    return b"".join(islice(answer.streaming_content, most)).decode()


async def first_of(chunks: AsyncIterator[bytes], most: int | None) -> str:
    found = []
    async for chunk in chunks:
        found.append(chunk)
        if len(found) == most:
            break
    return b"".join(found).decode()


@store
def test_a_tenants_admin_is_not_found_everything_that_is_anothers(
    as_: Callable[[str], Client], ids: dict[str, str]
) -> None:
    """Another tenant's key is as one that is not there: the answers are the same."""
    client = as_("outsider")
    for route in (*PAGES, *CALLS):
        if "<str:public_id>" in route.address:
            for method in METHODS:
                answers = {
                    each: ask(client, method, route.at(**ids | {"public_id": each}))
                    for each in (ids["public_id"], "nosuchkey234")
                }
                theirs, nobodys = (
                    (answer.status_code, body_of(answer).replace(each, "ID"))
                    for each, answer in answers.items()
                )
                assert theirs == nobodys, (method, route.address)
                assert theirs[0] in (403, 404, 405), (method, route.address)


def test_a_superuser_without_a_role_counts_as_admin(client: Client, django_user_model: Any) -> None:
    builders.apply_policy()
    client.force_login(django_user_model.objects.create_superuser("su"))
    assert client.get("/tenants/acme/edit/").status_code == 200
    assert not AccessToken.objects.exists()
