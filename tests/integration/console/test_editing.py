"""Changing the policy by page: what is saved, what is refused and where that is told."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from tenants import selectors, services
from tenants.core.diff import named
from tenants.core.document import canonical
from tenants.models import AuditEntry
from tests import builders
from tests.integration.console.forms import applied, changed, filled, previewed

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
def test_a_form_untouched_makes_no_revision(admin: Client, page: str) -> None:
    before = canonical(selectors.current_document())
    answer = admin.post(page, filled(admin.get(page), step="preview"), follow=True)
    assert "Nothing differed" in answer.content.decode()
    assert canonical(selectors.current_document()) == before
    assert selectors.current_revision() == 1


FIRST_CHOICES = {"engine": "vllm", "tokenizer__kind": "estimate"}  # a browser sends them


def test_a_pool_may_have_any_number_of_endpoints_at_once(admin: Client) -> None:
    page, urls = "/new/pool/", [f"http://10.0.0.{n}:8000/v1" for n in range(1, 7)]
    form = filled(admin.get(page), **FIRST_CHOICES)
    form |= {"endpoints-0-url": urls[0], "endpoints-1-url": urls[1]}
    more = admin.post(page, form | {"more": "endpoints"})
    assert more.status_code == 200  # nothing is judged yet, not even the name that is missing
    form = filled(more, model="big")
    assert [form[f"endpoints-{n}-url"] for n in range(6)] == [*urls[:2], "", "", "", ""]
    form |= {f"endpoints-{n}-url": url for n, url in enumerate(urls)}
    applied(admin, admin.post(page, form | {"step": "preview"}))
    assert [each.url for each in part("pool", "big").endpoints] == urls


def test_a_pool_without_endpoints_is_told_where_they_go(admin: Client) -> None:
    answer = previewed(admin, "/new/pool/", model="big", **FIRST_CHOICES)
    assert answer.status_code == 422
    text = " ".join(answer.content.decode().split())
    assert '<span class="wrong" role="alert">Endpoints is missing.</span>' in text
    assert "pools[big]" not in text


@pytest.mark.parametrize(
    ("page", "usual"),
    [
        ("/new/pool/", {"16", "60,000", "1", "2", "5", "120", "60", "600"}),
        ("/new/lane/", {"0", "1", "60"}),
        ("/new/tier/", {"1"}),
    ],
)
def test_an_empty_field_says_what_holds_then(admin: Client, page: str, usual: set[str]) -> None:
    text = admin.get(page).content.decode()
    assert set(re.findall(r"([\d,]+) when empty\.", text)) == usual


def test_a_changed_weight_is_previewed_then_in_force_and_in_the_audit(admin: Client) -> None:
    preview = previewed(admin, "/tenants/acme/edit/", weight="12.5")
    text = preview.content.decode()
    assert '<del class="was">8</del>' in text
    assert '<ins class="now">12.5</ins>' in text
    assert selectors.current_revision() == 1
    answer = applied(admin, preview, "They grew")
    assert "in force" in answer.content.decode()
    assert part("tenant", "acme").weight == 12.5
    entry = AuditEntry.objects.get(kind="tenant", name="acme", field="weight")
    assert (entry.actor, entry.source, entry.old, entry.new) == ("ada", "page", 8, 12.5)
    assert entry.reason == "They grew"


def test_an_emptied_field_falls_back_to_the_tier_and_the_preview_says_to_what(
    admin: Client,
) -> None:
    preview = previewed(admin, "/tenants/acme/edit/", weight="")
    text = preview.content.decode()
    assert '<ins class="now">4</ins>' in text
    assert "from tier gold" in text
    applied(admin, preview)
    assert part("tenant", "acme").weight is None
    assert [each.name for each in part("tenant", "acme").applications] == ["support-bot", "nightly"]


def test_an_edit_of_a_tier_tells_whom_it_reaches(admin: Client) -> None:
    text = previewed(admin, "/tiers/gold/edit/", weight="5").content.decode()
    assert "reaches 2 tenants; acme says its own" in text


def test_without_a_reason_nothing_is_applied(admin: Client) -> None:
    answer = applied(admin, previewed(admin, "/tenants/acme/edit/", weight="3"), "  ")
    assert answer.status_code == 409
    assert "Say why" in answer.content.decode()
    assert selectors.current_revision() == 1
    again = applied(admin, answer, "They shrank")
    assert again.status_code == 200
    assert part("tenant", "acme").weight == 3


def test_from_the_preview_back_to_the_form_with_what_was_typed(admin: Client) -> None:
    preview = previewed(admin, "/tenants/acme/edit/", weight="3")
    form = admin.post("/tenants/acme/edit/", filled(preview, step="form"))
    assert filled(form)["weight"] == "3"
    assert "Nothing is changed." not in form.content.decode()


def test_a_refused_value_is_told_at_its_field_and_kept(admin: Client) -> None:
    answer = previewed(admin, "/tenants/acme/edit/", weight="-3", timezone="Moon/Base")
    assert answer.status_code == 422
    errors = answer.context["sheet"].form.errors
    assert set(errors) == {"weight", "timezone"}
    assert 'value="Moon/Base"' in answer.content.decode()
    assert selectors.current_revision() == 1


def test_a_wrong_budget_is_told_in_its_row(admin: Client) -> None:
    page = "/tiers/gold/edit/"
    form = filled(admin.get(page), step="preview")
    form |= {"budgets-1-cost": "-5", "budgets-2-name": "x", "budgets-2-kind": "sustained"}
    answer = admin.post(page, form)
    rows = answer.context["sheet"].lists[0][2]
    assert "cost" in rows.forms[1].errors
    assert rows.forms[2].errors
    assert not rows.forms[0].errors


def test_budgets_are_added_and_removed(admin: Client) -> None:
    more = {
        "budgets-0-DELETE": "on",
        "budgets-2-name": "monthly",
        "budgets-2-cost": "900000",
        "budgets-2-period": "month",
    }
    preview = previewed(admin, "/tiers/gold/edit/", **more)
    assert "budgets.monthly" in preview.content.decode()
    applied(admin, preview)
    assert [each.name for each in part("tier", "gold").budgets] == ["hourly", "monthly"]


def test_shares_past_one_are_refused_with_the_sum(admin: Client) -> None:
    answer = previewed(admin, "/lanes/interactive-critical/edit/", reserved_share="0.9")
    assert answer.status_code == 422
    assert "adds up to 1.2" in answer.content.decode()


def test_a_pool_changes_between_fixed_and_learnt_capacity(admin: Client) -> None:
    page = "/pools/demo-chat/edit/"
    changed(admin, page, capacity_auto="on")
    assert part("pool", "demo-chat").capacity == "auto"
    form = filled(admin.get(page), step="preview", capacity__max_running="24")
    form.pop("capacity_auto")
    applied(admin, admin.post(page, form))
    assert part("pool", "demo-chat").capacity.max_running == 24


def test_a_price_can_be_taken_away(admin: Client) -> None:
    nothing = dict.fromkeys(
        ("price__currency", "price__input_per_million", "price__output_per_million"), ""
    )
    changed(admin, "/pools/demo-chat/edit/", **nothing)
    assert part("pool", "demo-chat").price is None


def test_objects_are_made_and_deleted(admin: Client) -> None:
    made = admin.post(
        "/new/tenant/", {"name": "wayne", "tier": "gold", "enabled": "on", "step": "preview"} | ROWS
    )
    assert "wayne" not in named(selectors.current_document(), "tenant")
    assert applied(admin, made).redirect_chain[-1][0] == "/tenants/wayne/"
    application = {"name": "bat", "weight": "2", "step": "preview"} | ROWS
    applied(admin, admin.post("/new/application/wayne/", application))
    assert part("application", "wayne/bat").weight == 2
    applied(admin, admin.get("/tenants/wayne/applications/bat/delete/"))
    assert "wayne/bat" not in named(selectors.current_document(), "application")
    gone = applied(admin, admin.get("/tenants/wayne/delete/"))
    assert gone.redirect_chain[-1][0] == "/tenants/"
    assert "wayne" not in named(selectors.current_document(), "tenant")


def test_a_name_that_exists_is_refused_at_the_name(admin: Client) -> None:
    form = {"name": "acme", "tier": "gold", "step": "preview"} | ROWS
    answer = admin.post("/new/tenant/", form)
    assert "exists already" in str(answer.context["sheet"].form.errors["name"])


def test_a_lane_that_tiers_name_is_not_deleted(admin: Client) -> None:
    answer = admin.get("/lanes/async-batch/delete/")
    assert answer.status_code == 409
    assert "there is no lane" in answer.content.decode()
    assert 'value="apply"' not in answer.content.decode()
    assert "async-batch" in named(selectors.current_document(), "lane")


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


@pytest.mark.parametrize("base", ["9" * 5000, "-1", "²", ""])
def test_a_base_that_is_no_revision_is_the_one_in_force(admin: Client, base: str) -> None:
    sent = filled(admin.get("/tenants/acme/edit/"), step="preview", weight="3")
    answer = admin.post("/tenants/acme/edit/", sent | {"base": base})
    assert 'name="base" value="1"' in answer.content.decode()


def test_the_form_of_a_tenant_shows_the_budgets_that_its_tier_gives_it(admin: Client) -> None:
    page = admin.get("/tenants/acme/edit/").content.decode()
    assert "Of the tier, unless one of the same name stands below" in page
    assert "5,000,000 units per hour, then reject" in page
    own = [{"name": "hourly", "kind": "sustained", "cost": 7, "period": "hour"}]
    services.edit_object("tenant", "acme", {"budgets": own}, actor=builders.ROOT)
    assert "5,000,000 units per hour" not in admin.get("/tenants/acme/edit/").content.decode()


def test_deleting_a_tenant_says_how_many_keys_stop(admin: Client) -> None:
    page = "/tenants/acme/delete/"
    assert "It has no keys." in admin.get(page).content.decode()
    cap = {"name": "cap", "kind": "burst", "cost": 5, "refill_per_second": 1}
    services.create_key("acme", "support-bot", budgets=[cap], actor=builders.ROOT)
    services.create_key("acme", actor=builders.ROOT)
    text = admin.get(page).content.decode()
    assert "Its 2 keys stop working at once. 1 of them has budgets of their own." in text
    page = "/tenants/acme/applications/support-bot/delete/"
    assert "Its key stops working at once." in admin.get(page).content.decode()
