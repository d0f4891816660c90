"""Alerts by e-mail, through Django's mail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.conf import settings
from django.core.mail import EmailMessage

from metering.alerts.message import Message
from metering.core.prose import in_words
from metering.models import AlertDestination

HEADERS = {"Auto-Submitted": "auto-generated", "X-Auto-Response-Suppress": "All"}


class NoMailServer(Exception):
    """Mail is not set up."""


def send(destination: AlertDestination, messages: Sequence[Message]) -> None:
    """Raises NoMailServer, OSError, smtplib.SMTPException."""
    if not settings.EMAIL_URL:
        raise NoMailServer("EMAIL_URL is unset; it takes smtp://user:password@host:25")
    EmailMessage(
        subject=f"[Fairlane] {subject(messages)}",
        body="\n\n".join("\n".join(lines(each)) for each in messages) + "\n",
        to=[each.strip() for each in destination.address.split(",")],
        headers=HEADERS,
    ).send()


def subject(messages: Sequence[Message]) -> str:
    """One line, whatever a name holds."""
    if len(messages) == 1:
        return " ".join(in_words(messages[0].title).split())[:180]
    critical = sum(each.level == "critical" and each.event != "resolved" for each in messages)
    over = sum(each.event == "resolved" for each in messages)
    parts = [f"{critical} critical"] if critical else []
    parts += [f"{over} over"] if over else []
    return f"{len(messages)} alerts" + (f" ({', '.join(parts)})" if parts else "")


def lines(message: Message) -> Iterator[str]:
    yield in_words(message.title)
    told = in_words(message.message)
    yield told if told.endswith(".") else f"{told}."
    if message.event != "resolved" and message.do:
        yield message.do
    if message.first_at:
        told = f"Since {message.first_at:%Y-%m-%d %H:%M:%S} UTC"
        if message.resolved_at:
            told += f", over since {message.resolved_at:%Y-%m-%d %H:%M:%S} UTC"
        yield told + f". Level: {message.level}."
    if message.url:
        yield message.url
