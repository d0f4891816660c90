"""Budgets of tiers, tenants, applications and keys; each has exactly one owner."""

from __future__ import annotations

from typing import get_args

from django.db import models
from django.db.models import Q

from tenants.core.snapshot import OnExhausted
from tenants.models.keys import ApiKey
from tenants.models.policy import Tier
from tenants.models.tenancy import Application, Tenant

PERIODS = ["minute", "hour", "day", "week", "month"]
EXHAUSTED = list(get_args(OnExhausted))
OWNERS = ["tier", "tenant", "application", "key"]


def exactly_one_owner() -> Q:
    condition = Q()
    for owner in OWNERS:
        condition |= Q(**{f"{other}__isnull": other != owner for other in OWNERS})
    return condition


class Budget(models.Model):
    tier = models.ForeignKey(
        Tier, on_delete=models.CASCADE, null=True, blank=True, related_name="budgets"
    )
    tenant = models.ForeignKey(
        Tenant, on_delete=models.CASCADE, null=True, blank=True, related_name="budgets"
    )
    application = models.ForeignKey(
        Application, on_delete=models.CASCADE, null=True, blank=True, related_name="budgets"
    )
    key = models.ForeignKey(
        ApiKey, on_delete=models.CASCADE, null=True, blank=True, related_name="budgets"
    )
    name = models.CharField(max_length=63)
    kind = models.CharField(max_length=9)
    cost = models.FloatField()  # service units
    refill_per_second = models.FloatField(null=True, blank=True)  # burst only
    period = models.CharField(max_length=6, blank=True)  # sustained only
    on_exhausted = models.CharField(max_length=6, default="reject")

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(condition=exactly_one_owner(), name="budget_one_owner"),
            models.CheckConstraint(
                # A comparison with null passes a check, so "is not null" is said as well.
                condition=Q(
                    kind="burst",
                    refill_per_second__isnull=False,
                    refill_per_second__gte=0,
                    period="",
                )
                | (
                    Q(kind="sustained", refill_per_second__isnull=True)
                    & (Q(period__in=PERIODS) | Q(period__endswith="d"))  # 90d
                ),
                name="budget_fields_fit_kind",
            ),
            models.CheckConstraint(condition=Q(cost__gte=0), name="budget_cost_not_negative"),
            models.CheckConstraint(
                condition=Q(on_exhausted__in=EXHAUSTED), name="budget_on_exhausted_known"
            ),
            *[
                models.UniqueConstraint(
                    fields=[owner, "name"],
                    condition=Q(**{f"{owner}__isnull": False}),
                    name=f"budget_name_once_per_{owner}",
                )
                for owner in OWNERS
            ],
        ]

    def __str__(self) -> str:
        return self.name
