"""Two admins edit the same thing: the second sees what changed, and overwrites nothing unseen."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tenants import selectors, services
from tenants.core.diff import named
from tests import builders
from tests.integration.console.forms import applied, filled, previewed

pytestmark = [pytest.mark.django_db, pytest.mark.store]

PAGE = "/tenants/acme/edit/"
OTTO = services.Actor("otto", "api")


def acme() -> Any:
    return named(selectors.current_document(), "tenant")["acme"]


def otto_sets(reason: str = "Their launch", **fields: Any) -> None:
    services.edit_object("tenant", "acme", fields, actor=OTTO, reason=reason)


def beside(preview: Any) -> list[tuple[str, Any, Any, Any, str]]:
    rows = preview.context["plan"].beside
    return [(row.field, row.base, row.theirs, row.yours, row.outcome) for row in rows]


def test_the_second_sees_base_theirs_and_yours_and_who_was_first(admin: Client) -> None:
    form = filled(admin.get(PAGE), weight="3", step="preview")
    otto_sets(weight=5)
    preview = admin.post(PAGE, form)
    assert beside(preview) == [("weight", 8, 5, 3, "clash")]
    text = preview.content.decode()
    for told in ("Someone else changed the same", "Revision 2</a> by otto", "Their launch"):
        assert told in text
    assert acme().weight == 5


def test_what_is_in_force_stays_unless_the_second_chooses_theirs(admin: Client) -> None:
    form = filled(admin.get(PAGE), weight="3", step="preview")
    otto_sets(weight=5)
    preview = admin.post(PAGE, form)
    assert preview.context["rows"] == []
    assert 'value="apply"' not in preview.content.decode()
    chosen = filled(preview, step="preview") | {"keep:tenant acme weight": "yours"}
    again = admin.post(PAGE, chosen)
    assert '<del class="was">5</del>' in again.content.decode()
    applied(admin, again)
    assert acme().weight == 3


def test_different_fields_of_one_tenant_are_both_kept(admin: Client) -> None:
    form = filled(admin.get(PAGE), weight="3", step="preview")
    otto_sets(timezone="UTC", limits={"max_running": 9})
    preview = admin.post(PAGE, form)
    assert ("weight", 8, 8, 3, "yours") in beside(preview)
    assert ("limits.max_running", None, 9, None, "theirs") in beside(preview)
    applied(admin, preview)
    assert (acme().weight, acme().timezone, acme().limits.max_running) == (3, "UTC", 9)


def test_a_change_between_preview_and_apply_is_seen_before_anything_is_written(
    admin: Client,
) -> None:
    preview = previewed(admin, PAGE, weight="3")
    otto_sets(weight=5)
    answer = applied(admin, preview)
    assert answer.status_code == 409
    assert "The policy was changed while you looked" in answer.content.decode()
    assert beside(answer) == [("weight", 8, 5, 3, "clash")]
    assert acme().weight == 5


def test_a_change_of_something_else_between_preview_and_apply_costs_nothing(admin: Client) -> None:
    preview = previewed(admin, PAGE, weight="3")
    services.edit_object("tenant", "globex", {"weight": 5}, actor=OTTO)
    assert "in force" in applied(admin, preview).content.decode()
    assert acme().weight == 3
    assert named(selectors.current_document(), "tenant")["globex"].weight == 5  # type: ignore[attr-defined]


def test_a_choice_that_was_not_previewed_is_shown_before_it_is_applied(admin: Client) -> None:
    form = filled(admin.get(PAGE), weight="3", timezone="UTC", step="preview")
    otto_sets(weight=5)
    preview = admin.post(PAGE, form)
    answer = applied(admin, preview, **{"keep:tenant acme weight": "yours"})
    assert "Your choices change what is applied" in answer.content.decode()
    assert acme().weight == 5
    applied(admin, answer)
    assert (acme().weight, acme().timezone) == (3, "UTC")


def test_who_edits_what_was_deleted_meanwhile_may_bring_it_back_or_leave_it(admin: Client) -> None:
    form = filled(admin.get(PAGE), weight="3", step="preview")
    services.delete_object("tenant", "acme", actor=OTTO)
    preview = admin.post(PAGE, form)
    assert [(r.field, r.theirs, r.outcome) for r in preview.context["plan"].beside] == [
        ("", None, "clash")
    ]
    back = filled(preview, step="preview") | {"keep:tenant acme": "yours"}
    applied(admin, admin.post(PAGE, back))
    assert acme().weight == 3


def test_who_deletes_what_was_changed_meanwhile_sees_that_first(admin: Client) -> None:
    page = "/tenants/stark/delete/"
    preview = admin.get(page)
    services.edit_object("tenant", "stark", {"weight": 3}, actor=OTTO)
    answer = applied(admin, preview)
    assert answer.status_code == 409
    assert "stark" in named(selectors.current_document(), "tenant")
    chosen = filled(answer, step="preview") | {"keep:tenant stark": "yours"}
    applied(admin, admin.post(page, chosen))
    assert "stark" not in named(selectors.current_document(), "tenant")


def test_the_whole_document_is_merged_too(admin: Client) -> None:
    page = "/policy/edit/"
    form = filled(admin.get(page), step="preview")
    form["text"] = form["text"].replace("weight: 8", "weight: 3")
    otto_sets(timezone="UTC")
    preview = admin.post(page, form)
    assert ("weight", 8, 8, 3, "yours") in beside(preview)
    applied(admin, preview)
    assert (acme().weight, acme().timezone) == (3, "UTC")


def test_together_two_sound_edits_can_be_wrong_and_are_told_at_the_form(admin: Client) -> None:
    page = "/lanes/interactive-critical/edit/"
    form = filled(admin.get(page), reserved_share="0.6", step="preview")
    services.edit_object("lane", "async-batch", {"reserved_share": 0.3}, actor=builders.ROOT)
    answer = admin.post(page, form)
    assert answer.status_code == 422
    assert "adds up to 1.1" in answer.content.decode()
