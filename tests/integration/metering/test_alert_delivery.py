"""Who is told of an alert: once when it opens, again on time, once when it is over; by e-mail and
by a signed POST to a real receiver; tried again while that is away."""

from __future__ import annotations

import hmac
import json
import threading
import time
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from django.core import mail

from metering import alerts, tasks
from metering.alerts import delivery as delivery_of
from metering.alerts import notices, services, webhook
from metering.alerts.delivery import send_due
from metering.alerts.services import DestinationValues, RuleValues
from metering.models import Alert, AlertDelivery, AlertDestination, GatewaySample
from tests import builders
from tests.integration.metering.ledger import AT

pytestmark = [pytest.mark.django_db, pytest.mark.store]


@pytest.fixture(autouse=True)
def mail_is_set_up(settings):
    settings.EMAIL_URL = "smtp://127.0.0.1:25"
    settings.FAIRLANE_URL = "https://fairlane.example/"
    mail.outbox = []


def minutes(number):
    return timedelta(minutes=number)


def by_mail(name="on call", address="call@example.com, ops@example.com", **values):
    made = DestinationValues(name=name, address=address, **values)
    return services.create_destination(made, actor=builders.ROOT)[0]


def raised(kind="endpoint_down", subject="http://10.0.0.1/v1", at=AT):
    alerts.note(kind, subject, f"{subject} does not answer", at)
    return Alert.objects.get(kind=kind, subject=subject, resolved_at=None)


def go(at=AT):
    """What the two tasks do at that moment: the messages that went out by mail."""
    notices.queue(at)
    send_due(at)
    sent, mail.outbox = mail.outbox, []
    return [message.subject for message in sent]


# --- once ---------------------------------------------------------------------------------------


def test_an_alert_is_told_once_however_often_it_is_seen():
    by_mail()
    raised()
    assert go() == ["[Fairlane] Endpoint is down: http://10.0.0.1/v1"]
    raised(at=AT + minutes(1))
    assert go(AT + minutes(1)) == []
    assert AlertDelivery.objects.get().state == "sent"


def test_the_mail_says_what_where_since_when_and_what_to_do():
    by_mail()
    alert = raised()
    notices.queue(AT)
    send_due(AT)
    [message] = mail.outbox
    assert message.to == ["call@example.com", "ops@example.com"]
    assert message.extra_headers["Auto-Submitted"] == "auto-generated"
    for part in (
        "http://10.0.0.1/v1 does not answer.",
        "start it again, or take the endpoint out of its pool",
        "Since 2026-11-29 12:30:15 UTC. Level: critical.",
        f"https://fairlane.example/alerts/{alert.pk}/",
    ):
        assert part in message.body


def test_it_is_told_again_when_it_has_been_over():
    by_mail()
    raised()
    go()
    alerts.resolve_others("endpoint_down", (), AT + minutes(1))
    assert go(AT + minutes(1)) == ["[Fairlane] Over: Endpoint is down: http://10.0.0.1/v1"]
    assert go(AT + minutes(2)) == []
    raised(at=AT + minutes(3))
    assert go(AT + minutes(3)) == ["[Fairlane] Endpoint is down: http://10.0.0.1/v1"]


def test_a_reminder_comes_after_its_time_until_somebody_acknowledges_it():
    by_mail()
    alert = raised()
    go()
    assert go(AT + timedelta(hours=11)) == []
    again = ["[Fairlane] Still: Endpoint is down: http://10.0.0.1/v1"]
    assert go(AT + timedelta(hours=12)) == again
    assert go(AT + timedelta(hours=13)) == []
    assert go(AT + timedelta(hours=24)) == again
    services.acknowledge(alert.pk, "", AT, actor=builders.ROOT)
    assert go(AT + timedelta(hours=99)) == []
    rule = RuleValues(remind_hours=0.0)
    services.edit_rule("endpoint_down", rule, actor=builders.ROOT)
    raised(subject="another", at=AT)
    go()
    assert go(AT + timedelta(days=9)) == []


