"""What metering keeps: usage records, budget windows, live samples; roll-ups: `models_rollup`,
alerts: `models_alerts`.

Every counter is derived from `UsageRow` and `Correction`; budget windows and roll-ups can be
rebuilt from them.
Text has no length limit: a value that a caller chose must not be able to stop the ledger.
"""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from metering.models_alerts import (
    Alert,
    AlertDelivery,
    AlertDestination,
    AlertRule,
)
from metering.models_rollup import (
    LiveDay,
    LiveHour,
    LiveMinute,
    LiveQuarter,
    TenantDay,
    TenantHour,
    TouchedMinute,
    TouchedQuarter,
    UsageDay,
    UsageHour,
    UsageMinute,
    UsageQuarter,
)

__all__ = [
    "Alert",
    "AlertDelivery",
    "AlertDestination",
    "AlertRule",
    "BudgetWindow",
    "Correction",
    "GatewayCheck",
    "GatewaySample",
    "Learnt",
    "LiveDay",
    "LiveHour",
    "LiveMinute",
    "LiveQuarter",
    "TenantDay",
    "TenantHour",
    "TouchedMinute",
    "TouchedQuarter",
    "UsageDay",
    "UsageHour",
    "UsageMinute",
    "UsageQuarter",
    "UsageRow",
]


class UsageRow(models.Model):
    """One `metering.core.record.UsageRecord`, field for field."""

    request_id = models.CharField()
    at = models.DateTimeField()
    tenant = models.CharField()
    application = models.CharField(blank=True, default="")
    key = models.CharField(blank=True, default="")
    model = models.CharField(blank=True, default="")
    lane = models.CharField(blank=True, default="")
    interaction = models.CharField(blank=True, default="")
    endpoint = models.CharField(blank=True, default="")
    prompt_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    completion_tokens = models.BigIntegerField(default=0)
    usage_source = models.CharField(default="estimated")
    cost = models.FloatField(default=0.0)
    estimated_cost = models.FloatField(default=0.0)
    queue_ms = models.FloatField(default=0.0)
    ttft_ms = models.FloatField(null=True, blank=True)
    e2e_ms = models.FloatField(default=0.0)
    status = models.IntegerField(default=200)
    finish_reason = models.CharField(default="stop")
    throttle_reason = models.CharField(blank=True, default="")
    policy_revision = models.BigIntegerField(default=0)
    accounts = models.JSONField(default=list, blank=True)

    class Meta:
        verbose_name = "usage record"
        verbose_name_plural = "usage records"
        indexes = [
            models.Index(fields=["tenant", "at"], name="usage_tenant_at"),
            models.Index(fields=["at"], name="usage_at"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["request_id"], name="usage_one_row_a_request"),
            models.CheckConstraint(
                condition=Q(prompt_tokens__gte=0, cached_tokens__gte=0, completion_tokens__gte=0),
                name="usage_tokens_not_negative",
            ),
            models.CheckConstraint(
                condition=Q(cost__gte=0, estimated_cost__gte=0), name="usage_cost_not_negative"
            ),
        ]

    def __str__(self) -> str:
        return self.request_id


class BudgetWindow(models.Model):
    """What one sustained budget's account used in one calendar window, in service units.

    Two windows of one account may begin at the same instant when its period was changed.
    """

    account = models.CharField()
    window_start = models.DateTimeField()
    window_end = models.DateTimeField()
    used = models.FloatField(default=0.0)

    class Meta:
        indexes = [models.Index(fields=["window_end"], name="budget_window_end")]
        constraints = [
            models.UniqueConstraint(
                fields=["account", "window_start", "window_end"], name="budget_one_row_a_window"
            ),
            models.CheckConstraint(
                condition=Q(window_end__gt=F("window_start")), name="budget_window_has_length"
            ),
            models.CheckConstraint(condition=Q(used__gte=0), name="budget_used_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.account} from {self.window_start:%Y-%m-%d %H:%M}"


class GatewaySample(models.Model):
    """The live state of one gateway process at one moment (docs/architecture.md, "Live state")."""

    gateway = models.CharField()
    at = models.DateTimeField()
    state = models.JSONField()

    class Meta:
        indexes = [
            models.Index(fields=["at"], name="sample_at"),
            models.Index(fields=["gateway", "at"], name="sample_gateway_at"),
        ]

    def __str__(self) -> str:
        return f"{self.gateway} {self.at:%H:%M:%S}"


class Correction(models.Model):
    """What somebody added to or took from one sustained budget's use, in service units.

    Without a `counter` it is an entry of the ledger, as a usage record is. With one it is none:
    only that counter was off by so much, the stored one or a gateway's own. Rows come in the order
    of their ids (each is written under the lock of the policy's version), so a gateway knows them
    by the newest it saw.
    """

    account = models.CharField()
    at = models.DateTimeField()  # the window that it counts in
    units = models.FloatField()
    counter = models.CharField(blank=True, default="")  # "stored", or a gateway's name
    given_id = models.CharField(null=True, blank=True, unique=True)
    actor = models.CharField()
    reason = models.TextField()
    made_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [
            models.Index(fields=["account", "at"], name="correction_account_at"),
            models.Index(fields=["at"], name="correction_at"),
        ]
        constraints = [
            models.CheckConstraint(condition=~Q(units=0), name="correction_is_not_nothing"),
        ]

    def __str__(self) -> str:
        return f"{self.account} {self.units:+g}"


class GatewayCheck(models.Model):
    """How one gateway's live counters compare with the ledger: those that differ."""

    gateway = models.CharField(unique=True)
    at = models.DateTimeField()
    whole_since = models.DateTimeField(null=True)  # since then every counter has been compared
    differences = models.JSONField(default=list)

    class Meta:
        verbose_name = "comparison with the ledger"
        verbose_name_plural = "comparisons with the ledger"

    def __str__(self) -> str:
        return f"{self.gateway} {self.at:%H:%M:%S}"


class Learnt(models.Model):
    """What the gateway learnt of prompts and outputs, so that a restart does not begin anew."""

    name = models.CharField(unique=True)
    at = models.DateTimeField()
    value = models.JSONField()

    class Meta:
        verbose_name = "learnt estimate"
        verbose_name_plural = "learnt estimates"

    def __str__(self) -> str:
        return self.name
