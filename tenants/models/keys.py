"""API keys. The public id stays through rotations; only digests of secrets are ever stored."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

from django.db import models
from django.db.models import Q
from django.utils import timezone

from tenants.core.keys import masked
from tenants.models.tenancy import Application, Tenant

SOON = timedelta(days=14)  # so near an expiry somebody should have a look


State = Literal["active", "expired", "revoked"]


def state_of(expires_at: datetime | None, revoked_at: datetime | None) -> State:
    """Of a key or a token, now."""
    if revoked_at is not None:
        return "revoked"
    return "expired" if expires_at is not None and expires_at <= timezone.now() else "active"


def in_state(state: State) -> Q:
    """The rows of which `state_of` says so."""
    now = timezone.now()
    if state == "revoked":
        return Q(revoked_at__isnull=False)
    if state == "expired":
        return Q(revoked_at=None, expires_at__lte=now)
    return Q(revoked_at=None) & (Q(expires_at=None) | Q(expires_at__gt=now))


class ApiKey(models.Model):
    public_id = models.CharField(max_length=12, unique=True)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="keys")
    application = models.ForeignKey(
        Application, on_delete=models.PROTECT, null=True, blank=True, related_name="keys"
    )
    name = models.CharField(max_length=100, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.CharField(max_length=150)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)  # to the minute; by the roll-up

    class Meta:
        verbose_name = "API key"
        verbose_name_plural = "API keys"
        ordering = ["-created_at", "-id"]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="key_newest"),
            models.Index(fields=["tenant", "-created_at", "-id"], name="key_newest_of_tenant"),
        ]

    def __str__(self) -> str:
        return self.masked

    @property
    def masked(self) -> str:
        return masked(self.public_id)

    @property
    def state(self) -> State:
        return state_of(self.expires_at, self.revoked_at)

    @property
    def expires_soon(self) -> bool:
        ends = self.expires_at
        return self.state == "active" and ends is not None and ends <= timezone.now() + SOON


class KeySecret(models.Model):
    """One accepted secret of a key; those before the last rotation end with their grace."""

    key = models.ForeignKey(ApiKey, on_delete=models.CASCADE, related_name="secrets")
    digest = models.CharField(max_length=64, unique=True)  # SHA-256 of the whole key text, hex
    created_at = models.DateTimeField(default=timezone.now)
    accepted_until = models.DateTimeField(null=True, blank=True)  # null: the current one

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["key"], condition=Q(accepted_until__isnull=True), name="key_one_current"
            ),
        ]

    def __str__(self) -> str:
        return f"secret of {self.key_id}"
