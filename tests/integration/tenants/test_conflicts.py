"""Two at once: nobody's change is lost, nothing is written twice, listeners hear of commits."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, transaction

from tenants import selectors, services
from tenants.core.document import Document
from tenants.models import AuditEntry, PolicyRevision
from tenants.services import Actor, documents
from tests.unit.tenants.policies import POLICY, read

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.store]


@pytest.fixture
def at_once() -> Callable[..., list[Any]]:
    """Run calls at the same time, each on a connection of its own."""

    def run(*calls: Callable[[], Any]) -> list[Any]:
        ready = threading.Barrier(len(calls))

        def one(call: Callable[[], Any]) -> Any:
            try:
                ready.wait(30)
                return call()
            except (services.Conflict, services.PolicyRefused) as error:
                return error
            finally:
                connection.close()

        with ThreadPoolExecutor(len(calls)) as pool:
            return list(pool.map(one, calls))

    return run


def meanwhile(change: Callable[[], object]) -> Callable[[Document], Document]:
    """A proposal during which somebody else, on another connection, changes the policy first."""
    left = [change]

    def propose(old: Document) -> Document:
        if left:
            with ThreadPoolExecutor(1) as other:
                other.submit(_closing, left.pop()).result()
        tenants = [t.model_copy(update={"enabled": False}) for t in old.tenants]
        return old.model_copy(update={"tenants": tenants})

    return propose


def _closing(call: Callable[[], object]) -> None:
    try:
        call()
    finally:
        connection.close()


def test_a_change_is_computed_anew_on_what_others_left(policy: str, alice: Actor) -> None:
    bob = Actor("bob", "api")
    applied = documents.change(
        meanwhile(lambda: services.edit_object("tenant", "acme", {"weight": 2}, actor=bob)),
        actor=alice,
    )
    assert applied.revision == 3
    acme = selectors.current_document().tenants[0]
    assert (acme.weight, acme.enabled) == (2, False)


def test_a_change_that_named_its_revision_is_refused_instead(policy: str, alice: Actor) -> None:
    bob = Actor("bob", "api")
    with pytest.raises(services.Conflict, match="revision 2 is in force, not 1"):
        documents.change(
            meanwhile(lambda: services.edit_object("tenant", "acme", {"weight": 2}, actor=bob)),
            actor=alice,
            expected_revision=1,
        )
    assert [revision.author for revision in selectors.history()] == ["bob", "alice"]


def test_a_new_key_meanwhile_costs_a_change_nothing(policy: str, alice: Actor) -> None:
    applied = documents.change(
        meanwhile(lambda: services.create_key("acme", actor=alice)), actor=alice
    )
    assert (applied.revision, selectors.current_version()) == (2, 3)


def test_of_many_edits_at_once_none_is_lost(
    policy: str, alice: Actor, at_once: Callable[..., list[Any]]
) -> None:
    def edit(name: str, weight: int) -> Callable[[], Any]:
        return lambda: services.edit_object("application", name, {"weight": weight}, actor=alice)

    def limit(field: str) -> Callable[[], Any]:
        return lambda: services.edit_object("tier", "free", {"limits": {field: 5}}, actor=alice)

    found = at_once(
        edit("acme/bot", 11), edit("acme/nightly", 12), limit("max_running"), limit("max_queued")
    )
    assert sorted(applied.revision for applied in found) == [2, 3, 4, 5]
    document = selectors.current_document()
    assert [a.weight for a in document.tenants[0].applications] == [11, 12]
    assert (document.tiers[1].limits.max_running, document.tiers[1].limits.max_queued) == (5, 5)
    assert list(PolicyRevision.objects.values_list("number", flat=True)) == [5, 4, 3, 2, 1]
    assert AuditEntry.objects.filter(revision__number__gt=1).count() == 4


def test_of_two_edits_with_one_etag_one_wins(
    policy: str, alice: Actor, at_once: Callable[..., list[Any]]
) -> None:
    seen = services.etag_of(selectors.current_document(), "tenant", "acme")

    def edit(weight: int) -> Callable[[], Any]:
        return lambda: services.edit_object(
            "tenant", "acme", {"weight": weight}, actor=alice, etag=seen
        )

    found = at_once(edit(2), edit(3))
    assert sum(isinstance(one, services.Conflict) for one in found) == 1
    assert selectors.current_revision() == 2


def test_of_two_same_policies_at_once_one_makes_the_revision(
    db: None, alice: Actor, at_once: Callable[..., list[Any]]
) -> None:
    found = at_once(*[lambda: services.apply_document(POLICY, actor=alice)] * 2)
    assert sorted(applied.created for applied in found) == [False, True]
    assert PolicyRevision.objects.count() == 1


def test_keys_and_edits_at_once_each_move_the_version(
    policy: str, alice: Actor, at_once: Callable[..., list[Any]]
) -> None:
    at_once(
        *[lambda: services.create_key("acme", actor=alice)] * 3,
        lambda: services.edit_object("tenant", "acme", {"weight": 2}, actor=alice),
    )
    assert selectors.current_version() == 1 + 4
    assert len(selectors.load_snapshot().keys) == 3


def test_a_snapshot_is_never_half_an_edit(
    policy: str, alice: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant and its key come between the two queries of a load."""
    real = selectors.key_grants
    calls = []

    def slow(at: Any) -> Any:
        if not calls:
            calls.append(at)
            services.create_object("tenant", {"name": "carol", "tier": "free"}, actor=alice)
            services.create_key("carol", actor=alice)
        return real(at)

    monkeypatch.setattr(selectors, "key_grants", slow)
    snapshot = selectors.load_snapshot()
    assert (snapshot.revision, snapshot.version) == (2, 3)
    assert [key.tenant for key in snapshot.keys.values()] == ["carol"]


def test_listeners_hear_of_each_committed_change(policy: str, alice: Actor) -> None:
    heard: list[int] = []
    end = services.on_change(heard.append)
    try:
        services.edit_object("tenant", "acme", {"weight": 2}, actor=alice)
        key, _ = services.create_key("acme", actor=alice)
        services.rotate_key(key.public_id, actor=alice)
        services.revoke_key(key.public_id, actor=alice)
    finally:
        end()
    services.edit_object("tenant", "acme", {"weight": 3}, actor=alice)
    assert heard == [2, 3, 4, 5]


def test_listeners_hear_nothing_of_what_was_undone(policy: str, alice: Actor) -> None:
    heard: list[int] = []
    end = services.on_change(heard.append)
    try:
        with transaction.atomic():
            services.edit_object("tenant", "acme", {"weight": 2}, actor=alice)
            transaction.set_rollback(True)
        services.apply_document(POLICY, actor=alice)
    finally:
        end()
    assert heard == []
    assert selectors.current_document() == read(POLICY)


def test_a_listener_that_fails_does_not_undo_the_change(
    policy: str, alice: Actor, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_version: int) -> None:
        raise RuntimeError("broken listener")

    end = services.on_change(broken)
    try:
        applied = services.edit_object("tenant", "acme", {"weight": 2}, actor=alice)
    finally:
        end()
    assert applied.created
    assert "broken listener" in caplog.text
