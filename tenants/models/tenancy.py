"""Who is asking: tenants, their applications, and the people who belong to them.

A tenant or application that leaves the policy keeps its row with `in_policy=False`, so that its
keys and members come back when the policy is rolled back.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from tenants.models.policy import OVERLOAD, Lane, LimitColumns, Tier


class Tenant(LimitColumns):
    """Null or empty overrides mean: as in the tier."""

    name = models.CharField(max_length=63, unique=True)
    in_policy = models.BooleanField(default=True)
    enabled = models.BooleanField(default=True)
    timezone = models.CharField(max_length=64, default="UTC")
    tier = models.ForeignKey(
        Tier, on_delete=models.PROTECT, null=True, blank=True, related_name="tenants"
    )
    weight = models.FloatField(null=True, blank=True)
    lane = models.ForeignKey(
        Lane, on_delete=models.PROTECT, null=True, blank=True, related_name="tenants"
    )
    allowed_lanes = models.JSONField(null=True, blank=True)
    model_patterns = models.JSONField(null=True, blank=True)
    on_overload = models.CharField(max_length=8, blank=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(in_policy=False) | Q(tier__isnull=False), name="tenant_has_tier"
            ),
            models.CheckConstraint(
                condition=Q(weight__isnull=True) | Q(weight__gt=0), name="tenant_weight_positive"
            ),
            models.CheckConstraint(
                condition=Q(on_overload__in=["", *OVERLOAD]), name="tenant_on_overload_known"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Application(models.Model):
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="applications")
    name = models.CharField(max_length=63)
    in_policy = models.BooleanField(default=True)
    lane = models.ForeignKey(
        Lane, on_delete=models.PROTECT, null=True, blank=True, related_name="applications"
    )
    weight = models.FloatField(default=1.0)

    class Meta:
        ordering = ["tenant", "name"]
        constraints = [
            models.UniqueConstraint(
                fields=["tenant", "name"], name="application_name_once_per_tenant"
            ),
            models.CheckConstraint(condition=Q(weight__gt=0), name="application_weight_positive"),
        ]

    def __str__(self) -> str:
        return f"{self.tenant}/{self.name}"


class Role(models.TextChoices):
    ADMIN = "admin"
    OPERATOR = "operator"
    TENANT_ADMIN = "tenant-admin"
    TENANT_VIEWER = "tenant-viewer"


class Membership(models.Model):
    """The one role of one person, and how they must sign in; tenant roles belong to exactly one
    tenant."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="membership"
    )
    role = models.CharField(max_length=16, choices=Role.choices)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, null=True, blank=True, related_name="memberships"
    )
    must_change_password = models.BooleanField(default=False)  # it was made up by somebody else
    must_use_totp = models.BooleanField(default=False)
    sessions_since = models.DateTimeField(null=True, blank=True)  # those begun earlier have ended
    from_sso = models.BooleanField(default=False)  # the role follows the identity provider's claim

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(role__in=["admin", "operator"], tenant__isnull=True)
                | Q(role__in=["tenant-admin", "tenant-viewer"], tenant__isnull=False),
                name="membership_tenant_iff_tenant_role",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user} ({self.role})"
