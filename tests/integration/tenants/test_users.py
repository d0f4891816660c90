"""People have one role; tenant roles have one tenant."""

import pytest
from django.contrib.auth import authenticate, get_user_model
from django.http import HttpRequest

from tenants import services
from tenants.core.keys import digest
from tenants.models import AccessToken, AuditEntry
from tenants.services import Actor

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("policy")]


@pytest.mark.parametrize(
    ("role", "tenant"),
    [("admin", None), ("operator", None), ("tenant-admin", "acme"), ("tenant-viewer", "acme")],
)
def test_a_user_can_sign_in_and_has_a_token(role: str, tenant: str | None, alice: Actor) -> None:
    user, password, token = services.create_user("ann", role, tenant, actor=alice)
    assert authenticate(HttpRequest(), username="ann", password=password) == user
    assert AccessToken.objects.get(digest=digest(token).hex()).user == user
    member = user.membership
    assert member is not None
    assert (member.role, member.tenant and member.tenant.name) == (role, tenant)
    assert user.is_superuser is (role == "admin")


def test_a_made_user_is_audited_without_password_and_token(alice: Actor) -> None:
    _, password, token = services.create_user("ann", "tenant-admin", "acme", actor=alice)
    entry = AuditEntry.objects.get(kind="user")
    assert (entry.name, entry.new) == ("ann", {"role": "tenant-admin", "tenant": "acme"})
    assert password not in repr(entry.__dict__)
    assert token not in repr(entry.__dict__)


def test_a_given_password_is_kept(alice: Actor) -> None:
    _, password, _ = services.create_user(
        "ann", "operator", password="correct horse battery", actor=alice
    )
    assert password == "correct horse battery"
    assert authenticate(HttpRequest(), username="ann", password=password) is not None


WRONG = [
    ("ann", "root", None, None, services.PolicyRefused, "takes one of: admin, operator"),
    ("ann", "tenant-admin", None, None, services.PolicyRefused, "needs a tenant"),
    ("ann", "tenant-viewer", "", None, services.PolicyRefused, "needs a tenant"),
    ("ann", "admin", "acme", None, services.PolicyRefused, "takes none"),
    ("ann", "operator", "acme", None, services.PolicyRefused, "takes none"),
    ("ann", "tenant-admin", "nobody", None, services.NotFound, "no tenant 'nobody'"),
    ("", "admin", None, None, services.PolicyRefused, "blank"),
    ("a b", "admin", None, None, services.PolicyRefused, "valid username"),
    ("taken", "admin", None, None, services.PolicyRefused, "already exists"),
    ("ann", "admin", None, "short", services.PolicyRefused, "too short"),
]


@pytest.mark.parametrize(("name", "role", "tenant", "password", "error", "said"), WRONG)
def test_a_wrong_user_is_not_made(
    name: str,
    role: str,
    tenant: str | None,
    password: str | None,
    error: type[Exception],
    said: str,
    alice: Actor,
) -> None:
    get_user_model().objects.create_user("taken")
    with pytest.raises(error, match=said):
        services.create_user(name, role, tenant, password, actor=alice)
    assert [user.username for user in get_user_model().objects.all()] == ["taken"]
    assert not AuditEntry.objects.filter(kind="user").exists()


def test_another_role_is_one_entry_for_each_field(alice: Actor) -> None:
    services.create_user("ada", "admin", actor=alice)
    user, _, _ = services.create_user("ann", "admin", actor=alice)
    services.set_role("ann", "tenant-viewer", "acme", actor=alice, reason="moved")
    entries = AuditEntry.objects.filter(kind="user", reason="moved").order_by("id")
    assert [(entry.field, entry.old, entry.new) for entry in entries] == [
        ("role", "admin", "tenant-viewer"),
        ("tenant", None, "acme"),
    ]
    user.refresh_from_db()
    assert (user.is_staff, user.is_superuser) == (False, False)


def test_the_same_role_again_is_no_change(alice: Actor) -> None:
    services.create_user("ann", "operator", actor=alice)
    services.set_role("ann", "operator", actor=alice)
    assert AuditEntry.objects.filter(kind="user").count() == 1


def test_nobody_has_no_role_to_change(alice: Actor) -> None:
    services.create_user("ghost", "operator", actor=alice)
    for name in ("nobody", "gho\x00st"):
        with pytest.raises(services.NotFound, match="no user"):
            services.set_role(name, "admin", actor=alice)


@pytest.mark.parametrize("role", ["operator", "tenant-admin", "tenant-viewer"])
def test_only_an_admin_makes_users(role: str) -> None:
    bob = Actor("bob", "page", role=role, tenant="acme")
    with pytest.raises(services.NotAllowed):
        services.create_user("ann", "tenant-viewer", "acme", actor=bob)
    with pytest.raises(services.NotAllowed):
        services.set_role("bob", "admin", actor=bob)


def test_who_has_no_membership_may_nothing_unless_superuser() -> None:
    people = get_user_model().objects
    nobody = services.actor_for(people.create_user("nobody"), "page")
    with pytest.raises(services.NotAllowed):
        services.apply_document({"version": 1}, actor=nobody, dry_run=True)
    root = services.actor_for(people.create_superuser("root"), "page")
    assert services.apply_document({"version": 1}, actor=root).created