def test_many_at_once_are_one_message():
    by_mail()
    for number in range(12):
        raised(subject=f"e{number}")
    raised("throttle_rate", "acme")
    assert go() == ["[Fairlane] 13 alerts (12 critical)"]
    alerts.resolve_others("endpoint_down", (), AT)
    assert go() == ["[Fairlane] 12 alerts (12 over)"]


def test_what_was_over_before_anybody_was_told_is_not_told():
    by_mail()
    raised()
    alerts.resolve_others("endpoint_down", (), AT)
    assert go() == []


def test_the_tasks_find_tell_and_send():
    by_mail()
    GatewaySample.objects.create(gateway="g1", at=AT, state={})  # and none since
    assert tasks.watch_alerts() == 1
    assert tasks.send_alerts() == 1
    assert mail.outbox[0].subject == "[Fairlane] No gateway is running: gateways"
    assert (tasks.watch_alerts(), tasks.send_alerts()) == (1, 0)


# --- who ----------------------------------------------------------------------------------------


def test_each_destination_takes_what_it_wants():
    by_mail("pager", "pager@example.com", only_critical=True)
    by_mail("list", "list@example.com")
    by_mail("old", "old@example.com", enabled=False)
    raised("throttle_rate", "acme")
    notices.queue(AT)
    names = AlertDelivery.objects.values_list("destination__name", flat=True)
    assert list(names) == ["list"]
    raised()
    notices.queue(AT)
    assert sorted(names.all()) == ["list", "list", "pager"]


def test_a_rule_that_is_off_tells_nobody():
    by_mail()
    services.edit_rule("ledger", RuleValues(enabled=False), actor=builders.ROOT)
    raised("ledger", "tenant:acme/hourly (stored)")
    assert go() == []


def test_two_workers_at_once_queue_and_send_one():
    by_mail()
    raised()
    stale = list(Alert.objects.all())
    assert notices.queue(AT) == 1
    assert notices._queue(stale[0], "opened", [], {"told_at": None}, {"told_at": AT}, AT) == 0
    [delivery] = AlertDelivery.objects.all()
    assert send_due(AT) == 1
    assert not delivery_of._claim(delivery, AT)


# --- failures -----------------------------------------------------------------------------------


def test_without_a_mail_server_it_waits_is_tried_again_and_given_up_with_an_alert(settings):
    settings.EMAIL_URL = ""
    by_mail()
    raised()
    at, gaps = AT, []
    notices.queue(at)
    for _ in range(notices.MOST_ATTEMPTS):
        send_due(at)
        delivery = AlertDelivery.objects.get(event="opened", alert__kind="endpoint_down")
        assert "EMAIL_URL is unset" in delivery.error
        gaps.append((delivery.due_at - at).total_seconds())
        at = delivery.due_at
    assert gaps[:4] == [30, 60, 120, 240]
    assert delivery.state == "failed"
    given_up = Alert.objects.get(kind="undelivered")
    assert given_up.subject == "on call"
    notices.queue(at)
    assert AlertDelivery.objects.count() == 1  # that one is not told to who cannot be told
    settings.EMAIL_URL = "smtp://127.0.0.1:25"
    raised(subject="another")
    assert go(at) == ["[Fairlane] Endpoint is down: another"]
    given_up.refresh_from_db()
    assert given_up.resolved_at is not None


def test_a_test_message_fails_at_once_and_raises_nothing(settings):
    settings.EMAIL_URL = ""
    row = by_mail()
    services.send_test(row.pk, AT, actor=builders.ROOT)
    send_due(AT)
    assert AlertDelivery.objects.get().state == "failed"
    settings.EMAIL_URL = "smtp://127.0.0.1:25"
    services.send_test(row.pk, AT, actor=builders.ROOT)
    assert go() == ["[Fairlane] Test message: on call"]
    assert not Alert.objects.exists()


# --- webhooks -----------------------------------------------------------------------------------


