"""Revisions and audit entries only ever grow; an earlier policy can be had back."""

import pytest
from django.db import IntegrityError, transaction

from tenants import selectors, services
from tenants.core.permissions import RoleName
from tenants.models import AuditEntry, Immutable, Membership, PolicyRevision, Tenant
from tenants.services import Actor

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("policy")]


def test_a_rollback_is_a_new_revision_with_the_old_policy(alice: Actor) -> None:
    services.edit_object("tenant", "acme", {"weight": 2}, actor=alice)
    applied = services.rollback(1, actor=alice)
    assert (applied.revision, [str(change) for change in applied.changes]) == (
        3, ["tenant acme: weight: 2 → 8"]
    )  # fmt: skip
    assert selectors.current_document() == selectors.revision_document(1)
    latest = selectors.history(1)[0]
    assert latest.reason == "Roll back to revision 1"
    assert latest.parent is not None
    assert latest.parent.number == 2
    assert AuditEntry.objects.filter(revision=latest, field="weight", old=2, new=8).exists()


def test_rolling_back_to_what_is_in_force_makes_no_revision(alice: Actor) -> None:
    assert services.rollback(1, actor=alice).created is False


def test_there_is_no_way_back_to_what_never_was(alice: Actor) -> None:
    with pytest.raises(services.NotFound, match="there is no revision 9"):
        services.rollback(9, actor=alice)


def test_a_rollback_gives_a_tenant_its_keys_and_members_back(alice: Actor) -> None:
    key, _ = services.create_key("acme", "bot", actor=alice)
    member, _, _ = services.create_user("ann", "tenant-admin", "acme", actor=alice)
    before = selectors.load_snapshot().keys
    services.rollback(0, actor=alice)
    assert selectors.load_snapshot().keys == {}
    assert Membership.objects.get(user=member).tenant == Tenant.objects.get(name="acme")
    services.rollback(1, actor=alice)
    assert selectors.load_snapshot().keys == before
    assert selectors.keys("acme").get() == key


def test_every_revision_can_be_read_as_it_was(alice: Actor) -> None:
    for weight in (2, 3, 4):
        services.edit_object("tenant", "acme", {"weight": weight}, actor=alice)
    found = [selectors.revision_document(n).tenants[0].weight for n in (1, 2, 3, 4)]
    assert found == [8, 2, 3, 4]
    assert [revision.number for revision in selectors.history(2)] == [4, 3]


@pytest.mark.parametrize("kind", [PolicyRevision, AuditEntry])
def test_what_was_cannot_be_changed_or_deleted(kind: type[PolicyRevision | AuditEntry]) -> None:
    row = kind.objects.first()
    before = list(kind.objects.values())
    row.reason = "it was not me"
    for attempt in (
        row.save,
        row.delete,
        lambda: row.save(update_fields=["reason"]),
        lambda: kind.objects.update(reason="x"),
        lambda: kind.objects.all().delete(),
        lambda: kind.objects.filter(pk=row.pk).delete(),
        lambda: kind.objects.bulk_update([row], ["reason"]),
        lambda: kind.objects.update_or_create(pk=row.pk, defaults={"reason": "x"}),
    ):
        with pytest.raises(Immutable):
            attempt()
    assert list(kind.objects.values()) == before


def test_a_copy_with_the_same_key_does_not_replace_what_was() -> None:
    row = AuditEntry.objects.first()
    with pytest.raises(IntegrityError), transaction.atomic():
        AuditEntry(pk=row.pk, actor="x", source="page", kind="tier", name="y").save()


ROLES: list[tuple[RoleName, bool]] = [("operator", False), ("tenant-viewer", True)]


@pytest.mark.parametrize(("role", "bound"), ROLES)
def test_who_signed_in_is_the_actor(role: RoleName, bound: bool, alice: Actor) -> None:
    tenant = "acme" if bound else None
    user, _, _ = services.create_user("ann", role, tenant, actor=alice)
    actor = services.actor_for(user, "page", "192.0.2.1")
    assert (actor.name, actor.role, actor.tenant) == ("ann", role, tenant)
