"""Applying a policy: all or nothing, once, numbered, with one audit entry for each change."""

from typing import Any

import pytest

from tenants import selectors, services
from tenants.core.document import EMPTY, canonical
from tenants.models import (
    Application,
    AuditEntry,
    Budget,
    Endpoint,
    Lane,
    PolicyRevision,
    PolicyState,
    Pool,
    Tenant,
    Tier,
)
from tenants.services import Actor, documents
from tests.unit.tenants.policies import POLICY, read

pytestmark = [pytest.mark.django_db, pytest.mark.store]


def everything() -> dict[str, Any]:
    kinds = (Lane, Tier, Pool, Endpoint, Tenant, Application, Budget, PolicyRevision, AuditEntry)
    rows = {kind.__name__: list(kind._default_manager.order_by("pk").values()) for kind in kinds}
    return {**rows, "state": list(PolicyState.objects.values())}


def test_an_empty_database_has_revision_0_and_the_empty_policy() -> None:
    assert (selectors.current_version(), selectors.current_revision()) == (0, 0)
    assert selectors.current_document() == EMPTY
    snapshot = selectors.load_snapshot()
    assert (snapshot.revision, snapshot.version, snapshot.tenants) == (0, 0, {})
    assert selectors.history() == []


def test_the_first_policy_is_revision_1(alice: Actor) -> None:
    applied = services.apply_document(POLICY, actor=alice, reason="first")
    assert (applied.revision, applied.created, len(applied.changes)) == (1, True, 10)
    assert selectors.current_document() == read(POLICY)
    (revision,) = selectors.history()
    assert (revision.number, revision.author, revision.source) == (1, "alice", "page")
    assert (revision.reason, revision.changes, revision.parent) == ("first", 10, None)


def test_the_tables_say_what_the_document_says(policy: str) -> None:
    acme = Tenant.objects.get(name="acme")
    assert (acme.tier.name, acme.weight, acme.timezone) == ("gold", 8, "Asia/Tokyo")
    assert (acme.max_running, acme.requests_per_minute) == (8, None)
    assert [lane.name for lane in Lane.objects.all()] == ["critical", "standard", "batch"]
    assert [e.url[-7:] for e in Endpoint.objects.all()] == ["9101/v1", "9102/v1"]
    pool = Pool.objects.get(model="demo-chat")
    assert f"{pool.price_input_per_million:.2f} {pool.price_currency}" == "0.20 USD"
    assert {(b.tier_id is not None, b.name) for b in Budget.objects.filter(application=None)} == {
        (True, "burst"), (True, "hourly"), (False, "hourly")
    }  # fmt: skip
    assert Application.objects.get(name="nightly").budgets.get().name == "own"


def test_applying_what_is_there_changes_nothing(policy: str, alice: Actor) -> None:
    before = everything()
    applied = services.apply_document(policy, actor=alice)
    assert (applied.revision, applied.changes, applied.created) == (1, [], False)
    assert everything() == before


def test_a_policy_in_another_order_is_the_same_policy(policy: str, alice: Actor) -> None:
    data = canonical(read(policy))
    data["tenants"].reverse()
    assert services.apply_document(data, actor=alice).created is False


def test_a_wrong_policy_changes_nothing(policy: str, alice: Actor) -> None:
    before = everything()
    with pytest.raises(services.PolicyRefused) as refused:
        services.apply_document(policy.replace("weight: 8", "weight: -8"), actor=alice)
    assert [issue.line for issue in refused.value.issues] == [24]
    assert everything() == before


