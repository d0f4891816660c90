"""Django's admin shows every table and changes none, so that nothing passes by the one door."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client

from tenants.models import AuditEntry
from tenants.site import site
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]


def test_an_admin_looks_at_every_table_and_at_one_row_of_each(admin: Client) -> None:
    builders.seed_usage(hours=0.05)
    builders.seed_samples(minutes=0)
    for model in site._registry:
        page = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        assert admin.get(f"{page}?q=a").status_code == 200, page
        row = model._default_manager.first()
        if row is not None:
            assert admin.get(f"{page}{row.pk}/change/").status_code == 200, page


def test_tables_are_called_what_people_call_them(admin: Client) -> None:
    text = admin.get("/admin/").content.decode()
    for name in ("API keys", "Learnt estimates", "Usage records", "Usage by minute"):
        assert f">{name}</a>" in text
    for model in site._registry:
        plural = str(model._meta.verbose_name_plural)
        assert not plural.endswith("ss"), plural
        assert not plural.startswith("api "), plural


def test_no_table_can_be_changed_there(admin: Client) -> None:
    for model in site._registry:
        page = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        assert admin.get(f"{page}add/").status_code == 403, page
        assert admin.post(f"{page}add/").status_code == 403, page
        row = model._default_manager.first()
        if row is not None:
            assert admin.post(f"{page}{row.pk}/change/", {}).status_code == 403, page
            assert admin.post(f"{page}{row.pk}/delete/", {"post": "yes"}).status_code == 403, page
    assert AuditEntry.objects.exists()


@pytest.mark.parametrize("role", ["operator", "tenant-admin", "tenant-viewer"])
def test_nobody_else_gets_in(as_: Callable[[str], Client], role: str) -> None:
    answer = as_(role).get("/admin/tenants/tenant/")
    assert answer.status_code == 302
    assert "login" in answer.headers["location"]


def test_secrets_are_shown_nowhere(admin: Client) -> None:
    user = admin.get("/admin/auth/user/").context["cl"].result_list[0]
    assert "md5$" not in admin.get(f"/admin/auth/user/{user.pk}/change/").content.decode()
    assert admin.get("/admin/authtoken/tokenproxy/").status_code == 404
    assert admin.get("/admin/tenants/keysecret/").status_code == 404
    assert admin.get("/admin/otp_totp/totpdevice/").status_code == 404


def test_a_password_is_changed_in_the_console_where_it_leaves_a_trace(admin: Client) -> None:
    for page in ("password_change", "password_change/done"):
        assert admin.post(f"/admin/{page}/").headers["location"] == "/account/password/"
