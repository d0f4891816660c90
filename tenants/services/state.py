"""The one row that every change goes through, and who is told afterwards.

1. A change is written only by whoever moves the version from the one it was computed on; so no
   change is lost and no row is locked while somebody thinks. The same on SQLite and PostgreSQL.
2. Listeners run after the commit, never before, and never for a change that was undone.
"""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction
from django.db.models import F
from django.dispatch import Signal

from tenants import postgres
from tenants.models import PolicyState

changed = Signal()


def on_change(callback: Callable[[int], None]) -> Callable[[], None]:
    """Call `callback(version)` after each change made in this process; returns what ends that.
    Other processes poll `selectors.current_version()`, and on PostgreSQL hear it as well."""

    def receive(version: int, **_: object) -> None:
        callback(version)

    def end() -> None:
        changed.disconnect(receive)

    changed.connect(receive, weak=False)
    return end


def swap(seen: PolicyState, revision: int) -> bool:
    """Move on from the state as it was seen; False when somebody else was first."""
    still = PolicyState.objects.filter(id=1, version=seen.version)
    if still.update(version=seen.version + 1, revision=revision) == 0:
        return False
    postgres.notify(seen.version + 1)
    return True


def bump() -> int:
    """The next version, for a change beside the document. Its row lock lasts to the commit, so
    what the caller reads afterwards stays as it is."""
    PolicyState.read()
    PolicyState.objects.filter(id=1).update(version=F("version") + 1)
    version = PolicyState.objects.values_list("version", flat=True).get(id=1)
    postgres.notify(version)
    return version


def hold() -> None:
    """Until the commit nobody else changes policy, keys or counters: for what is to be read before
    `bump`. SQLite's transactions do so from their beginning."""
    PolicyState.read()
    PolicyState.objects.select_for_update().get(id=1)


def announce(version: int) -> None:
    transaction.on_commit(lambda: _tell(version), robust=True)


def _tell(version: int) -> None:
    changed.send(sender=None, version=version)
