"""Going back: a whole revision restored, or one revision's change undone on what came after it."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tenants import selectors, services
from tenants.core.diff import named
from tenants.models import PolicyRevision
from tests import builders
from tests.integration.console.forms import applied, changed, filled

pytestmark = [pytest.mark.django_db, pytest.mark.store]


def acme() -> Any:
    return named(selectors.current_document(), "tenant")["acme"]


def test_restoring_a_revision_shows_the_difference_first(admin: Client) -> None:
    services.edit_object("tenant", "acme", {"weight": 5}, actor=builders.ROOT)
    shown = admin.get("/revisions/1/restore/")
    assert '<ins class="now">8' in shown.content.decode()
    assert acme().weight == 5
    answer = applied(admin, shown)
    assert "in force" in answer.content.decode()
    assert acme().weight == 8


def test_restoring_stops_when_the_policy_was_changed_meanwhile(admin: Client) -> None:
    preview = admin.get("/revisions/0/restore/")
    services.edit_object("tenant", "acme", {"weight": 5}, actor=builders.ROOT)
    answer = applied(admin, preview)
    assert "changed while you looked" in answer.content.decode()
    assert acme().weight == 5
    assert applied(admin, answer).status_code == 200
    assert selectors.current_document().tenants == []


def test_after_an_apply_undo_is_one_click_and_one_apply_away(admin: Client) -> None:
    answer = changed(admin, "/tenants/acme/edit/", "They grew", weight="12")
    assert 'href="/revisions/2/revert/"' in answer.content.decode()
    preview = admin.get("/revisions/2/revert/")
    assert filled(preview)["reason"] == "Undo revision 2: They grew"
    done = applied(admin, preview, filled(preview)["reason"])
    assert acme().weight == 8
    assert done.redirect_chain[-1][0] == "/tenants/acme/"
    assert "Revision 2 undone." in done.content.decode()
    assert PolicyRevision.objects.get(number=3).reason == "Undo revision 2: They grew"


def test_undoing_keeps_what_came_after_it(admin: Client) -> None:
    services.edit_object("tenant", "acme", {"weight": 5}, actor=builders.ROOT)
    services.edit_object("tenant", "globex", {"weight": 6}, actor=builders.ROOT)
    services.edit_object("tenant", "acme", {"timezone": "UTC"}, actor=builders.ROOT)
    applied(admin, admin.get("/revisions/2/revert/"))
    assert (acme().weight, acme().timezone) == (8, "UTC")
    assert named(selectors.current_document(), "tenant")["globex"].weight == 6  # type: ignore[attr-defined]


def test_undoing_what_was_changed_again_shows_the_clash(admin: Client) -> None:
    for weight in (5, 6):
        services.edit_object("tenant", "acme", {"weight": weight}, actor=builders.ROOT)
    page = "/revisions/2/revert/"
    preview = admin.get(page)
    text = preview.content.decode()
    for told in ("Revision 2 set", "In force now", "Before revision 2", "changed again since"):
        assert told in text
    assert 'value="apply"' not in text
    chosen = filled(preview, step="preview") | {"keep:tenant acme weight": "yours"}
    applied(admin, admin.post(page, chosen))
    assert acme().weight == 8


def test_what_was_made_is_undone_to_nothing_and_what_was_deleted_comes_back(admin: Client) -> None:
    services.create_object("tenant", {"name": "wayne", "tier": "gold"}, actor=builders.ROOT)
    services.delete_object("tenant", "acme", actor=builders.ROOT)
    applied(admin, admin.get("/revisions/3/revert/"))
    applied(admin, admin.get("/revisions/2/revert/"))
    assert {"acme"} == {"acme", "wayne"} & set(named(selectors.current_document(), "tenant"))


def test_an_undo_that_others_stand_on_is_refused_with_the_reason(admin: Client) -> None:
    services.create_object(
        "lane", {"name": "later", "rank": 7}, actor=builders.ROOT, reason="A new lane"
    )
    services.edit_object("tier", "bronze", {"lane": "later"}, actor=builders.ROOT)
    answer = admin.get("/revisions/2/revert/")
    assert answer.status_code == 409
    assert "there is no lane" in answer.content.decode()


def test_an_undo_can_be_undone(admin: Client) -> None:
    changed(admin, "/tenants/acme/edit/", weight="12")
    applied(admin, admin.get("/revisions/2/revert/"))
    applied(admin, admin.get("/revisions/3/revert/"))
    assert acme().weight == 12


def test_what_never_was_is_not_there(admin: Client) -> None:
    for page in ("/revisions/9/revert/", "/revisions/0/revert/", "/revisions/9/restore/"):
        assert admin.get(page).status_code == 404


def test_a_revision_and_an_audit_entry_both_lead_to_the_undo(admin: Client) -> None:
    services.edit_object("tenant", "acme", {"weight": 5}, actor=builders.ROOT)
    for page in ("/audit/", "/revisions/", "/revisions/2/"):
        assert 'href="/revisions/2/revert/"' in admin.get(page).content.decode(), page


def test_the_document_is_edited_as_text_or_from_a_file(admin: Client) -> None:
    from django.core.files.uploadedfile import SimpleUploadedFile

    page = "/policy/edit/"
    form = filled(admin.get(page), step="preview")
    text = form["text"].replace("weight: 8", "weight: 3")
    wrong = admin.post(page, form | {"text": text.replace("weight: 3", "weight: -3")})
    assert wrong.status_code == 422
    assert "line " in wrong.content.decode()
    file = SimpleUploadedFile("policy.yaml", text.encode())
    preview = admin.post(page, form | {"file": file})
    assert '<ins class="now">3</ins>' in preview.content.decode()
    applied(admin, preview)
    assert acme().weight == 3


def test_a_document_of_some_megabytes_fits_into_the_page(admin: Client) -> None:
    page = "/policy/edit/"
    form = filled(admin.get(page), step="preview")
    more = "".join(f"- {{name: t{n}, tier: gold, timezone: Europe/Berlin}}\n" for n in range(1000))
    preview = admin.post(page, form | {"text": form["text"] + more + "# " + "x" * 3_000_000})
    assert preview.context["count"] == 1000
    assert "1,000 tenants" in preview.content.decode()


def test_revisions_are_paged_by_where_the_last_page_ended(admin: Client) -> None:
    for weight in range(1, 60):
        services.edit_object("tenant", "hooli", {"weight": weight + 2}, actor=builders.ROOT)
    first = admin.get("/revisions/").context["page"]
    assert [row.number for row in first.object_list][:2] == [60, 59]
    second = admin.get(f"/revisions/?{first.older}").context["page"]
    assert [row.number for row in second.object_list] == list(range(10, 0, -1))
    assert second.older == ""
    back = admin.get(f"/revisions/?{second.newer}").context["page"]
    assert [row.number for row in back.object_list] == [row.number for row in first.object_list]
    for wrong in ("before=x", "after=9999999999999999999999", "before=-1", "before="):
        assert admin.get(f"/revisions/?{wrong}").context["page"].object_list, wrong
