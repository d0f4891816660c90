"""How people and programs prove who they are to the console and the admin API.

1. A token's text is told once; only its digest is stored, and what a call is looked up by.
2. A personal token has the role of its person, whatever that is at the moment of a call; a service
   token has a role of its own. Both end.
3. A recovery code works once: it is deleted as it is used.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from tenants.core.tokens import masked
from tenants.models.keys import State, state_of
from tenants.models.tenancy import Role, Tenant


class AccessToken(models.Model):
    """A token for the admin API: a person's (`user` is set) or a service's (`name`, `role`)."""

    public_id = models.CharField(max_length=12, unique=True)
    digest = models.CharField(max_length=64, unique=True)  # SHA-256 of the whole text, hex
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="access_tokens",
    )
    name = models.CharField(max_length=63, blank=True)
    role = models.CharField(max_length=16, choices=Role.choices, blank=True)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, null=True, blank=True, related_name="access_tokens"
    )
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.CharField(max_length=150)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(user__isnull=False, role="", tenant__isnull=True)
                | Q(user__isnull=True, role__in=["admin", "operator"], tenant__isnull=True)
                | Q(
                    user__isnull=True,
                    role__in=["tenant-admin", "tenant-viewer"],
                    tenant__isnull=False,
                ),
                name="token_of_user_or_with_role",
            ),
            models.UniqueConstraint(
                fields=["user"], condition=Q(revoked_at__isnull=True), name="token_one_per_user"
            ),
            models.UniqueConstraint(
                fields=["name"], condition=Q(user__isnull=True), name="token_name_once"
            ),
        ]

    def __str__(self) -> str:
        return self.masked

    @property
    def masked(self) -> str:
        return masked(self.public_id)

    @property
    def state(self) -> State:
        return state_of(self.expires_at, self.revoked_at)


class RecoveryCode(models.Model):
    """Instead of a code from the authenticator, once, where that is lost."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="recovery_codes"
    )
    digest = models.CharField(max_length=64)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "digest"], name="recovery_code_once"),
        ]

    def __str__(self) -> str:
        return f"recovery code of {self.user_id}"
