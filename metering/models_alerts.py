"""Alerts: what a person should look at, the rules that raise them, and who is told.

An `Alert` is one condition of one object from its beginning to its end. A `Delivery` is one message
about it to one destination, kept until it is through: the queue is the table, so a worker that dies
loses nothing.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from metering.core.alert_kinds import KINDS, LEVELS, label

SHAPES = ("email", "webhook")
EVENTS = ("opened", "reminder", "resolved", "test")
STATES = ("waiting", "sent", "failed")


class Alert(models.Model):
    """Something that a person should look at; open until `resolved_at`."""

    kind = models.CharField()  # of metering.core.alert_kinds
    subject = models.CharField()
    message = models.TextField()
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    count = models.PositiveIntegerField(default=1)
    resolved_at = models.DateTimeField(null=True, blank=True)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.CharField(blank=True, default="")
    note = models.TextField(blank=True, default="")  # of who acknowledged it
    told_at = models.DateTimeField(null=True, blank=True)  # when messages were last queued
    reminders = models.PositiveIntegerField(default=0)
    end_told = models.BooleanField(default=False)

    class Meta:
        indexes = [
            models.Index(fields=["last_at"], name="alert_last_at"),
            models.Index(fields=["-first_at", "-id"], name="alert_newest"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "subject"],
                condition=Q(resolved_at=None),
                name="alert_open_once_a_subject",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}"

    @property
    def label(self) -> str:
        return label(self.kind)

    @property
    def do(self) -> str:
        """What whoever sees it may do about it."""
        kind = KINDS.get(self.kind)
        return kind.do if kind else ""


class AlertRule(models.Model):
    """Where an admin wants a kind of alert otherwise than `alert_kinds` says; null: as it says."""

    kind = models.CharField(unique=True)
    enabled = models.BooleanField(default=True)
    level = models.CharField(blank=True, default="")
    threshold = models.FloatField(null=True, blank=True)
    minutes = models.PositiveIntegerField(null=True, blank=True)
    remind_hours = models.FloatField(null=True, blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(level__in=["", *LEVELS]), name="alert_rule_level"),
        ]

    def __str__(self) -> str:
        return self.kind


class AlertDestination(models.Model):
    """Who is told. A webhook's secret is derived from SECRET_KEY and `salt`, never stored."""

    name = models.CharField(unique=True)
    shape = models.CharField(default="email")
    address = models.TextField()  # mail addresses with commas between them, or one URL
    enabled = models.BooleanField(default=True)
    only_critical = models.BooleanField(default=False)
    salt = models.CharField(blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(shape__in=SHAPES), name="alert_destination_shape"),
        ]

    def __str__(self) -> str:
        return self.name


class AlertDelivery(models.Model):
    """One message: `event` of `alert` to `destination`; `number` tells reminders apart."""

    alert = models.ForeignKey(
        Alert, on_delete=models.CASCADE, null=True, blank=True, related_name="deliveries"
    )  # null: a test message
    destination = models.ForeignKey(
        AlertDestination, on_delete=models.CASCADE, related_name="deliveries"
    )
    event = models.CharField()
    number = models.PositiveIntegerField(default=0)
    state = models.CharField(default="waiting")
    attempts = models.PositiveIntegerField(default=0)
    due_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True, blank=True)
    error = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name_plural = "alert deliveries"
        indexes = [models.Index(fields=["state", "due_at"], name="alert_delivery_due")]
        constraints = [
            models.UniqueConstraint(
                fields=["alert", "destination", "event", "number"],
                name="alert_told_once",
            ),
            models.CheckConstraint(condition=Q(event__in=EVENTS), name="alert_delivery_event"),
            models.CheckConstraint(condition=Q(state__in=STATES), name="alert_delivery_state"),
        ]

    def __str__(self) -> str:
        return f"{self.event} to {self.destination_id}"