class Receiver:
    """A real HTTP server that keeps what it is sent, and answers as it is told."""

    def __init__(self):
        self.got, self.status = [], 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.path, dict(self.headers), body))
                receiver.answer(self)

            def log_message(self, *args):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://localhost:{self.server.server_port}/hook/"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def answer(self, handler):
        handler.send_response(self.status)
        handler.send_header("Location", "http://169.254.169.254/latest/")
        handler.end_headers()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver():
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def hook(receiver):
    values = DestinationValues(name="pager", address=receiver.url, shape="webhook")
    return services.create_destination(values, actor=builders.ROOT)


def test_a_webhook_is_posted_signed_with_the_secret_that_was_shown(receiver, hook):
    _, secret = hook
    alert = raised()
    go()
    [(path, headers, body)] = receiver.got
    assert path == "/hook/"
    assert headers["Host"] == receiver.url.split("/")[2]
    signed = headers["X-Fairlane-Timestamp"].encode() + b"." + body
    made = hmac.new(secret.encode(), signed, sha256).hexdigest()
    assert headers["X-Fairlane-Signature"] == f"v1={made}"
    told = json.loads(body)
    [event] = told["events"]
    assert told["version"] == 1
    assert (event["event"], event["alert"], event["level"]) == ("opened", alert.pk, "critical")
    assert event["first_at"] == "2026-11-29T12:30:15Z"
    assert event["url"] == f"https://fairlane.example/alerts/{alert.pk}/"
    assert event["id"] == f"delivery-{AlertDelivery.objects.get().pk}"


def test_a_new_secret_signs_from_then_on(receiver, hook):
    row, old = hook
    row, new = services.new_secret(row.pk, actor=builders.ROOT)
    assert new != old
    raised()
    go()
    [(_, headers, body)] = receiver.got
    signed = webhook.signature(new, headers["X-Fairlane-Timestamp"], body)
    assert headers["X-Fairlane-Signature"] == signed


@pytest.mark.parametrize("status", [302, 404, 503])
def test_only_a_success_is_one_and_no_redirect_is_followed(receiver, hook, status):
    receiver.status = status
    raised()
    go()
    delivery = AlertDelivery.objects.get()
    assert (delivery.state, delivery.attempts) == ("waiting", 1)
    assert f"answered with {status}" in delivery.error
    receiver.status = 204
    go(delivery.due_at)
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts, len(receiver.got)) == ("sent", 2, 2)
    ids = {json.loads(body)["events"][0]["id"] for _, _, body in receiver.got}
    assert len(ids) == 1  # so a receiver knows it again


def test_one_destination_that_is_away_keeps_no_other_from_being_told(hook):
    AlertDestination.objects.update(address="http://127.0.0.1:9/away")
    by_mail()
    raised()
    assert go() == ["[Fairlane] Endpoint is down: http://10.0.0.1/v1"]


def test_a_receiver_that_answers_byte_by_byte_keeps_no_other_from_being_told(
    receiver, hook, monkeypatch
):
    monkeypatch.setattr(webhook, "WHOLE_S", 0.5)
    receiver.answer = byte_by_byte
    by_mail()
    raised()
    assert go() == ["[Fairlane] Endpoint is down: http://10.0.0.1/v1"]
    delivery = AlertDelivery.objects.get(destination__shape="webhook")
    assert (delivery.state, delivery.error) == ("waiting", "no whole answer within 0.5 s")


def byte_by_byte(handler):
    """A head that never ends, until the caller leaves."""
    with suppress(OSError):
        while True:
            handler.wfile.write(b"H")
            time.sleep(0.02)


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1%eth0", "100.100.100.200"])
def test_a_name_that_leads_to_credentials_is_not_called(receiver, hook, monkeypatch, address):
    found = [(2, 1, 6, "", ("127.0.0.1", 80)), (2, 1, 6, "", (address, 80))]
    monkeypatch.setattr(webhook.socket, "getaddrinfo", lambda *_, **__: found)
    raised()
    go()
    assert receiver.got == []
    assert "are refused" in AlertDelivery.objects.get().error
