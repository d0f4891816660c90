"""Keys: the secret is told once and stored nowhere; the id stays through every rotation."""

from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.utils import timezone

from tenants import selectors, services
from tenants.core.keys import digest, mask
from tenants.models import ApiKey, AuditEntry, KeySecret
from tenants.services import Actor

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("policy")]

ANN = Actor("ann", "page", role="tenant-admin", tenant="acme")


def accepted(text: str, hours_from_now: float = 0) -> bool:
    at = timezone.now() + timedelta(hours=hours_from_now)
    found = selectors.load_snapshot(at).keys.get(digest(text))
    return found is not None and (found.expires_at is None or found.expires_at > at)


def stored() -> str:
    return "".join(
        repr(list(model._default_manager.values()))
        for model in apps.get_app_config("tenants").get_models()
    )


def test_a_new_key_opens_its_tenant(alice: Actor) -> None:
    key, text = services.create_key("acme", "bot", "chat", actor=alice)
    found = selectors.load_snapshot().keys[digest(text)]
    assert (found.id, found.tenant, found.application) == (key.public_id, "acme", "bot")
    assert (key.masked, key.state, key.created_by) == (mask(text), "active", "alice")


def test_the_secret_is_stored_nowhere(alice: Actor) -> None:
    key, first = services.create_key("acme", actor=alice)
    _, second = services.rotate_key(key.public_id, 1, actor=alice)
    for text in (first, second):
        assert text.rsplit("_", 1)[1] not in stored()
    audited = repr(list(AuditEntry.objects.filter(kind="key").values()))
    assert digest(first).hex() not in audited
    assert digest(second).hex() not in audited


def test_each_key_is_another(alice: Actor) -> None:
    made = {services.create_key("acme", actor=alice)[1] for _ in range(20)}
    assert len(made) == 20


def test_a_rotation_keeps_the_id_and_the_old_secret_works_until_the_grace_ends(
    alice: Actor,
) -> None:
    """D09, R11."""
    key, old = services.create_key("acme", actor=alice)
    same, new = services.rotate_key(key.public_id, 24, actor=alice)
    assert same.public_id == key.public_id
    assert accepted(old)
    assert accepted(new)
    assert accepted(old, 23.9)
    assert not accepted(old, 24.1)
    assert accepted(new, 24.1)
    assert {found.id for found in selectors.load_snapshot().keys.values()} == {key.public_id}


def test_without_grace_the_old_secret_ends_at_once(alice: Actor) -> None:
    key, old = services.create_key("acme", actor=alice)
    _, new = services.rotate_key(key.public_id, actor=alice)
    assert not accepted(old)
    assert accepted(new)


def test_a_second_rotation_does_not_cut_the_first_ones_grace(alice: Actor) -> None:
    key, first = services.create_key("acme", actor=alice)
    _, second = services.rotate_key(key.public_id, 24, actor=alice)
    _, third = services.rotate_key(key.public_id, 1, actor=alice)
    assert [accepted(text, 2) for text in (first, second, third)] == [True, False, True]


def test_a_key_ends_when_it_was_said_to_whatever_its_grace(alice: Actor) -> None:
    key, old = services.create_key("acme", expires_days=1, actor=alice)
    _, new = services.rotate_key(key.public_id, 48, actor=alice)
    assert [accepted(text, 23) for text in (old, new)] == [True, True]
    assert [accepted(text, 25) for text in (old, new)] == [False, False]


def test_a_revoked_key_is_refused_with_all_its_secrets(alice: Actor) -> None:
    key, old = services.create_key("acme", actor=alice)
    _, new = services.rotate_key(key.public_id, 24, actor=alice)
    services.revoke_key(key.public_id, actor=alice, reason="leaked")
    assert not accepted(old)
    assert not accepted(new)
    assert AuditEntry.objects.get(field="revoked_at").reason == "leaked"


def test_revoking_twice_is_one_change(alice: Actor) -> None:
    key, _ = services.create_key("acme", actor=alice)
    services.revoke_key(key.public_id, actor=alice)
    version = selectors.current_version()
    assert services.revoke_key(key.public_id, actor=alice).state == "revoked"
    assert selectors.current_version() == version
    assert AuditEntry.objects.filter(field="revoked_at").count() == 1


def test_a_key_that_has_ended_is_not_rotated(alice: Actor) -> None:
    key, _ = services.create_key("acme", actor=alice)
    services.revoke_key(key.public_id, actor=alice)
    with pytest.raises(services.PolicyRefused, match="is revoked; make a new one"):
        services.rotate_key(key.public_id, actor=alice)
    late, _ = services.create_key("acme", actor=alice)
    ApiKey.objects.filter(pk=late.pk).update(expires_at=timezone.now())
    with pytest.raises(services.PolicyRefused, match="is expired"):
        services.rotate_key(late.public_id, actor=alice)


