"""Alerts in the console and over the API: who sees them, who may change what, and its audit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from metering import alerts
from metering.alerts import notices, services
from metering.alerts.rules import rules
from metering.alerts.services import DestinationValues
from metering.alerts.webhook import secret_of
from metering.models import Alert, AlertDelivery, AlertDestination
from tenants.models import AuditEntry
from tests import builders

pytestmark = [pytest.mark.django_db, pytest.mark.store]
V1 = "/api/v1/alerts/"
KINDS = ("endpoint_down", "throttle_rate", "queue_p95")


def raised(kind="endpoint_down", subject="engine <1>"):
    alerts.note(kind, subject, f"{subject} is down", datetime.now(UTC))
    return Alert.objects.get(kind=kind, subject=subject, resolved_at=None)


def text_of(client, page, status=200):
    answer = client.get(page)
    assert answer.status_code == status
    return answer.content.decode()


def audited(kind):
    rows = AuditEntry.objects.filter(kind=kind).order_by("id")
    return [(each.name, each.field, each.old, each.new) for each in rows]


def webhook(name="pager", address="https://hooks.example.com/T0/secret-path"):
    values = DestinationValues(name=name, address=address, shape="webhook")
    return services.create_destination(values, actor=builders.ROOT)


# --- seeing -------------------------------------------------------------------------------------


def test_open_alerts_are_listed_with_a_count_in_the_navigation(admin):
    assert "Nothing is wrong" in text_of(admin, "/alerts/")
    assert 'aria-label="1 waiting"' not in text_of(admin, "/lanes/")
    alert = raised()
    assert 'aria-label="1 waiting"' in text_of(admin, "/lanes/")
    text = text_of(admin, "/alerts/")
    assert "engine &lt;1&gt; is down" in text
    assert f'href="/alerts/{alert.pk}/"' in text
    assert "Nobody is told of alerts" in text


def test_what_was_is_found_by_state_kind_and_object(admin):
    raised()
    raised("throttle_rate", "acme")
    alerts.resolve_others("endpoint_down", (), datetime.now(UTC))
    assert "is down" in text_of(admin, "/alerts/?state=resolved")
    assert "engine &lt;1&gt; is down" not in text_of(admin, "/alerts/")
    assert "acme is down" not in text_of(admin, "/alerts/?state=all&subject=engine")
    assert "acme is down" in text_of(admin, "/alerts/?state=all&kind=throttle_rate")
    assert "No alert matches" in text_of(admin, "/alerts/?subject=nobody")


@pytest.mark.parametrize("role", ["tenant-admin", "tenant-viewer"])
def test_a_tenants_people_see_none_of_it(as_, role):
    alert, client = raised(), as_(role)
    for page in ("/alerts/", f"/alerts/{alert.pk}/", "/alerts/rules/", V1, f"{V1}{alert.pk}/"):
        assert client.get(page).status_code == 403
    assert "waiting" not in text_of(client, "/usage/")


def test_an_operator_looks_and_changes_nothing(as_):
    alert, client = raised(), as_("operator")
    row, _ = webhook()
    assert "Acknowledge" not in text_of(client, "/alerts/")
    assert "secret-path" not in text_of(client, "/alerts/rules/")
    for page in (
        f"/alerts/{alert.pk}/acknowledge/",
        "/alerts/rules/ledger/edit/",
        f"/alerts/destinations/{row.pk}/test/",
        f"/alerts/destinations/{row.pk}/delete/",
        f"/alerts/destinations/{row.pk}/secret/",
        "/alerts/destinations/new/",
        f"{V1}{alert.pk}/acknowledge/",
    ):
        assert client.post(page).status_code == 403
    assert Alert.objects.get().acknowledged_at is None


# --- acknowledging ------------------------------------------------------------------------------


def test_an_admin_acknowledges_with_a_note_and_only_the_first_counts(admin):
    alert = raised()
    admin.post(f"/alerts/{alert.pk}/acknowledge/", {"note": "I restart it"})
    admin.post(f"/alerts/{alert.pk}/acknowledge/", {"note": "me too"})
    alert.refresh_from_db()
    assert (alert.acknowledged_by, alert.note) == ("ada", "I restart it")
    text = text_of(admin, f"/alerts/{alert.pk}/")
    assert "by ada: I restart it" in text
    assert "ada looks after it" in text_of(admin, "/alerts/")
    assert "waiting" not in text_of(admin, "/lanes/")
    assert audited("alert") == [("endpoint_down: engine <1>", "acknowledged", None, True)]


def test_what_is_over_cannot_be_acknowledged(admin):
    alert = raised()
    alerts.resolve_others("endpoint_down", (), datetime.now(UTC))
    answer = admin.post(f"/alerts/{alert.pk}/acknowledge/", follow=True)
    assert "nothing to acknowledge" in answer.content.decode()
    assert admin.post("/alerts/999/acknowledge/").status_code == 404
    assert admin.post(f"{V1}{alert.pk}/acknowledge/", {}, "application/json").status_code == 400


# --- the API ------------------------------------------------------------------------------------


def test_the_api_lists_filters_and_acknowledges(admin):
    for kind in KINDS:
        raised(kind)
    number = Alert.objects.get(kind="queue_p95").pk
    done = admin.post(f"{V1}{number}/acknowledge/", {"note": "mine"}, "application/json")
    assert (done.json()["state"], done.json()["acknowledged_by"]) == ("acknowledged", "ada")
    alerts.resolve_others("throttle_rate", (), datetime.now(UTC))
    for state, kind in zip(("open", "resolved", "acknowledged"), KINDS, strict=True):
        [found] = admin.get(V1, {"state": state}).json()["results"]
        assert (found["state"], found["kind"]) == (state, kind)
    assert len(admin.get(V1, {"q": "ENGINE", "kind": "ledger"}).json()["results"]) == 0
    assert len(admin.get(V1, {"since": "2001-01-01"}).json()["results"]) == 3
    first = admin.get(V1, {"limit": 2}).json()
    assert len(first["results"]) == 2
    assert len(admin.get(first["next"]).json()["results"]) == 1
    one = admin.get(f"{V1}{number}/").json()
    assert (one["label"], one["level"], one["note"]) == ("Long queue time", "warning", "mine")
    assert admin.get(f"{V1}999/").status_code == 404
    for wrong in ({"state": "shut"}, {"kind": "nothing"}, {"unknown": "1"}, {"since": "soon"}):
        assert admin.get(V1, wrong).status_code == 400


def test_the_api_tells_the_rules(admin):
    found = {each["kind"]: each for each in admin.get(f"{V1}rules/").json()}
    assert found["budget_near"]["threshold"] == 0.8
    assert found["ledger"]["threshold"] is None
    assert found["throttle_rate"]["minutes"] == 5


def test_a_rule_is_changed_over_the_api_by_who_saw_it(admin):
    page = f"{V1}rules/budget_near/"
    seen = admin.get(page)
    etag = {"If-Match": seen.headers["etag"]}
    send = {"threshold": 0.7, "reason": "too late"}
    assert admin.patch(page, send, "application/json").status_code == 428
    changed = admin.patch(page, send, "application/json", headers=etag)
    assert (changed.json()["threshold"], changed.json()["level"]) == (0.7, "warning")
    assert admin.patch(page, send, "application/json", headers=etag).status_code == 412
    any_ = {"If-Match": "*"}
    admin.patch(page, {"enabled": False}, "application/json", headers=any_)
    admin.patch(page, {"threshold": None}, "application/json", headers=any_)
    rule = rules()["budget_near"]
    assert (rule.enabled, rule.threshold) == (False, 0.8)
    wrong = admin.patch(page, {"threshold": 2}, "application/json", headers=any_)
    assert wrong.json()["errors"][0]["field"] == "threshold"
    assert admin.get(f"{V1}rules/nothing/").status_code == 404


def test_destinations_are_kept_over_the_api_and_a_secret_is_told_once(admin, as_):
    body = {"name": "pager", "shape": "webhook", "address": "https://hooks.example.com/T0/secret"}
    made = admin.post(f"{V1}destinations/", body, "application/json")
    assert made.status_code == 201, made.json()
    page = f"{V1}destinations/{made.json()['id']}/"
    assert made.json()["secret"] == secret_of(AlertDestination.objects.get())
    assert "no-store" in made.headers["Cache-Control"]
    seen = admin.get(page)
    assert "secret" not in seen.json()
    assert as_("operator").get(page).json()["address"] == "https://hooks.example.com/…"
    etag = {"If-Match": seen.headers["etag"]}
    changed = admin.patch(page, {"only_critical": True}, "application/json", headers=etag)
    assert (changed.json()["only_critical"], changed.json()["address"]) == (True, body["address"])
    assert admin.patch(page, {}, "application/json", headers=etag).status_code == 412
    renewed = admin.post(f"{page}secret/", {}, "application/json").json()["secret"]
    assert renewed != made.json()["secret"]
    assert admin.post(f"{page}test/", {}, "application/json").status_code == 202
    assert AlertDelivery.objects.get().event == "test"
    metadata = {"address": "http://169.254.169.254/"}
    refused = admin.patch(page, metadata, "application/json", headers={"If-Match": "*"})
    assert refused.json()["errors"][0]["field"] == "address"
    assert len(admin.get(f"{V1}destinations/", {"shape": "email"}).json()["results"]) == 0
    assert len(admin.get(f"{V1}destinations/", {"q": "PAG"}).json()["results"]) == 1
    assert admin.delete(f"{page}?reason=gone", headers={"If-Match": "*"}).status_code == 204
    assert admin.get(page).status_code == 404


# --- rules --------------------------------------------------------------------------------------


def test_a_rule_is_edited_in_percent_and_audited_field_by_field(admin):
    page = "/alerts/rules/budget_near/edit/"
    assert 'value="80"' in text_of(admin, page)
    sent = {"enabled": "on", "level": "critical", "threshold": "70", "remind_hours": ""}
    assert admin.post(page, {**sent, "reason": "too late"}).status_code == 302
    rule = rules()["budget_near"]
    assert (rule.level, rule.threshold, rule.remind_hours) == ("critical", 0.7, 12.0)
    assert audited("alert_rule") == [
        ("budget_near", "level", "warning", "critical"),
        ("budget_near", "threshold", 0.8, 0.7),
    ]
    entry = AuditEntry.objects.filter(kind="alert_rule").first()
    assert (entry.actor, entry.source, entry.reason) == ("ada", "page", "too late")
    admin.post(page, {"level": "warning", "threshold": ""})
    rule = rules()["budget_near"]
    assert (rule.enabled, rule.threshold) == (False, 0.8)
    assert "used 80% of its window" in text_of(admin, "/alerts/rules/")


@pytest.mark.parametrize(
    ("kind", "field", "value", "says"),
    [
        ("budget_near", "threshold", "101", "threshold takes 0.01 to 1"),
        ("budget_near", "threshold", "nan", "Enter a number"),
        ("throttle_rate", "minutes", "0", "minutes takes 1 to 60"),
        ("ledger", "remind_hours", "-1", "remind_hours takes 0 to 720"),
        ("ledger", "level", "shrill", "Select a valid choice"),
    ],
)
def test_a_wrong_value_is_told_beside_its_field(admin, kind, field, value, says):
    page = f"/alerts/rules/{kind}/edit/"
    text = admin.post(page, {"enabled": "on", "level": "warning", field: value}).content.decode()
    assert says in text
    assert rules()[kind].enabled
    assert audited("alert_rule") == []
    assert admin.get("/alerts/rules/nothing/edit/").status_code == 404


# --- destinations -------------------------------------------------------------------------------


def new(admin, shape, **fields):
    sent = {"name": "pager", "enabled": "on", **fields}
    return admin.post(f"/alerts/destinations/new/?shape={shape}", sent)


def test_a_webhooks_secret_is_shown_once_and_is_in_no_table_and_no_audit(admin):
    answer = new(admin, "webhook", address="https://hooks.example.com/T0/secret-path")
    row = AlertDestination.objects.get()
    secret = secret_of(row)
    assert secret in answer.content.decode()
    assert "no-store" in answer.headers["Cache-Control"]
    for page in ("/alerts/rules/", f"/alerts/destinations/{row.pk}/edit/", "/audit/"):
        assert secret not in text_of(admin, page)
    kept = str(list(AlertDestination.objects.values())) + str(list(AuditEntry.objects.values()))
    assert secret not in kept
    assert secret.removeprefix("whsec_") not in kept
    entry = AuditEntry.objects.get(kind="destination")
    assert entry.new["address"] == "https://hooks.example.com/…"
    answer = admin.post(f"/alerts/destinations/{row.pk}/secret/", {"reason": "it leaked"})
    again = secret_of(AlertDestination.objects.get())
    assert again in answer.content.decode()
    assert again != secret
    assert audited("destination")[-1] == ("pager", "secret", None, "renewed")


@pytest.mark.parametrize(
    ("shape", "address", "says"),
    [
        ("webhook", "http://169.254.169.254/latest", "link-local and metadata"),
        ("webhook", "http://[fd00:ec2::254]/", "link-local and metadata"),
        ("webhook", "http://metadata.google.internal/", "metadata hosts"),
        ("webhook", "http://0x7f.1/", "neither a name nor a plain IP"),
        ("webhook", "ftp://example.com/", "it takes http://"),
        ("webhook", "https://me:secret@example.com/", "credentials do not belong"),
        ("webhook", "https://example.com/?token=1", "no query"),
        ("email", "nobody", "is no mail address"),
        ("email", "a@example.com, b@", "is no mail address"),
        ("email", "a@example.com\nBcc: x@example.com", "is no mail address"),
    ],
)
def test_addresses_that_are_none_are_refused(admin, shape, address, says):
    text = new(admin, shape, address=address).content.decode()
    assert says in text
    assert not AlertDestination.objects.exists()


def test_a_destination_is_edited_tested_and_deleted(admin):
    assert new(admin, "email", address="a@example.com").status_code == 302
    row = AlertDestination.objects.get()
    assert "already" in new(admin, "email", address="b@example.com").content.decode()
    page = f"/alerts/destinations/{row.pk}/edit/"
    sent = {"name": "list", "address": "b@example.com", "only_critical": "on"}
    assert admin.post(page, sent).status_code == 302
    row.refresh_from_db()
    assert (row.name, row.enabled, row.only_critical) == ("list", False, True)
    fields = [field for _, field, _, _ in audited("destination")]
    assert fields == ["", "name", "address", "enabled", "only_critical"]
    admin.post(f"/alerts/destinations/{row.pk}/test/")
    assert AlertDelivery.objects.get().event == "test"
    assert "waiting" in text_of(admin, "/alerts/rules/")
    assert admin.get(f"/alerts/destinations/{row.pk}/test/").status_code == 405
    assert admin.get(f"/alerts/destinations/{row.pk}/secret/").status_code == 404
    admin.post(f"/alerts/destinations/{row.pk}/delete/", {"reason": "gone"})
    assert not AlertDestination.objects.exists()
    assert audited("destination")[-1][:2] == ("list", "")


def test_an_alerts_page_tells_who_was_told(admin):
    now = datetime.now(UTC)
    webhook()
    alert = raised()
    assert "Nobody" in text_of(admin, f"/alerts/{alert.pk}/")
    notices.queue(now)
    AlertDelivery.objects.update(error="connection refused", due_at=now + timedelta(minutes=1))
    text = text_of(admin, f"/alerts/{alert.pk}/")
    assert "pager" in text
    assert "connection refused; again at" in text


@pytest.mark.parametrize(
    ("subject", "tenant"),
    [
        ("acme", "acme"),
        ("application:acme/nightly/hourly", "acme"),
        ("tenant:globex/hourly", "globex"),
        ("acme in async-batch of demo-chat", "acme"),
        ("http://127.0.0.1:9101/v1 of demo-chat", ""),
        ("tenant:gone/hourly", ""),
    ],
)
def test_an_alert_leads_to_the_tenant_that_it_is_about(admin, subject, tenant):
    text = text_of(admin, f"/alerts/{raised('budget_near', subject).id}/")
    assert (f'href="/tenants/{tenant}/"' in text) == bool(tenant)
