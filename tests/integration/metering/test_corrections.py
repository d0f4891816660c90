"""Corrections by API and page: by admins, with a reason, audited, once under one id."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

import pytest
from django.db import connection

from metering.corrections import correct
from metering.models import BudgetWindow, Correction
from tenants.models import AuditEntry
from tests import builders
from tests.integration.metering.ledger import ACME, UMBRELLA, apply_calm_policy, differences, save

pytestmark = [pytest.mark.django_db, pytest.mark.store]
ADDRESS, PAGE = "/api/v1/usage/corrections/", "/new/correction/"


@pytest.fixture(autouse=True)
def calm(people):
    apply_calm_policy()


def order(**fields):
    return {"account": ACME, "units": -30.0, "reason": "wrong price", "id": "ticket-7", **fields}


def post(client, **fields):
    return client.post(ADDRESS, order(**fields), "application/json")


def used_now(account=ACME):
    now = datetime.now(UTC)
    rows = BudgetWindow.objects.filter(account=account, window_start__lte=now, window_end__gt=now)
    return sum(rows.values_list("used", flat=True))


def test_an_admin_gives_units_back_and_the_ledger_agrees(admin):
    save(100.0, at=datetime.now(UTC))
    answer = post(admin)
    assert answer.status_code == 201, answer.json()
    told = answer.json()
    assert (told["id"], told["units"], told["used"], told["actor"]) == ("ticket-7", -30, 70, "ada")
    assert used_now() == 70
    assert differences(datetime.now(UTC)) == []
    entry = AuditEntry.objects.get(kind="budget_counter")
    assert (entry.name, entry.old, entry.new) == (ACME, 100, 70)
    assert (entry.actor, entry.source, entry.reason) == ("ada", "api", "wrong price")


def test_under_one_id_it_is_made_once(admin):
    save(100.0, at=datetime.now(UTC))
    first, again = post(admin), post(admin)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["number"] == first.json()["number"]
    assert used_now() == 70
    other = post(admin, units=-1.0)
    assert other.status_code == 409
    assert "ticket-7" in other.json()["detail"]
    assert post(admin, id=None).status_code == 201  # without an id each one is another
    assert used_now() == 40


def test_a_past_window_can_be_set_right(admin):
    yesterday = datetime.now(UTC) - timedelta(days=1)
    save(100.0, at=yesterday, account=UMBRELLA)
    answer = post(admin, account=UMBRELLA, at=yesterday.isoformat())
    assert answer.json()["used"] == 70
    assert used_now(UMBRELLA) == 0
    for at in ("2001-01-01", (yesterday + timedelta(days=9)).isoformat(), "soon"):
        assert post(admin, at=at, id=None).json()["errors"][0]["field"] == "at"


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("reason", "", "at least 1 character"),
        ("reason", "  ", "needs a reason"),
        ("reason", "\x00", "needs a reason"),
        ("id", "a\x00b", "printable characters"),
        ("units", 0, "not zero"),
        ("units", -1e9, "no more can be given back"),
        ("account", "tenant:acme/burst", "refills by itself"),
        ("account", "tenant:nobody/hourly", "no budget has the account"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_changed(admin, field, value, says):
    answer = post(admin, **{field: value})
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["field"] == field
    assert says in answer.json()["errors"][0]["message"]
    assert not Correction.objects.exists()
    assert not AuditEntry.objects.filter(kind="budget_counter").exists()


def test_an_id_of_any_length_is_refused_by_the_form(admin):
    filled = form(admin, f"{PAGE}?account={ACME}") | {"units": "3", "reason": "x" * 400}
    answer = admin.post(PAGE, filled | {"given_id": "z" * 5000})
    assert "up to 500 printable characters" in answer.content.decode()
    assert not Correction.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_of_several_at_once_the_audit_tells_each_from_the_one_before(people):
    together, now = Barrier(3), datetime.now(UTC)

    def one(number):
        together.wait(timeout=60)
        try:
            correct(builders.ROOT, ACME, 1.0, f"number {number}", now)
        finally:
            connection.close()

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(one, range(3)))
    told = AuditEntry.objects.filter(kind="budget_counter").values_list("old", "new")
    assert sorted(told) == [(0, 1), (1, 2), (2, 3)]


@pytest.mark.parametrize("role", ["operator", "tenant-admin", "tenant-viewer"])
def test_nobody_else_may(as_, role):
    client = as_(role)
    assert post(client).status_code == 403
    assert client.get(PAGE).status_code == 403
    assert client.get(ADDRESS).status_code == (200 if role == "operator" else 403)
    assert not Correction.objects.exists()


def test_they_are_listed_newest_first_and_by_account(admin):
    for number in range(3):
        post(admin, units=float(number + 1), id=f"n{number}")
    post(admin, account=UMBRELLA, units=9.0, id="u")
    told = admin.get(ADDRESS, {"limit": 2}).json()
    assert [each["id"] for each in told["results"]] == ["u", "n2"]
    assert [each["id"] for each in admin.get(told["next"]).json()["results"]] == ["n1", "n0"]
    assert len(admin.get(ADDRESS, {"account": UMBRELLA}).json()["results"]) == 1
    text = admin.get("/corrections/").content.decode()
    assert ACME in text
    assert "wrong price" in text


# --- the page -----------------------------------------------------------------------------------


def form(admin, address):
    page = admin.get(address)
    assert page.status_code == 200
    fields = page.context["form"]
    return {name: fields[name].value() for name in fields.fields}


def test_the_form_makes_one_even_when_it_is_sent_twice(admin):
    save(100.0, at=datetime.now(UTC))
    filled = form(admin, f"{PAGE}?account={ACME}") | {"units": "-30", "reason": "wrong price"}
    assert filled["accounts"] == ACME
    for _ in range(2):
        assert admin.post(PAGE, filled).status_code == 302
    assert used_now() == 70


def test_a_request_is_taken_back_in_all_its_budgets_in_the_window_it_arrived_in(admin):
    yesterday = datetime.now(UTC) - timedelta(days=1)
    save(100.0, account=ACME, at=yesterday, request_id="req-1", tenant="acme")
    save(5.0, account=ACME, at=yesterday)
    address = f"{PAGE}?record=req-1"
    filled = form(admin, address)
    assert (filled["accounts"], filled["units"]) == ([ACME], "-100")
    assert "req-1" in filled["reason"]
    assert admin.post(address, filled).status_code == 302
    assert sum(BudgetWindow.objects.values_list("used", flat=True)) == 5.0
    assert differences(datetime.now(UTC)) == []
    assert admin.get(f"{PAGE}?record=none").status_code == 404


def test_a_refusal_is_told_beside_its_field(admin):
    filled = form(admin, PAGE) | {"accounts": ACME, "units": "-30", "reason": "why"}
    answer = admin.post(PAGE, filled)
    assert answer.status_code == 200
    assert "no more can be given back" in answer.content.decode()
    assert not Correction.objects.exists()