def test_each_change_of_a_key_is_audited_and_bumps_the_version(alice: Actor) -> None:
    key, _ = services.create_key("acme", "bot", "chat", 3, actor=alice, reason="new bot")
    services.rotate_key(key.public_id, 1, actor=alice)
    services.revoke_key(key.public_id, actor=alice)
    entries = AuditEntry.objects.filter(kind="key", name=key.public_id).order_by("id")
    assert [entry.field for entry in entries] == ["", "secret", "revoked_at"]
    made = entries[0]
    assert (made.actor, made.reason) == ("alice", "new bot")
    assert made.new["tenant"] == "acme"
    assert made.new["application"] == "bot"
    assert selectors.current_version() == 1 + 3
    assert selectors.current_revision() == 1


def test_a_key_may_have_budgets_of_its_own(alice: Actor) -> None:
    cap = {"name": "cap", "kind": "sustained", "cost": 50, "period": "week"}
    key, text = services.create_key("acme", actor=alice, budgets=[cap])
    (budget,) = selectors.load_snapshot().keys[digest(text)].budgets
    assert (budget.account, budget.cost, budget.period, budget.timezone) == (
        f"key:{key.public_id}/cap", 50, "week", "Asia/Tokyo"
    )  # fmt: skip
    services.rollback(0, actor=alice)
    services.rollback(1, actor=alice)
    assert selectors.load_snapshot().keys[digest(text)].budgets == (budget,)


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"tenant": "nobody"}, services.NotFound, "no tenant 'nobody'"),
    ({"application": "x"}, services.NotFound, "no application 'x'"),
    ({"tenant": "ac\x00me"}, services.NotFound, "no tenant"),
    ({"application": "b\x00ot"}, services.NotFound, "no application"),
    ({"tenant": "bricks", "application": "bot"}, services.NotFound, "no application 'bot'"),
    ({"expires_days": 0}, services.PolicyRefused, "expires_days is 0; it takes more than 0"),
    ({"expires_days": -1}, services.PolicyRefused, "expires_days is -1"),
    ({"expires_days": float("nan")}, services.PolicyRefused, "expires_days is nan"),
    ({"expires_days": 1e9}, services.PolicyRefused, "up to 3650"),
    ({"expires_days": True}, services.PolicyRefused, "expires_days is true"),
    ({"name": "x" * 101}, services.PolicyRefused, "up to 100"),
    ({"name": "a\nb"}, services.PolicyRefused, "plain characters"),
    ({"budgets": [{"name": "x"}]}, services.PolicyRefused, "kind is missing"),
]


@pytest.mark.parametrize(("fields", "error", "said"), WRONG)
def test_a_wrong_key_is_not_made(
    fields: dict[str, Any], error: type[Exception], said: str, alice: Actor
) -> None:
    with pytest.raises(error, match=said):
        services.create_key(**{"tenant": "acme", **fields}, actor=alice)
    assert not ApiKey.objects.exists()
    assert selectors.current_version() == 1


@pytest.mark.parametrize("grace", [-1, float("nan"), float("inf"), 1e9])
def test_a_grace_out_of_range_is_refused(grace: float, alice: Actor) -> None:
    key, text = services.create_key("acme", actor=alice)
    with pytest.raises(services.PolicyRefused, match=r"grace_hours is .*; it takes 0 up to 2160"):
        services.rotate_key(key.public_id, grace, actor=alice)
    assert accepted(text)


def test_a_tenants_admin_manages_the_keys_of_its_tenant(alice: Actor) -> None:
    key, _ = services.create_key("acme", actor=ANN)
    services.rotate_key(key.public_id, actor=ANN)
    assert services.revoke_key(key.public_id, actor=ANN).state == "revoked"


def test_another_tenants_keys_are_out_of_reach_and_look_unknown(alice: Actor) -> None:
    key, text = services.create_key("bricks", actor=alice)
    with pytest.raises(services.NotAllowed):
        services.create_key("bricks", actor=ANN)
    with pytest.raises(services.NotFound, match="there is no key"):
        services.rotate_key(key.public_id, actor=ANN)
    with pytest.raises(services.NotFound):
        services.revoke_key(key.public_id, actor=ANN)
    assert accepted(text)
    assert [found.tenant.name for found in selectors.keys("acme")] == []


@pytest.mark.parametrize("role", ["operator", "tenant-viewer", ""])
def test_who_only_looks_changes_no_key(role: str, alice: Actor) -> None:
    key, text = services.create_key("acme", actor=alice)
    bob = Actor("bob", "page", role=role, tenant="acme" if "tenant" in role else None)
    for attempt in (
        lambda: services.create_key("acme", actor=bob),
        lambda: services.rotate_key(key.public_id, actor=bob),
        lambda: services.revoke_key(key.public_id, actor=bob),
    ):
        with pytest.raises(services.NotAllowed):
            attempt()
    assert accepted(text)


def test_an_unknown_key_is_not_found(alice: Actor) -> None:
    for change in (services.rotate_key, services.revoke_key):
        for unknown in ("nothing", "", "\x00", "x" * 500):
            with pytest.raises(services.NotFound, match="there is no key"):
                change(unknown, actor=alice)


def test_secrets_that_ended_are_cleared_away_at_the_next_rotation(alice: Actor) -> None:
    key, _ = services.create_key("acme", actor=alice)
    for _ in range(3):
        services.rotate_key(key.public_id, actor=alice)
    assert KeySecret.objects.filter(key=key).count() == 1
