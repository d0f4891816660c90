"""Changing the policy by page: what is saved, what is refused and where that is told."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tenants import selectors, services
from tenants.core.diff import named
from tenants.core.document import canonical
from tenants.models import AuditEntry
from tests import builders
from tests.integration.console.forms import filled

pytestmark = [pytest.mark.django_db, pytest.mark.store]

EDIT_PAGES = [
    "/tenants/acme/edit/",
    "/tenants/acme/applications/support-bot/edit/",
    "/tiers/gold/edit/",
    "/lanes/async-batch/edit/",
    "/pools/demo-chat/edit/",
    "/pools/org/code-7b/edit/",
]


def part(kind: Any, name: str) -> Any:
    return named(selectors.current_document(), kind)[name]


@pytest.mark.parametrize("page", EDIT_PAGES)
def test_saving_a_form_untouched_makes_no_revision(admin: Client, page: str) -> None:
    before = canonical(selectors.current_document())
    answer = admin.post(page, filled(admin.get(page)), follow=True)
    assert "Nothing differed" in answer.content.decode()
    assert canonical(selectors.current_document()) == before
    assert selectors.current_revision() == 1


def test_a_changed_weight_is_in_force_and_in_the_audit(admin: Client) -> None:
    page = "/tenants/acme/edit/"
    form = filled(admin.get(page), weight="12.5", reason="They grew")
    answer = admin.post(page, form, follow=True)
    assert "Revision 2 is in force" in answer.content.decode()
    assert part("tenant", "acme").weight == 12.5
    entry = AuditEntry.objects.get(kind="tenant", name="acme", field="weight")
    assert (entry.actor, entry.source, entry.old, entry.new) == ("ada", "page", 8, 12.5)
    assert entry.reason == "They grew"


def test_an_emptied_field_falls_back_to_the_tier(admin: Client) -> None:
    page = "/tenants/acme/edit/"
    admin.post(page, filled(admin.get(page), weight=""))
    assert part("tenant", "acme").weight is None
    assert [each.name for each in part("tenant", "acme").applications] == ["support-bot", "nightly"]


def test_a_refused_value_is_told_at_its_field_and_kept(admin: Client) -> None:
    page = "/tenants/acme/edit/"
    answer = admin.post(page, filled(admin.get(page), weight="-3", timezone="Moon/Base"))
    assert answer.status_code == 422
    errors = answer.context["sheet"].form.errors
    assert set(errors) == {"weight", "timezone"}
    assert 'value="Moon/Base"' in answer.content.decode()
    assert selectors.current_revision() == 1


def test_a_wrong_budget_is_told_in_its_row(admin: Client) -> None:
    page = "/tiers/gold/edit/"
    form = filled(admin.get(page))
    form |= {"budgets-1-cost": "-5", "budgets-2-name": "x", "budgets-2-kind": "sustained"}
    answer = admin.post(page, form)
    rows = answer.context["sheet"].lists[0][2]
    assert "cost" in rows.forms[1].errors
    assert rows.forms[2].errors
    assert not rows.forms[0].errors


def test_budgets_are_added_and_removed(admin: Client) -> None:
    page = "/tiers/gold/edit/"
    form = filled(admin.get(page)) | {
        "budgets-0-DELETE": "on",
        "budgets-2-name": "monthly",
        "budgets-2-cost": "900000",
        "budgets-2-period": "month",
    }
    assert admin.post(page, form).status_code == 302
    assert [each.name for each in part("tier", "gold").budgets] == ["hourly", "monthly"]


def test_shares_past_one_are_refused_with_the_sum(admin: Client) -> None:
    page = "/lanes/interactive-critical/edit/"
    answer = admin.post(page, filled(admin.get(page), reserved_share="0.9"))
    assert answer.status_code == 422
    assert "adds up to 1.2" in answer.content.decode()


def test_a_pool_changes_between_fixed_and_learnt_capacity(admin: Client) -> None:
    page = "/pools/demo-chat/edit/"
    admin.post(page, filled(admin.get(page), capacity_auto="on"))
    assert part("pool", "demo-chat").capacity == "auto"
    form = filled(admin.get(page), capacity__max_running="24")
    form.pop("capacity_auto")
    admin.post(page, form)
    assert part("pool", "demo-chat").capacity.max_running == 24


def test_a_price_can_be_taken_away(admin: Client) -> None:
    page = "/pools/demo-chat/edit/"
    nothing = dict.fromkeys(
        ("price__currency", "price__input_per_million", "price__output_per_million"), ""
    )
    admin.post(page, filled(admin.get(page)) | nothing)
    assert part("pool", "demo-chat").price is None


def test_whoever_saves_second_sees_what_changed_and_overwrites_nothing_unseen(
    admin: Client,
) -> None:
    page = "/tenants/acme/edit/"
    form = filled(admin.get(page), weight="3")
    services.edit_object("tenant", "acme", {"weight": 5}, actor=builders.ROOT)
    answer = admin.post(page, form)
    text = answer.content.decode()
    assert answer.status_code == 409
    assert "changed by someone else" in text
    assert '<span class="now">5</span>' in text
    assert part("tenant", "acme").weight == 5
    again = filled(answer)
    assert again["weight"] == "3"
    assert admin.post(page, again).status_code == 302
    assert part("tenant", "acme").weight == 3


def test_objects_are_made_and_deleted(admin: Client) -> None:
    made = admin.post("/new/tenant/", {"name": "wayne", "tier": "gold", "enabled": "on"} | ROWS)
    assert made.headers["location"] == "/tenants/wayne/"
    admin.post("/new/application/wayne/", {"name": "bat", "weight": "2"} | ROWS)
    assert part("application", "wayne/bat").weight == 2
    page = "/tenants/wayne/applications/bat/delete/"
    assert admin.post(page, filled(admin.get(page))).status_code == 302
    page = "/tenants/wayne/delete/"
    assert admin.post(page, filled(admin.get(page))).headers["location"] == "/tenants/"
    assert "wayne" not in named(selectors.current_document(), "tenant")


def test_a_name_that_exists_is_refused_at_the_name(admin: Client) -> None:
    answer = admin.post("/new/tenant/", {"name": "acme", "tier": "gold"} | ROWS)
    assert "exists already" in str(answer.context["sheet"].form.errors["name"])


def test_a_lane_that_tiers_name_is_not_deleted(admin: Client) -> None:
    page = "/lanes/async-batch/delete/"
    answer = admin.post(page, filled(admin.get(page)))
    assert answer.status_code == 409
    assert "async-batch" in named(selectors.current_document(), "lane")


def test_restoring_a_revision_shows_the_difference_first(admin: Client) -> None:
    services.edit_object("tenant", "acme", {"weight": 5}, actor=builders.ROOT)
    page = "/revisions/1/restore/"
    shown = admin.get(page)
    assert '<ins class="now">8' in shown.content.decode()
    answer = admin.post(page, filled(shown), follow=True)
    assert "Revision 3 is in force" in answer.content.decode()
    assert part("tenant", "acme").weight == 8


def test_restoring_stops_when_the_policy_was_changed_meanwhile(admin: Client) -> None:
    page = "/revisions/0/restore/"
    form = filled(admin.get(page))
    services.edit_object("tenant", "acme", {"weight": 5}, actor=builders.ROOT)
    answer = admin.post(page, form)
    assert "changed meanwhile" in answer.content.decode()
    assert part("tenant", "acme").weight == 5


def test_a_secret_is_shown_once_and_only_its_hash_is_kept(admin: Client) -> None:
    made = admin.post("/new/key/", {"tenant": "acme", "name": "bot", "reason": "new bot"})
    secret = made.context["secret"]
    assert secret in made.content.decode()
    assert "no-store" in made.headers["cache-control"]
    for page in (
        "/keys/",
        "/tenants/acme/",
        "/audit/",
        f"/keys/{made.context['key'].public_id}/rotate/",
    ):
        assert secret not in admin.get(page).content.decode()


def test_a_key_is_rotated_with_a_grace_and_revoked(admin: Client) -> None:
    key, first = services.create_key("acme", actor=builders.ROOT)
    turned = admin.post(f"/keys/{key.public_id}/rotate/", {"grace_hours": "2"})
    assert turned.context["secret"] != first
    assert turned.context["key"].public_id == key.public_id
    admin.post(f"/keys/{key.public_id}/revoke/", {"reason": "leaked"})
    key.refresh_from_db()
    assert key.state == "revoked"


def test_a_tenants_admin_makes_keys_for_its_own_tenant_only(as_: Any) -> None:
    client = as_("tenant-admin")
    assert client.post("/new/key/", {"tenant": "globex"}).context["form"].errors["tenant"]
    assert "secret" in client.post("/new/key/", {"tenant": "acme"}).context


ROWS = {"budgets-TOTAL_FORMS": "0", "budgets-INITIAL_FORMS": "0"}
