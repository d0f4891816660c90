"""No address of Django's admin writes anything, found by walking them."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin as django_admin
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tenants import services
from tenants.models import AuditEntry
from tenants.site import Bounded, site
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]
ENDINGS = ("", "add/", "autocomplete/", "1/", "1/change/", "1/delete/", "1/history/", "1/password/")


def stored() -> dict[str, list[dict[str, Any]]]:
    """All that is in the database, but for sessions: looking at a page may touch one's own."""
    models = [model for model in apps.get_models() if model._meta.label != "sessions.Session"]
    return {m._meta.label: list(m._default_manager.order_by("pk").values()) for m in models}


def addresses() -> list[str]:
    """Those that the site has, and those that an admin of any other table would have."""
    (resolver,) = [r for r in get_resolver().url_patterns if str(r.pattern) == "admin/"]
    assert isinstance(resolver, URLResolver)
    own = [str(p.pattern) for p in resolver.url_patterns if isinstance(p, URLPattern)]
    found = [route for route in own if "(" not in route and "<" not in route]
    for model in apps.get_models():
        table = f"{model._meta.app_label}/{model._meta.model_name}/"
        found += [table + end for end in (ENDINGS if model in site._registry else ("", "add/"))]
    return [f"/admin/{route}" for route in found]


def test_nothing_is_written_by_any_method_at_any_address(admin: Client) -> None:
    builders.seed_usage(hours=0.02)
    services.create_key("acme", actor=builders.ROOT)
    before = stored()
    data = {"post": "yes", "action": "delete_selected", "_selected_action": "1", "name": "x"}
    for address in addresses():
        assert admin.post(address, data).status_code in (200, 302, 403, 404, 405), address
        if address.endswith("/1/change/"):
            assert admin.delete(address).status_code in (200, 302, 403, 405), address
    assert stored() == before


def test_what_packages_register_elsewhere_is_not_served() -> None:
    theirs = set(django_admin.site._registry) - set(site._registry)
    assert {model._meta.app_label for model in theirs} >= {"auth"}
    assert all(type(shown).__mro__[1].__name__ == "ReadOnly" for shown in site._registry.values())


def test_an_objects_history_is_the_audits(admin: Client) -> None:
    key, _ = services.create_key("acme", actor=builders.ROOT)
    answer = admin.get(f"/admin/tenants/apikey/{key.pk}/history/")
    assert answer.headers["location"] == f"/audit/?kind=key&name={key.public_id}"
    assert AuditEntry.objects.filter(kind="key", name=key.public_id).exists()


def test_lists_take_few_queries_however_many_rows(
    admin: Client, django_assert_max_num_queries: Any
) -> None:
    for _ in range(30):
        services.create_key("acme", "nightly", actor=builders.ROOT)
    for model in site._registry:
        page = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        with django_assert_max_num_queries(12):
            assert admin.get(page).status_code == 200, page


def test_no_table_is_counted_to_its_end(monkeypatch: pytest.MonkeyPatch, admin: Client) -> None:
    monkeypatch.setattr("tenants.site.MOST", 3)
    assert Bounded(AuditEntry.objects.all(), 100).count == 3
    assert admin.get("/admin/tenants/auditentry/").status_code == 200
