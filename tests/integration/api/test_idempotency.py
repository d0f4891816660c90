"""An order under an Idempotency-Key is carried out once, however often it is sent."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from fairlane import tasks
from tenants import selectors, services
from tenants.models import AccessToken, ApiKey, AuditEntry, RememberedAnswer
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]
JSON = "application/json"
V1 = "/api/v1"
ONE = {"Idempotency-Key": "6f1c-one"}
ORDERS: dict[str, dict[str, Any]] = {
    "keys/": {"tenant": "acme"},
    "tokens/": {"name": "ci", "role": "operator"},
    "users/": {"username": "nina", "role": "operator"},
    "users/otto/password/": {},
    "users/otto/token/": {},
    "tenants/": {"name": "wayne", "tier": "gold"},
    "applications/": {"tenant": "acme", "name": "extra"},
    "budgets/": {"owner_kind": "tenant", "owner": "acme", "name": "own", "kind": "sustained",
                 "cost": 5, "period": "day"},
}  # fmt: skip


@pytest.mark.parametrize(("page", "order"), ORDERS.items())
def test_sent_again_it_gets_the_first_answer(
    admin: Client, page: str, order: dict[str, Any]
) -> None:
    first = admin.post(f"{V1}/{page}", order, JSON, headers=ONE)
    entries = AuditEntry.objects.count()
    again = admin.post(f"{V1}/{page}", order, JSON, headers=ONE)
    assert first.status_code in (200, 201), first.json()
    assert (again.status_code, again.json()) == (first.status_code, first.json())
    for name in ("etag", "location", "x-fairlane-revision", "cache-control"):
        assert again.headers.get(name) == first.headers.get(name), name
    assert again.headers["idempotent-replayed"] == "true"
    assert AuditEntry.objects.count() == entries


def test_a_rotation_sent_again_gives_the_same_secret(admin: Client) -> None:
    key, _ = services.create_key("acme", actor=builders.ROOT)
    page = f"{V1}/keys/{key.public_id}/rotate/"
    first, again = (admin.post(page, {}, JSON, headers=ONE) for _ in range(2))
    assert first.json() == again.json()
    assert key.secrets.filter(accepted_until=None).count() == 1
    assert admin.post(page, {}, JSON).json()["key"] != first.json()["key"]


def test_another_order_under_the_same_key_is_refused(admin: Client) -> None:
    admin.post(f"{V1}/keys/", {"tenant": "acme"}, JSON, headers=ONE)
    other = admin.post(f"{V1}/keys/", {"tenant": "globex"}, JSON, headers=ONE)
    elsewhere = admin.post(f"{V1}/tenants/", {"name": "x", "tier": "gold"}, JSON, headers=ONE)
    for answer in (other, elsewhere):
        assert answer.status_code == 422
        assert "was used for another order" in answer.json()["detail"]
    assert ApiKey.objects.count() == 1


def test_what_was_refused_may_be_tried_again_under_the_same_key(admin: Client) -> None:
    page, order = f"{V1}/tenants/", {"name": "wayne", "tier": "gold"}
    wrong = admin.post(page, {**order, "tier": "none"}, JSON, headers=ONE)
    right = admin.post(page, order, JSON, headers=ONE)
    assert (wrong.status_code, right.status_code) == (400, 201)


def test_each_caller_has_keys_of_their_own(as_: Callable[[str], Client]) -> None:
    for role, tenant in (("admin", "acme"), ("tenant-admin", "acme"), ("outsider", "globex")):
        answer = as_(role).post(f"{V1}/keys/", {"tenant": tenant}, JSON, headers=ONE)
        assert (answer.status_code, "idempotent-replayed" in answer.headers) == (201, False)
    assert ApiKey.objects.count() == 3


def test_after_a_day_the_answer_is_forgotten(admin: Client) -> None:
    admin.post(f"{V1}/keys/", {"tenant": "acme"}, JSON, headers=ONE)
    RememberedAnswer.objects.update(at=timezone.now() - timedelta(hours=25))
    assert tasks.forget_answers() == 1
    assert admin.post(f"{V1}/keys/", {"tenant": "acme"}, JSON, headers=ONE).status_code == 201
    assert ApiKey.objects.count() == 2


def test_nothing_that_is_stored_shows_a_secret_or_the_callers_key(admin: Client) -> None:
    secret = admin.post(f"{V1}/keys/", {"tenant": "acme"}, JSON, headers=ONE).json()["key"]
    (row,) = RememberedAnswer.objects.values()
    stored = " ".join(
        bytes(value).decode("latin-1") if isinstance(value, bytes | memoryview) else str(value)
        for value in row.values()
    )
    assert secret.rpartition("_")[2] not in stored
    assert ONE["Idempotency-Key"] not in stored


@pytest.mark.parametrize("key", ["x" * 201, "a\tb"])
def test_a_key_that_no_header_should_hold_is_refused(admin: Client, key: str) -> None:
    headers = {"Idempotency-Key": key}
    answer = admin.post(f"{V1}/keys/", {"tenant": "acme"}, JSON, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["field"] == "Idempotency-Key"


AT_ONCE = 6


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("page", ["keys/", "tokens/", "tenants/"])
def test_of_many_at_the_same_moment_one_is_carried_out(people: dict[str, Any], page: str) -> None:
    _, token = services.renew_token("ada", actor=builders.ROOT)
    together = Barrier(AT_ONCE)

    def ask(_: int) -> tuple[int, Any]:
        client = Client(headers={"authorization": f"Token {token}", **ONE})
        together.wait(30)
        try:
            answer = client.post(f"{V1}/{page}", ORDERS[page], JSON)
            return answer.status_code, answer.json()
        finally:
            connection.close()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(ask, range(AT_ONCE)))
    assert answers == [answers[0]] * AT_ONCE
    assert answers[0][0] == 201, answers[0]
    made = ApiKey.objects.count() + AccessToken.objects.filter(user=None).count()
    assert made + selectors.current_revision() - 1 == 1