def test_a_change_that_fails_half_way_leaves_nothing(
    policy: str, alice: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R49: a change whose audit entries cannot be written is no change."""
    before = everything()

    def full_disk(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(documents, "record_changes", full_disk)
    with pytest.raises(OSError, match="disk full"):
        services.apply_document(policy.replace("weight: 8", "weight: 9"), actor=alice)
    assert everything() == before


def test_a_dry_run_tells_the_changes_and_makes_none(policy: str, alice: Actor) -> None:
    before = everything()
    applied = services.apply_document(
        policy.replace("weight: 8", "weight: 9"), actor=alice, dry_run=True
    )
    assert [str(change) for change in applied.changes] == ["tenant acme: weight: 8 → 9"]
    assert (applied.revision, applied.created) == (1, False)
    assert everything() == before


def test_each_changed_field_leaves_one_audit_entry(policy: str, alice: Actor) -> None:
    text = policy.replace("weight: 8", "weight: 9").replace("max_running: 32", "max_running: 31")
    services.apply_document(text, actor=alice, reason="more for acme")
    entries = AuditEntry.objects.filter(revision__number=2).order_by("id")
    assert [(e.kind, e.name, e.field, e.old, e.new) for e in entries] == [
        ("tier", "gold", "limits.max_running", 32, 31),
        ("tenant", "acme", "weight", 8, 9),
    ]
    assert {(e.actor, e.source, e.address, e.reason) for e in entries} == {
        ("alice", "page", "192.0.2.7", "more for acme")
    }


def test_an_expected_revision_that_is_no_longer_there_is_a_conflict(
    policy: str, alice: Actor
) -> None:
    services.apply_document(policy.replace("weight: 8", "weight: 9"), actor=alice)
    before = everything()
    with pytest.raises(services.Conflict, match="revision 2 is in force, not 1"):
        services.apply_document(policy, actor=alice, expected_revision=1)
    assert everything() == before
    assert services.apply_document(policy, actor=alice, expected_revision=2).revision == 3


def test_lanes_can_trade_ranks(policy: str, alice: Actor) -> None:
    text = policy.replace("rank: 0", "rank: x").replace("rank: 1", "rank: 0")
    services.apply_document(text.replace("rank: x", "rank: 1"), actor=alice)
    assert [lane.name for lane in Lane.objects.all()] == ["standard", "critical", "batch"]


def test_a_new_lane_can_take_the_rank_of_one_that_goes(policy: str, alice: Actor) -> None:
    services.apply_document(policy.replace("critical", "urgent"), actor=alice)
    assert [lane.name for lane in Lane.objects.all()] == ["urgent", "standard", "batch"]


def test_names_can_move_from_one_object_to_another(policy: str, alice: Actor) -> None:
    """Acme takes the tier that bricks has, and the tiers trade their names."""
    text = policy.replace("gold", "x").replace("free", "gold").replace("x\n", "free\n")
    services.apply_document(text, actor=alice)
    assert Tenant.objects.get(name="bricks").tier.name == "gold"
    assert Tier.objects.get(name="gold").lane.name == "batch"


def test_what_leaves_the_policy_goes_but_tenants_and_applications_stay_out_of_policy(
    policy: str, alice: Actor
) -> None:
    services.apply_document({"version": 1}, actor=alice)
    for kind in (Lane, Tier, Pool, Endpoint, Budget):
        assert not kind.objects.exists(), kind
    assert {tenant.name: tenant.in_policy for tenant in Tenant.objects.all()} == {
        "acme": False, "bricks": False
    }  # fmt: skip
    assert Tenant.objects.get(name="acme").weight is None
    assert not Application.objects.filter(in_policy=True).exists()


def test_the_version_grows_with_each_change_and_only_then(policy: str, alice: Actor) -> None:
    assert selectors.current_version() == 1
    services.apply_document(policy, actor=alice)
    assert selectors.current_version() == 1
    services.create_key("acme", actor=alice)
    services.apply_document({"version": 1}, actor=alice)
    assert (selectors.current_version(), selectors.current_revision()) == (3, 2)


def test_polling_the_version_is_one_query(policy: str, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        selectors.current_version()


def test_the_snapshot_says_what_the_policy_says(policy: str, alice: Actor) -> None:
    _, text = services.create_key("acme", "bot", actor=alice)
    snapshot = selectors.load_snapshot()
    assert (snapshot.revision, snapshot.version) == (1, 2)
    assert snapshot.tenants["acme"].weight == 8
    assert len(snapshot.keys) == 1
    assert text not in repr(snapshot)


def test_queries_do_not_grow_with_the_policy(
    policy: str, alice: Actor, django_assert_max_num_queries: Any
) -> None:
    tenants = [
        {"name": f"t{i}", "tier": "gold", "applications": [{"name": "a"}]} for i in range(60)
    ]
    data = {**canonical(read(policy)), "tenants": tenants}
    with django_assert_max_num_queries(50):
        services.apply_document(data, actor=alice)
    for name in ("t1", "t2", "t3"):
        services.create_key(name, "a", actor=alice)
    with django_assert_max_num_queries(5):
        assert len(selectors.load_snapshot().keys) == 3


def test_only_an_admin_may_apply(policy: str) -> None:
    for role in ("operator", "tenant-admin", "tenant-viewer", ""):
        bob = Actor("bob", "api", role=role, tenant="bricks")
        with pytest.raises(services.NotAllowed):
            services.apply_document({"version": 1}, actor=bob)
        with pytest.raises(services.NotAllowed):
            services.rollback(0, actor=bob)
    assert selectors.current_revision() == 1


def test_an_operator_may_look_at_a_difference(policy: str) -> None:
    olga = Actor("olga", "page", role="operator")
    assert services.apply_document({"version": 1}, actor=olga, dry_run=True).changes


def test_a_reason_is_stored_without_what_no_database_takes(policy: str, alice: Actor) -> None:
    reason = "two\nlines \x00\ud800é" + "x" * 5000
    services.apply_document({"version": 1}, actor=alice, reason=reason)
    (latest, _) = selectors.history()
    assert latest.reason.startswith("two\nlines éxxx")
    assert len(latest.reason) == 2000


def test_a_long_address_fits_into_its_audit_entry(policy: str, alice: Actor) -> None:
    url = "http://127.0.0.1/" + "a" * 1900
    services.edit_object("pool", "demo-chat", {"endpoints": [{"url": url}]}, actor=alice)
    drained = [{"url": url, "drain": True}]
    services.edit_object("pool", "demo-chat", {"endpoints": drained}, actor=alice)
    assert AuditEntry.objects.filter(field=f"endpoints.{url}.drain").exists()
