"""Editing one object is a whole new policy with only that object changed."""

from typing import Any

import pytest

from tenants import selectors, services
from tenants.core.diff import Kind
from tenants.models import Application, AuditEntry, Tenant
from tenants.services import Actor

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("policy")]


def told(applied: services.Applied) -> list[str]:
    return [str(change) for change in applied.changes]


EDITS: list[tuple[Kind, str, dict[str, Any], list[str]]] = [
    ("tenant", "acme", {"weight": 2}, ["tenant acme: weight: 8 → 2"]),
    ("tenant", "acme", {"weight": None}, ["tenant acme: weight: 8 → unset"]),
    (
        "tenant",
        "acme",
        {"limits": {"max_queued": 5}},
        ["tenant acme: limits.max_queued: unset → 5"],
    ),
    (
        "tenant",
        "acme",
        {"limits": {"max_running": None}},
        ["tenant acme: limits.max_running: 8 → un"],
    ),
    ("tenant", "acme", {"budgets": []}, ["tenant acme: budgets.hourly: {"]),
    ("tenant", "bricks", {"enabled": False}, ["tenant bricks: enabled: True → False"]),
    ("tier", "gold", {"on_overload": "reject"}, ["tier gold: on_overload: queue → reject"]),
    (
        "tenant",
        "acme",
        {"soft_limits": ["tokens_per_minute"]},
        ["tenant acme: soft_limits: unset → ['tokens_per_minute']"],
    ),
    ("lane", "batch", {"rank": 7}, ["lane batch: rank: 2 → 7"]),
    ("pool", "demo-chat", {"capacity": "auto"}, ["pool demo-chat: capacity: {'max_running': 16"]),
    ("pool", "demo-chat", {"timeouts": {"idle": 9}}, ["pool demo-chat: timeouts.idle: 60 → 9"]),
    (
        "application",
        "acme/bot",
        {"lane": "batch"},
        ["application acme/bot: lane: critical → batch"],
    ),
    (
        "application",
        "acme/bot",
        {"name": "bot", "weight": 1},
        ["application acme/bot: weight: 3 → 1"],
    ),
    ("application", "acme/bot", {"name": "acme/bot"}, []),
    ("tenant", "acme", {}, []),
]


@pytest.mark.parametrize(("kind", "name", "fields", "changes"), EDITS)
def test_an_edit_changes_what_is_given(
    kind: Kind, name: str, fields: dict[str, Any], changes: list[str], alice: Actor
) -> None:
    applied = services.edit_object(kind, name, fields, actor=alice)
    found = told(applied)
    assert len(found) == len(changes)
    assert all(one.startswith(said) for one, said in zip(found, changes, strict=True)), found
    assert applied.created is bool(changes)


def test_an_edit_leaves_audit_entries_and_rows(alice: Actor) -> None:
    services.edit_object("tenant", "acme", {"weight": 2}, actor=alice, reason="calm down")
    entry = AuditEntry.objects.get(field="weight")
    assert (entry.name, entry.old, entry.new, entry.reason) == ("acme", 8, 2, "calm down")
    assert Tenant.objects.get(name="acme").weight == 2


def test_an_object_is_made_and_taken_away(alice: Actor) -> None:
    made: list[tuple[Kind, str, dict[str, Any]]] = [
        ("lane", "slow", {"name": "slow", "rank": 9}),
        ("tier", "trial", {"name": "trial", "lane": "slow"}),
        ("pool", "other", {"model": "other", "endpoints": [{"url": "http://127.0.0.1:9/v1"}]}),
        ("tenant", "carol", {"name": "carol", "tier": "trial", "weight": None}),
        ("application", "carol/app", {"name": "carol/app", "weight": 2}),
    ]
    for kind, name, fields in made:
        assert told(services.create_object(kind, fields, actor=alice)) == [f"{kind} {name}: added"]
    assert Application.objects.get(name="app").tenant.name == "carol"
    for kind, name, _ in reversed(made):
        assert told(services.delete_object(kind, name, actor=alice)) == [f"{kind} {name}: removed"]
    assert selectors.current_document() == selectors.revision_document(1)


def test_what_exists_cannot_be_made_again(alice: Actor) -> None:
    with pytest.raises(services.PolicyRefused, match="tenant 'acme' exists already"):
        services.create_object("tenant", {"name": "acme", "tier": "gold"}, actor=alice)


