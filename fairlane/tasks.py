"""Celery's part of what no single room does. Each task can run at any time, and twice."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.contrib.sessions.models import Session
from django.utils import timezone

from fairlane import simulations
from fairlane.celery import app
from metering.alone import alone
from tenants.api import idempotency


@app.task  # the web process sends it too, and must know the broker
def run_simulations() -> int:
    """Those that wait; returns how many were run."""
    return simulations.run_all()


@app.task
@alone
def forget_answers() -> int:
    """Of idempotent orders, after a day; and simulations, after a week."""
    return idempotency.forget() + simulations.forget()


@app.task
@alone
def forget_sessions() -> int:
    """Sessions that are over, and wrong passwords that count no more; returns how many."""
    over: int = Session.objects.filter(expire_date__lt=timezone.now()).delete()[0]
    if not settings.FAIRLANE_LOGIN_ATTEMPTS:
        return over
    from axes.models import AccessAttempt  # not there where sign-in is not throttled

    since = timezone.now() - timedelta(minutes=settings.FAIRLANE_LOGIN_LOCK_MINUTES)
    tried: int = AccessAttempt.objects.filter(attempt_time__lt=since).delete()[0]
    return over + tried
