"""What is done to an account goes through one door, which keeps an admin in and leaves a trace."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from tenants import services
from tenants.models import AuditEntry
from tenants.services import Actor
from tests.integration.identity.conftest import OWN, named

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("people")]


def last_entries(count: int = 1) -> list[tuple[str, str, Any, Any]]:
    found = AuditEntry.objects.order_by("-id")[:count]
    return [(each.name, each.field, each.old, each.new) for each in found]


def test_the_last_admin_keeps_the_role_and_the_account(ada: Actor) -> None:
    services.set_role("eve", "operator", actor=ada)
    with pytest.raises(services.PolicyRefused, match="last admin"):
        services.set_role("ada", "operator", actor=ada)
    with pytest.raises(services.PolicyRefused, match="last admin"):
        services.set_enabled("ada", False, actor=services.Actor("root", "command"))
    assert named("ada").is_superuser
    assert named("ada").is_active


def test_a_disabled_admin_does_not_count_as_one_who_is_left(ada: Actor) -> None:
    services.set_enabled("eve", False, actor=ada)
    with pytest.raises(services.PolicyRefused, match="last admin"):
        services.set_role("ada", "tenant-viewer", "acme", actor=ada)


def test_nobody_disables_themselves(ada: Actor) -> None:
    with pytest.raises(services.PolicyRefused, match="own account"):
        services.set_enabled("ada", False, actor=ada)


def test_disabling_is_audited_once_with_its_reason(ada: Actor) -> None:
    for _ in range(2):
        services.set_enabled("bob", False, actor=ada, reason="left")
    entries = AuditEntry.objects.filter(name="bob", reason="left")
    assert [(each.field, each.old, each.new) for each in entries] == [("enabled", True, False)]


def test_a_reset_password_works_once_and_stands_nowhere(ada: Actor) -> None:
    password = services.reset_password("bob", actor=ada, reason="forgotten")
    assert named("bob").check_password(password)
    assert named("bob").membership.must_change_password
    entry = AuditEntry.objects.get(reason="forgotten")
    assert (entry.field, entry.new) == ("password", "one-time")
    assert password not in repr(entry.__dict__)


def test_ones_own_password_needs_the_present_one(people: dict[str, Any]) -> None:
    bob = people["outsider"]
    me = services.actor_for(bob, "page")
    for old, new, said in (
        ("wrong", OWN, "not your present password"),
        ("a-long-password-for-tests", "a-long-password-for-tests", "differs"),
        ("a-long-password-for-tests", "short", "at least 12"),
    ):
        with pytest.raises(services.PolicyRefused, match=said):
            services.change_password(bob, old, new, actor=me)
    services.change_password(bob, "a-long-password-for-tests", OWN, actor=me)
    assert named("bob").check_password(OWN)
    assert last_entries() == [("bob", "password", "…", "…")]


@pytest.mark.parametrize("role", ["operator", "tenant-admin", "tenant-viewer"])
def test_who_is_no_admin_does_nothing_to_another_account(people: dict[str, Any], role: str) -> None:
    who = services.actor_for(people[role], "page")
    for act in (
        lambda: services.set_enabled("bob", False, actor=who),
        lambda: services.reset_password("bob", actor=who),
        lambda: services.end_sessions("bob", actor=who),
        lambda: services.require_totp("bob", True, actor=who),
        lambda: services.reset_totp("bob", actor=who),
        lambda: services.renew_token("bob", actor=who),
        lambda: services.revoke_own_token("bob", actor=who),
        lambda: services.create_service_token("ci", "tenant-viewer", "acme", actor=who),
    ):
        with pytest.raises(services.NotAllowed):
            act()


def test_nobody_who_is_not_there_is_changed(ada: Actor) -> None:
    for name in ("nobody", "BOB", "b\x00ob"):
        with pytest.raises(services.NotFound, match="no user"):
            services.set_enabled(name, False, actor=ada)


def test_a_superuser_without_a_role_of_ours_is_signed_out_for_good_when_disabled(
    people: Any, ada: Actor
) -> None:
    """As `createsuperuser` makes one: it has no membership until one is needed."""
    root = get_user_model().objects.create_superuser("root", password="long enough 1 2 3")
    browser = Client()
    browser.force_login(root)
    assert browser.get("/account/").status_code == 200
    services.set_enabled("root", False, actor=ada)
    services.set_enabled("root", True, actor=ada)
    assert browser.get("/account/").status_code == 302
