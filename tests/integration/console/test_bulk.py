"""Many tenants at once: chosen on the list, one preview, one revision with one reason."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tenants import selectors, services
from tenants.core.diff import named
from tenants.models import AuditEntry, PolicyRevision
from tests import builders
from tests.integration.console.forms import applied, filled

pytestmark = [pytest.mark.django_db, pytest.mark.store]

PAGE = "/bulk/tenants/"


def tenant(name: str) -> Any:
    return named(selectors.current_document(), "tenant")[name]


def chosen(admin: Client, *names: str, **typed: Any) -> Any:
    form = admin.post(PAGE, {"name": list(names)})
    return admin.post(PAGE, filled(form, step="preview", **typed))


def test_ticked_tenants_change_in_one_revision(admin: Client) -> None:
    preview = chosen(admin, "umbrella", "hooli", tier="gold", weight="3", limits__max_running="7")
    assert selectors.current_revision() == 1
    applied(admin, preview, "They moved up")
    assert [tenant(name).tier for name in ("umbrella", "hooli", "stark")] == [
        "gold",
        "gold",
        "bronze",
    ]
    assert tenant("hooli").limits.max_running == 7
    assert PolicyRevision.objects.get(number=2).reason == "They moved up"
    touched = AuditEntry.objects.filter(revision__number=2).values_list("name", flat=True)
    assert set(touched) == {"umbrella", "hooli"}


def test_all_that_match_the_filter_are_changed_whatever_is_ticked(admin: Client) -> None:
    form = admin.post(PAGE, {"matching": "hooli stark umbrella", "all": "yes", "name": "hooli"})
    preview = admin.post(PAGE, filled(form, step="preview", weight="3"))
    applied(admin, preview)
    assert [tenant(name).weight for name in ("hooli", "stark", "umbrella")] == [3, 3, 3]


def test_the_lists_buttons_suspend_and_resume_without_a_form(admin: Client) -> None:
    preview = admin.post(PAGE, {"name": ["hooli", "umbrella"], "state": "suspended"})
    assert "Suspend 2 tenants" in preview.content.decode()
    applied(admin, preview)
    assert not tenant("hooli").enabled
    assert not tenant("umbrella").enabled
    back = applied(admin, admin.post(PAGE, {"name": ["hooli"], "state": "enabled"}))
    assert back.redirect_chain[-1][0] == "/tenants/hooli/"
    assert tenant("hooli").enabled


def test_own_values_are_taken_away_so_that_the_tiers_hold(admin: Client) -> None:
    preview = chosen(admin, "acme", "hooli", inherit=["weight"])
    assert "from tier gold" in preview.content.decode()
    applied(admin, preview)
    assert (tenant("acme").weight, tenant("hooli").weight) == (None, None)


def test_what_is_left_empty_stays_as_each_has_it(admin: Client) -> None:
    applied(admin, chosen(admin, "acme", "initech", on="", limits__max_queued="9"))
    assert (tenant("acme").weight, tenant("initech").limits.max_running) == (8, 8)
    assert tenant("initech").limits.max_queued == 9


def test_a_form_that_says_nothing_or_two_things_at_once_is_told(admin: Client) -> None:
    assert "Nothing is chosen" in chosen(admin, "acme").content.decode()
    both = chosen(admin, "acme", weight="3", inherit=["weight"])
    assert both.status_code == 422
    assert "weight: given above as well" in both.content.decode()


def test_a_change_that_is_wrong_for_one_is_made_for_none(admin: Client) -> None:
    answer = chosen(admin, "acme", "hooli", tier="bronze")
    assert answer.status_code == 422
    assert "acme" in answer.content.decode()
    assert "is not among the allowed_lanes" in answer.content.decode()
    assert selectors.current_revision() == 1


def test_without_a_choice_the_list_says_what_to_do(admin: Client) -> None:
    for given in ({}, {"name": "nobody"}, {"matching": "acme"}):
        answer = admin.post(PAGE, given, follow=True)
        assert "Tick those" in answer.content.decode()


def test_two_admins_bulk_edits_are_merged(admin: Client) -> None:
    preview = chosen(admin, "acme", "hooli", weight="3")
    services.edit_object("tenant", "hooli", {"weight": 9}, actor=builders.ROOT)
    answer = applied(admin, preview)
    assert answer.status_code == 409
    assert (tenant("acme").weight, tenant("hooli").weight) == (8, 9)
    applied(admin, answer)
    assert (tenant("acme").weight, tenant("hooli").weight) == (3, 9)


def test_a_thousand_tenants_fit_into_one_edit(admin: Client) -> None:
    data = builders.policy()
    data["tenants"] += [{"name": f"t{n}", "tier": "gold"} for n in range(1000)]
    builders.apply_policy(data)
    names = " ".join(f"t{n}" for n in range(1000))
    form = admin.post(PAGE, {"matching": names, "all": "yes"})
    applied(admin, admin.post(PAGE, filled(form, step="preview", weight="3")))
    assert tenant("t999").weight == 3
    assert selectors.current_revision() == 3
