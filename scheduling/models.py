"""Simulations that were ordered through the admin API, and what came of them; counters that are
kept for a Redis that loses them."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone

STATES = ["queued", "running", "done", "failed"]


class Simulation(models.Model):
    """One runs at a time, whichever worker runs it: background work must not wait for it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    asked_by = models.CharField(max_length=160)
    asked_at = models.DateTimeField(default=timezone.now)
    order = models.JSONField()
    state = models.CharField(max_length=7, default="queued")
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    result = models.JSONField(null=True, blank=True)
    fault = models.TextField(blank=True)

    class Meta:
        ordering = ["-asked_at", "-id"]
        indexes = [models.Index(fields=["-asked_at", "-id"], name="simulation_newest")]
        constraints = [
            models.CheckConstraint(condition=Q(state__in=STATES), name="simulation_state_known"),
            models.UniqueConstraint(
                fields=["state"], condition=Q(state="running"), name="simulation_one_running"
            ),
        ]

    def __str__(self) -> str:
        return f"simulation {self.id} ({self.state})"


class PoolCounters(models.Model):
    """A pool's virtual counters of the moment `at`, for a Redis that loses them."""

    pool = models.CharField(primary_key=True)
    at = models.DateTimeField()
    lanes = models.JSONField()
    open = models.JSONField()  # what each request that was open had been charged

    class Meta:
        verbose_name = "virtual counters of a pool"
        verbose_name_plural = "virtual counters of pools"

    def __str__(self) -> str:
        return f"{self.pool} at {self.at:%Y-%m-%d %H:%M:%S}"
