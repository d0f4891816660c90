"""`manage.py usage verify` and `correct`, as an operator and as a script read them."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

import pytest
from django.core.management import CommandError, call_command

from metering.core.windows import window_at
from metering.models import Alert, Correction, GatewayCheck
from metering.services import write_sample
from tenants.models import AuditEntry
from tests.calm import calm_zone
from tests.integration.metering.ledger import ACME, apply_calm_policy, save, set_counter, used

pytestmark = [pytest.mark.django_db, pytest.mark.store]


@pytest.fixture(autouse=True)
def now(db):
    apply_calm_policy()
    now = datetime.now(UTC)
    save(30.0, at=now)
    return now


def run(*words):
    """Exit status and output."""
    out, status = io.StringIO(), 0
    try:
        call_command("usage", *words, stdout=out, stderr=out)
    except SystemExit as end:
        status = end.code
    return status, out.getvalue()


def test_where_all_agrees_it_says_so_and_exits_with_0():
    assert run("verify") == (0, "0 counters differ from the ledger.\n")


def test_a_difference_is_told_and_exits_with_1():
    set_counter(12.5)
    status, text = run("verify")
    assert status == 1
    for part in (f"account={ACME}", "counter=stored", "counted=12.5", "ledger=30", "-17.5"):
        assert part in text
    assert Alert.objects.get().resolved_at is None


def test_repair_mends_exits_with_0_and_ends_the_alert():
    set_counter(12.5)
    run("verify")
    status, text = run("verify", "--repair", "--json", "--reason", "by hand", "--author", "olga")
    [row] = json.loads(text)["differences"]
    assert (status, row["repaired"], row["difference"]) == (0, True, -17.5)
    assert used(at=datetime.now(UTC)) == 30
    assert Alert.objects.get().resolved_at is not None
    entry = AuditEntry.objects.get(kind="budget_counter")
    assert (entry.actor, entry.reason) == ("olga", "by hand")


def test_a_gateway_that_does_not_answer_is_named():
    write_sample("g1", {"gateway": "g1"}, datetime.now(UTC))
    status, text = run("verify", "--json", "--wait", "0")
    assert (status, json.loads(text)["gateways_not_compared"]) == (0, ["g1"])


def test_what_a_gateway_found_is_told_and_sent_to_it(now):
    window = window_at("hour", calm_zone(), now)
    found = {
        "account": ACME,
        "start": window.start.isoformat(),
        "end": window.end.isoformat(),
        "counted": 31,
        "ledger": 30,
        "correction": 0,
    }
    GatewayCheck.objects.create(gateway="g1", at=now, differences=[found])
    status, text = run("verify")
    assert (status, "counter=g1" in text) == (1, True)
    assert run("verify", "--repair")[0] == 0
    row = Correction.objects.get()
    assert (row.counter, row.account, row.units) == ("g1", ACME, -1)


def test_a_correction_says_what_is_used_now():
    status, text = run("correct", "--account", ACME, "--units=-20", "--reason", "wrong price")
    assert (status, text) == (0, f"{ACME}: 10 units used in its window now.\n")
    status, text = run("correct", "--account", ACME, "--units=5", "--reason", "more", "--json")
    assert json.loads(text) == {"account": ACME, "used": 15}
    assert run("verify")[0] == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--account", ACME, "--units=-99", "--reason", "r"], "no more can be given back"),
        (["--account", ACME, "--units=5"], "needs a reason"),
        (["--account", "tenant:nobody/x", "--units=5", "--reason", "r"], "no budget has"),
    ],
)
def test_a_correction_that_cannot_be_is_refused_in_one_line(words, says):
    with pytest.raises(CommandError, match=says):
        run("correct", *words)
    assert used(at=datetime.now(UTC)) == 30
