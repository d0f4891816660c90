"""Celery's part of what no single room does. Each task can run at any time, and twice."""

from __future__ import annotations

from fairlane import simulations
from fairlane.celery import app
from tenants.api import idempotency


@app.task  # the web process sends it too, and must know the broker
def run_simulations() -> int:
    """Those that wait; returns how many were run."""
    return simulations.run_all()


@app.task
def forget_answers() -> int:
    """Of idempotent orders, after a day; and simulations, after a week."""
    return idempotency.forget() + simulations.forget()
