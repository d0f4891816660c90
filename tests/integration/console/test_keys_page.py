"""Keys by page: found by what state they are in, given another expiry, revoked one or many."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from django.utils.html import escape

from metering.models import TouchedMinute, UsageRow
from metering.tasks import roll_up
from tenants import services
from tenants.core.snapshot import BudgetPolicy
from tenants.models import ApiKey, AuditEntry
from tenants.selectors import load_snapshot
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]


def made(tenant: str = "acme", name: str = "", days: float | None = None) -> ApiKey:
    return services.create_key(tenant, None, name, days, actor=builders.ROOT)[0]


def shown(client: Client, query: str = "") -> set[str]:
    return {key.name for key in client.get(f"/keys/?{query}").context["page"]}


@pytest.fixture
def some(people: Any) -> dict[str, ApiKey]:
    keys = {
        "new": made(name="new"),
        "soon": made(name="soon", days=5),
        "later": made("globex", name="later", days=90),
        "old": made(name="old", days=1),
        "gone": made(name="gone"),
    }
    ApiKey.objects.filter(name="old").update(expires_at=timezone.now() - timedelta(hours=1))
    services.revoke_key(keys["gone"].public_id, actor=builders.ROOT)
    return keys


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", {"new", "soon", "later", "old"}),
        ("state=active", {"new", "soon", "later"}),
        ("state=expiring+soon", {"soon"}),
        ("state=expired", {"old"}),
        ("state=revoked", {"gone"}),
        ("state=all", {"new", "soon", "later", "old", "gone"}),
        ("state=nonsense", {"new", "soon", "later", "old"}),
        ("tenant=globex", {"later"}),
        ("q=LAT", {"later"}),
    ],
)
def test_keys_are_found_by_state(
    admin: Client, some: dict[str, ApiKey], query: str, found: set[str]
) -> None:
    assert shown(admin, query) == found


def test_a_key_is_found_by_what_pages_and_logs_show_of_it(
    admin: Client, some: dict[str, ApiKey]
) -> None:
    assert shown(admin, f"q={some['later'].masked}") == {"later"}
    assert shown(admin, f"q={some['later'].public_id}") == {"later"}


def test_an_expiry_is_set_extended_and_taken_away(admin: Client, some: dict[str, ApiKey]) -> None:
    key = some["old"]
    page = f"/keys/{key.public_id}/expire/"
    assert "works again once it is extended" in admin.get(page).content.decode()
    answer = admin.post(page, {"expires_days": "10", "reason": "needed after all"}, follow=True)
    assert "expires at" in answer.content.decode()
    key.refresh_from_db()
    assert key.state == "active"
    admin.post(page, {"expires_days": ""})
    key.refresh_from_db()
    assert key.expires_at is None
    entries = AuditEntry.objects.filter(kind="key", name=key.public_id, field="expires_at")
    assert [entry.reason for entry in entries.order_by("id")] == ["needed after all", ""]


def test_an_expiry_that_is_none_is_refused(admin: Client, some: dict[str, ApiKey]) -> None:
    page = f"/keys/{some['new'].public_id}/expire/"
    assert "expires_days" in admin.post(page, {"expires_days": "0"}).context["form"].errors
    gone = f"/keys/{some['gone'].public_id}/expire/"
    assert "is revoked" in admin.post(gone, {"expires_days": "3"}).content.decode()


def budgets_form(client: Client, page: str, *rows: dict[str, Any], first: int = 0) -> Any:
    """What a browser sends that typed these rows, `first` of which stood there before."""
    sent = {"budgets-TOTAL_FORMS": len(rows), "budgets-INITIAL_FORMS": first, "reason": "a pilot"}
    for number, row in enumerate(rows):
        sent |= {f"budgets-{number}-{name}": value for name, value in row.items()}
    return sent | {"seen": client.get(page).context["seen"]}


def in_force(key: ApiKey) -> tuple[BudgetPolicy, ...]:
    keys = load_snapshot(timezone.now()).keys.values()
    return next(each.budgets for each in keys if each.id == key.public_id)


HOURLY = {"name": "hourly", "kind": "sustained", "cost": "5000", "period": "hour"}


@pytest.mark.parametrize("role", ["admin", "tenant-admin"])
def test_a_keys_budgets_are_changed_with_history(
    as_: Any, some: dict[str, ApiKey], role: str
) -> None:
    client, key = as_(role), some["new"]
    page = f"/keys/{key.public_id}/budgets/"
    burst = {"name": "burst", "kind": "burst", "cost": "100", "refill_per_second": "1"}
    answer = client.post(page, budgets_form(client, page, HOURLY, burst), follow=True)
    assert "are changed" in answer.content.decode()
    assert [b.name for b in in_force(key)] == ["hourly", "burst"]
    more = budgets_form(
        client, page, {**HOURLY, "cost": "9000"}, {**burst, "DELETE": "on"}, first=2
    )
    client.post(page, more)
    (entry,) = AuditEntry.objects.filter(kind="key", name=key.public_id, field="budgets")[:1]
    assert [part["cost"] for part in entry.old] == [5000, 100]
    assert [part["cost"] for part in entry.new] == [9000]
    assert entry.reason == "a pilot"
    before = AuditEntry.objects.count()
    client.post(page, budgets_form(client, page, {**HOURLY, "cost": "9000"}, first=1))
    assert AuditEntry.objects.count() == before  # nothing changed


def test_a_budget_that_is_wrong_or_that_another_changed_meanwhile_changes_nothing(
    admin: Client, some: dict[str, ApiKey]
) -> None:
    key = some["new"]
    page = f"/keys/{key.public_id}/budgets/"
    wrong = admin.post(page, budgets_form(admin, page, {**HOURLY, "period": ""}))
    assert (wrong.status_code, key.budgets.count()) == (422, 0)
    assert "mend what is marked" in wrong.content.decode()
    late = budgets_form(admin, page, HOURLY)
    theirs = [{"name": "daily", "kind": "sustained", "cost": 7, "period": "day"}]
    services.set_key_budgets(key.public_id, theirs, actor=builders.ROOT)
    refused = admin.post(page, late)
    assert refused.status_code == 422
    assert "Somebody else changed these budgets" in refused.content.decode()
    assert 'value="hourly"' in refused.content.decode()  # what was typed
    assert [row.name for row in key.budgets.all()] == ["daily"]
    admin.post(page, {**late, "seen": refused.context["seen"]})
    assert [row.name for row in key.budgets.all()] == ["hourly"]
    gone = f"/keys/{some['gone'].public_id}/budgets/"
    assert "is revoked" in admin.post(gone, budgets_form(admin, gone, HOURLY)).content.decode()


def test_a_tenants_admin_changes_budgets_of_its_own_keys_only(
    as_: Any, some: dict[str, ApiKey]
) -> None:
    page = f"/keys/{some['later'].public_id}/budgets/"
    assert as_("tenant-admin").get(page).status_code == 404


def test_many_are_revoked_at_once_or_none(admin: Client, some: dict[str, ApiKey]) -> None:
    chosen = [some["new"].public_id, some["later"].public_id]
    query = "&".join(f"key={each}" for each in chosen)
    page = admin.get(f"/keys/revoke/?{query}").content.decode()
    assert all(f'value="{each}"' in page for each in chosen)
    for unknown in ("nosuchkey234", "\x00", "A"):
        assert admin.post("/keys/revoke/", {"key": [*chosen, unknown]}).status_code == 404
        ids = {"ids": [*chosen, unknown]}
        assert admin.post("/api/v1/keys/bulk/revoke/", ids, "application/json").status_code == 404
    assert shown(admin, "state=revoked") == {"gone"}
    admin.post("/keys/revoke/", {"key": chosen, "reason": "leaked"})
    assert shown(admin, "state=revoked") == {"gone", "new", "later"}
    assert AuditEntry.objects.filter(field="revoked_at", reason="leaked").count() == 2


def test_a_tenants_admin_revokes_many_of_its_own_only(as_: Any, some: dict[str, ApiKey]) -> None:
    alice = as_("tenant-admin")
    both = [some["new"].public_id, some["later"].public_id]
    assert alice.post("/keys/revoke/", {"key": both}).status_code == 404
    assert ApiKey.objects.filter(revoked_at=None, public_id__in=both).count() == 2
    alice.post("/keys/revoke/", {"key": both[:1]})
    assert ApiKey.objects.filter(revoked_at=None, public_id__in=both).count() == 1


def test_choosing_none_says_what_to_do(admin: Client) -> None:
    assert "No key is chosen" in admin.get("/keys/revoke/").content.decode()
    assert admin.post("/keys/revoke/").status_code == 200


def test_when_a_key_was_used_last_comes_from_the_roll_up(
    admin: Client, some: dict[str, ApiKey]
) -> None:
    key = some["new"]
    at = timezone.now().replace(second=40, microsecond=0)
    for age in (0, 1, 90):
        moment = at - timedelta(minutes=age)
        UsageRow.objects.create(
            request_id=f"r{age}", at=moment, tenant="acme", key=key.public_id, model="demo-chat"
        )
        TouchedMinute.objects.create(minute=moment.replace(second=0))
    while roll_up():
        pass
    key.refresh_from_db()
    assert key.last_used_at == at.replace(second=0)
    assert shown(admin, "state=never+used") == {"soon", "later"}
    TouchedMinute.objects.create(minute=at.replace(second=0) - timedelta(minutes=90))
    roll_up()
    key.refresh_from_db()
    assert key.last_used_at == at.replace(second=0)


def test_a_key_is_made_for_a_tenant_that_is_typed(admin: Client) -> None:
    page = admin.get("/new/key/?tenant=acme").content.decode()
    assert '<option value="nightly">' in page
    assert '<option value="search">' not in page
    wrong = admin.post("/new/key/", {"tenant": "nobody"})
    assert "There is no tenant" in wrong.context["form"].errors["tenant"][0]
    wrong = admin.post("/new/key/", {"tenant": "acme", "application": "search"})
    assert "has no application" in wrong.context["form"].errors["application"][0]


def test_how_long_an_old_secret_still_works_is_told(admin: Client) -> None:
    key, _ = services.create_key("acme", actor=builders.ROOT)
    told = admin.post(f"/keys/{key.public_id}/rotate/", {"grace_hours": "2"}).content.decode()
    assert "accepted until" in told
    assert "old secret until" in admin.get("/keys/").content.decode()

    told = admin.post(f"/keys/{key.public_id}/rotate/", {"grace_hours": ""}).content.decode()
    assert "accepted until" in told, "the first secret's grace goes on"
    other, _ = services.create_key("acme", actor=builders.ROOT)
    told = admin.post(f"/keys/{other.public_id}/rotate/", {"grace_hours": ""}).content.decode()
    assert "refused from now on" in told


def test_a_tenants_own_people_make_keys_up_to_a_bound_and_admins_past_it(
    as_: Any, admin: Client, settings: Any
) -> None:
    settings.FAIRLANE_TENANT_KEYS = 2
    alice, gone = as_("tenant-admin"), made()
    services.revoke_key(gone.public_id, actor=builders.ROOT)
    made()
    assert alice.post("/new/key/", {"tenant": "acme", "name": "second"}).status_code == 200
    assert ApiKey.objects.filter(name="second").exists()
    page = alice.post("/new/key/", {"tenant": "acme", "name": "third"}).content.decode()
    assert "acme has 2 keys that are not revoked; its own people may make up to 2" in page
    answer = alice.post("/api/v1/keys/", {"tenant": "acme"}, "application/json")
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "tenant")
    assert ApiKey.objects.filter(revoked_at=None).count() == 2
    answer = admin.post("/api/v1/keys/", {"tenant": "acme"}, "application/json")
    assert answer.status_code == 201


@pytest.mark.parametrize("role", ["admin", "tenant-admin"])
def test_a_new_key_comes_with_its_base_url_its_models_and_calls_to_paste(
    as_: Callable[[str], Client], role: str
) -> None:
    document = builders.policy()
    document["pools"][0]["aliases"] = ["mini"]
    document["pools"].append({**document["pools"][0], "model": "other", "aliases": []})
    for tier in document["tiers"]:
        tier["models"] = ["demo*"]
    builders.apply_policy(document)
    answer = as_(role).post("/new/key/", {"tenant": "acme", "name": "new"})
    told = answer.context
    assert told["base"] == "http://testserver/v1"
    assert told["models"] == ["demo-chat", "mini"]
    curl, python = (call for _, call in told["calls"])
    address, *words = shlex.split(curl)[1:]
    assert address == "http://testserver/v1/chat/completions"
    assert f"Authorization: Bearer {told['secret']}" in words
    assert json.loads(words[-1])["model"] == "demo-chat"
    compile(python, "call", "exec")
    assert told["secret"] in python
    assert escape(curl) in answer.content.decode()
