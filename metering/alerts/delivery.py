"""Sends what is queued: the messages of one destination that are due go out together.

1. A delivery is claimed by moving its attempts; a worker that dies in between is tried again.
   So a message may come twice, and never not at all: its `id` tells a receiver.
2. What fails is tried again, later each time; what was tried `MOST_ATTEMPTS` times is given up,
   which is an alert itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby

import structlog

from metering import alerts
from metering.alerts import mail, webhook
from metering.alerts.message import Message, message_of
from metering.alerts.notices import MOST_ATTEMPTS, next_attempt
from metering.alerts.rules import rules
from metering.models import AlertDelivery, AlertDestination

MOST_AT_ONCE = 50  # in one message
MOST_A_RUN = 500
LONGEST_RUN_S = 20.0  # other tasks wait for this one's worker

log = structlog.get_logger("fairlane.alerts")

Send = Callable[[AlertDestination, Sequence[Message]], None]
SENDERS: Mapping[str, Send] = {"email": mail.send, "webhook": webhook.send}


def send_due(at: datetime) -> int:
    """Returns how many messages went out."""
    due = AlertDelivery.objects.filter(state="waiting", due_at__lte=at)
    rows = due.select_related("alert", "destination").order_by("destination_id", "id")[:MOST_A_RUN]
    until = time.monotonic() + LONGEST_RUN_S
    sent = 0
    for _, of_destination in groupby(rows, lambda delivery: delivery.destination_id):
        waiting = list(of_destination)
        while waiting and time.monotonic() < until:
            batch, waiting = waiting[:MOST_AT_ONCE], waiting[MOST_AT_ONCE:]
            claimed = [delivery for delivery in batch if _claim(delivery, at)]
            sent += _send(claimed[0].destination, claimed, at) if claimed else 0
    return sent


def _claim(delivery: AlertDelivery, at: datetime) -> bool:
    seen = AlertDelivery.objects.filter(id=delivery.id, state="waiting", attempts=delivery.attempts)
    delivery.attempts += 1
    due_at = next_attempt(delivery.attempts, at)
    return bool(seen.update(attempts=delivery.attempts, due_at=due_at))


def _send(destination: AlertDestination, claimed: list[AlertDelivery], at: datetime) -> int:
    known = rules()
    messages = [message_of(delivery, known) for delivery in claimed]
    rows = AlertDelivery.objects.filter(id__in=[delivery.id for delivery in claimed])
    try:
        SENDERS[destination.shape](destination, messages)
    except Exception as error:  # whatever it is, the message waits
        _failed(destination, claimed, str(error) or type(error).__name__, at)
        return 0
    rows.update(state="sent", sent_at=datetime.now(UTC), error="")
    alerts.resolve("undelivered", destination.name, at)
    return len(claimed)


def _failed(
    destination: AlertDestination, claimed: list[AlertDelivery], error: str, at: datetime
) -> None:
    log.warning("alert_not_delivered", destination=destination.name, error=error)
    rows = AlertDelivery.objects.filter(id__in=[delivery.id for delivery in claimed])
    rows.update(error=error[:500])
    given_up = rows.filter(attempts__gte=MOST_ATTEMPTS)
    tests = rows.filter(event="test")  # a person looks at the result: it is not tried again
    if given_up.update(state="failed"):
        told = f"messages to {destination.name} were given up after {MOST_ATTEMPTS} attempts"
        alerts.note("undelivered", destination.name, f"{told}: {error[:300]}", at)
    tests.update(state="failed")
