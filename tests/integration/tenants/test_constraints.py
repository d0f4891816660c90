"""The database refuses what the services would, whoever writes."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from tenants.models import (
    ApiKey,
    Application,
    AuditEntry,
    Budget,
    Endpoint,
    KeySecret,
    Lane,
    Membership,
    PolicyRevision,
    PolicyState,
    Pool,
    Tenant,
    Tier,
)

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("policy")]


def acme() -> Tenant:
    return Tenant.objects.get(name="acme")


def gold() -> Tier:
    return Tier.objects.get(name="gold")


def user() -> Any:
    return get_user_model().objects.create(username="ann")


def key() -> ApiKey:
    return ApiKey.objects.create(public_id="k", tenant=acme(), created_by="x")


def budget(**fields: Any) -> Budget:
    return Budget.objects.create(**{"name": "b", "kind": "sustained", "cost": 1} | fields)


def two_current_secrets() -> None:
    one = key()
    KeySecret.objects.create(key=one, digest="a" * 64)
    KeySecret.objects.create(key=one, digest="b" * 64)


def one_digest_for_two_keys() -> None:
    KeySecret.objects.create(key=key(), digest="a" * 64)
    other = ApiKey.objects.create(public_id="k2", tenant=acme(), created_by="x")
    KeySecret.objects.create(key=other, digest="a" * 64)


WRONG: dict[str, Callable[[], Any]] = {
    "a lane of a name that is taken": lambda: Lane.objects.create(
        name="batch", rank=50, engine_priority=1
    ),
    "a lane of a rank that is taken": lambda: Lane.objects.create(
        name="x", rank=1, engine_priority=1
    ),
    "a negative rank": lambda: Lane.objects.create(name="x", rank=-1, engine_priority=1),
    "a share past 1": lambda: Lane.objects.update(reserved_share=1.5),
    "a negative share": lambda: Lane.objects.update(reserved_share=-0.1),
    "no ceiling": lambda: Lane.objects.update(ceiling=0),
    "no queue time": lambda: Lane.objects.update(max_queue_seconds=0),
    "a tier without weight": lambda: Tier.objects.update(weight=0),
    "an unknown overload": lambda: Tier.objects.update(on_overload="panic"),
    "a negative limit": lambda: Tier.objects.update(max_running=-1),
    "two tenants of a name": lambda: Tenant.objects.create(name="acme", tier=gold()),
    "a tenant without a tier": lambda: Tenant.objects.create(name="x"),
    "a negative weight": lambda: Tenant.objects.update(weight=-1),
    "a tenant's unknown overload": lambda: Tenant.objects.update(on_overload="panic"),
    "two applications of a name": lambda: Application.objects.create(tenant=acme(), name="bot"),
    "an application without weight": lambda: Application.objects.update(weight=0),
    "an unknown engine": lambda: Pool.objects.update(engine="tgi"),
    "no capacity": lambda: Pool.objects.update(max_running=0),
    "a negative cost": lambda: Pool.objects.update(cost_output=-1),
    "a price without a currency": lambda: Pool.objects.update(price_currency=""),
    "half a price": lambda: Pool.objects.update(price_output_per_million=None),
    "a file without a path": lambda: Pool.objects.update(tokenizer_kind="file"),
    "an endpoint twice": lambda: Endpoint.objects.create(
        pool=Pool.objects.get(), url="http://127.0.0.1:9101/v1"
    ),
    "an endpoint that is no URL": lambda: Endpoint.objects.update(url="file:///etc/passwd"),
    "a budget of nobody": lambda: budget(period="hour"),
    "a budget of two": lambda: budget(period="hour", tier=gold(), tenant=acme()),
    "a budget twice": lambda: budget(name="hourly", period="hour", tier=gold()),
    "a sustained budget without period": lambda: budget(tier=gold()),
    "a sustained budget that refills": lambda: budget(
        tier=gold(), period="hour", refill_per_second=1
    ),
    "a burst budget that does not": lambda: budget(tier=gold(), kind="burst"),
    "a budget of another kind": lambda: budget(tier=gold(), kind="x", period="hour"),
    "a budget for a year": lambda: budget(tier=gold(), period="year"),
    "a negative budget": lambda: budget(tier=gold(), period="hour", cost=-1),
    "an unknown end of a budget": lambda: budget(tier=gold(), period="hour", on_exhausted="x"),
    "two keys of an id": lambda: (key(), key()),
    "two current secrets": two_current_secrets,
    "one digest for two keys": one_digest_for_two_keys,
    "an admin of one tenant": lambda: Membership.objects.create(
        user=user(), role="admin", tenant=acme()
    ),
    "a tenant admin of none": lambda: Membership.objects.create(user=user(), role="tenant-admin"),
    "an unknown role": lambda: Membership.objects.create(user=user(), role="root"),
    "two revisions of a number": lambda: PolicyRevision.objects.create(
        number=1, author="x", source="page", changes=0, packed=b""
    ),
    "two revisions of one parent": lambda: [
        PolicyRevision.objects.create(
            number=n,
            parent=PolicyRevision.objects.get(number=1),
            author="x",
            source="page",
            changes=0,
            packed=b"",
        )
        for n in (7, 8)
    ],
    "an audit entry from nowhere": lambda: AuditEntry.objects.create(
        actor="x", source="nowhere", kind="tier", name="gold"
    ),
    "a second state": lambda: PolicyState.objects.create(id=2),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_database_refuses(what: str) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        WRONG[what]()


def test_what_is_referred_to_stays() -> None:
    for row in (gold(), Lane.objects.get(name="standard"), acme()):
        with pytest.raises(ProtectedError):
            row.delete()
