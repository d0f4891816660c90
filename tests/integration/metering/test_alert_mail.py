"""Alerts by mail to a real server on a socket, as EMAIL_URL names one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from fairlane import environment
from metering import alerts
from metering.alerts import notices, services
from metering.alerts.delivery import send_due
from metering.alerts.services import DestinationValues
from metering.models import AlertDelivery
from tests import builders
from tests.integration.metering.ledger import AT
from tests.integration.metering.smtp import MailServer

pytestmark = [pytest.mark.django_db, pytest.mark.store]
SUBJECT = "application:acme/nightly/hourly"


@pytest.fixture
def server(settings: Any) -> Iterator[MailServer]:
    with MailServer() as server:
        settings.EMAIL_URL = f"smtp://fairlane:s3cret@127.0.0.1:{server.port}"
        settings.DEFAULT_FROM_EMAIL = "fairlane@example.com"
        settings.FAIRLANE_URL = "https://fairlane.example"
        for name, value in environment.mail(settings.EMAIL_URL).items():
            setattr(settings, name, value)
        yield server


@pytest.fixture
def raised(server: MailServer) -> None:
    made = DestinationValues(name="on call", address="call@example.com, ops@example.com")
    services.create_destination(made, actor=builders.ROOT)
    text = f"{SUBJECT} has used 85% of its 5,000 units; its window ends at 2026-11-29T13:00Z"
    alerts.note("budget_near", SUBJECT, text, AT)
    notices.queue(AT)


@pytest.mark.usefixtures("raised")
def test_a_mail_is_taken_by_the_server_whole_and_in_words(server: MailServer) -> None:
    assert send_due(AT) == 1
    [mail] = server.received
    assert (mail.sender, mail.login) == ("fairlane@example.com", "fairlane s3cret")
    assert mail.to == ["call@example.com", "ops@example.com"]
    message = mail.message
    words = "budget hourly of application nightly of acme"
    assert message["subject"] == f"[Fairlane] Budget nearly used up: {words}"
    assert message["auto-submitted"] == "auto-generated"
    lines = message.get_content().splitlines()
    assert lines[1].startswith(f"B{words[1:]} has used 85%")
    assert lines[1].endswith("its window ends at 29 Nov 13:00 UTC.")
    assert any(line.startswith("https://fairlane.example/alerts/") for line in lines)
    assert AlertDelivery.objects.get().state == "sent"


@pytest.mark.usefixtures("raised")
def test_what_the_server_does_not_take_now_is_sent_when_it_does(server: MailServer) -> None:
    server.refusal = "451 try later"
    assert send_due(AT) == 0
    waiting = AlertDelivery.objects.get()
    assert (waiting.state, waiting.attempts) == ("waiting", 1)
    assert "try later" in waiting.error
    server.refusal = ""
    assert send_due(AT + timedelta(minutes=1)) == 1
    assert len(server.received) == 1