def test_a_made_object_needs_a_name(alice: Actor) -> None:
    with pytest.raises(services.PolicyRefused, match="name"):
        services.create_object("tenant", {"tier": "gold"}, actor=alice)


@pytest.mark.parametrize("kind", ["tenant", "tier", "lane", "pool", "application"])
def test_what_is_not_there_cannot_be_changed(kind: Kind, alice: Actor) -> None:
    for name in ("nobody", "nobody/x", "acme/x"):
        with pytest.raises(services.NotFound):
            services.edit_object(kind, name, {}, actor=alice)
        with pytest.raises(services.NotFound):
            services.delete_object(kind, name, actor=alice)
        with pytest.raises(services.NotFound):
            services.etag_of(selectors.current_document(), kind, name)


def test_an_application_of_nobody_cannot_be_made(alice: Actor) -> None:
    with pytest.raises(services.NotFound, match="there is no tenant 'nobody'"):
        services.create_object("application", {"name": "nobody/x"}, actor=alice)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"budget": 5}, "unknown key 'budget'"),  # R23
        ({"weight": "4"}, "must be a valid number"),
        ({"tier": None}, "tier is missing"),
        ({"tier": "silver"}, "there is no tier 'silver'"),
        ({"name": "acme2"}, "a tenant keeps its name"),
    ],
)
def test_a_wrong_field_is_refused(fields: dict[str, Any], said: str, alice: Actor) -> None:
    with pytest.raises(services.PolicyRefused, match=said):
        services.edit_object("tenant", "acme", fields, actor=alice)
    assert selectors.current_revision() == 1


def test_what_others_name_cannot_go(alice: Actor) -> None:
    with pytest.raises(services.PolicyRefused, match="there is no tier 'gold'"):
        services.delete_object("tier", "gold", actor=alice)
    with pytest.raises(services.PolicyRefused, match="there is no lane 'standard'"):
        services.delete_object("lane", "standard", actor=alice)
    assert selectors.current_revision() == 1


def test_two_admins_never_overwrite_each_other_unseen(alice: Actor) -> None:
    seen = services.etag_of(selectors.current_document(), "tenant", "acme")
    services.edit_object("tenant", "acme", {"weight": 2}, actor=alice, etag=seen)
    with pytest.raises(services.Conflict, match="changed by somebody else"):
        services.edit_object("tenant", "acme", {"weight": 3}, actor=alice, etag=seen)
    with pytest.raises(services.Conflict):
        services.delete_object("tenant", "acme", actor=alice, etag=seen)
    assert selectors.current_document().tenants[0].weight == 2


def test_another_objects_change_does_not_disturb(alice: Actor) -> None:
    seen = services.etag_of(selectors.current_document(), "tenant", "acme")
    services.edit_object("tier", "gold", {"weight": 5}, actor=alice)
    services.edit_object("application", "acme/bot", {"weight": 5}, actor=alice)
    services.edit_object("tenant", "acme", {"weight": 2}, actor=alice, etag=seen)
    assert selectors.current_document().tenants[0].weight == 2


@pytest.mark.parametrize("role", ["operator", "tenant-admin", "tenant-viewer", ""])
def test_only_an_admin_may_edit(role: str) -> None:
    bob = Actor("bob", "api", role=role, tenant="bricks")
    with pytest.raises(services.NotAllowed):
        services.edit_object("tenant", "bricks", {"weight": 100}, actor=bob)
    with pytest.raises(services.NotAllowed):
        services.create_object("application", {"name": "bricks/a"}, actor=bob)
    with pytest.raises(services.NotAllowed):
        services.delete_object("tenant", "acme", actor=bob)


def test_the_effective_policy_says_who_gave_each_value() -> None:
    found = selectors.effective_policy("acme")
    assert found["weight"] == (8, "tenant")
    assert found["lane"] == ("standard", "tier")
    assert found["models"] == (["*"], "default")
    with pytest.raises(services.NotFound):
        selectors.effective_policy("nobody")


def test_a_tiers_value_that_was_written_out_is_the_tiers_also_after_storage(alice: Actor) -> None:
    services.edit_object("tier", "gold", {"on_overload": "reject"}, actor=alice)
    assert selectors.effective_policy("acme")["on_overload"] == ("reject", "tier")
