"""Roll-ups of usage, and of live state: what dashboards read.

Every row can be made again: usage from the records (`metering.rollup`), live state from the
gateways' samples (`metering.history`), as long as those are kept.
"""

from __future__ import annotations

from django.db import models

# The full names of what a roll-up is by; with `start` they are its identity.
GROUP = ("tenant", "application", "key", "model", "lane")


class Used(models.Model):
    """What one group used in one slot of time."""

    start = models.DateTimeField()
    tenant = models.CharField()
    requests = models.BigIntegerField(default=0)  # all that passed the key check
    errors = models.BigIntegerField(default=0)  # status 500 and above
    prompt_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)  # contained in prompt_tokens
    completion_tokens = models.BigIntegerField(default=0)
    cost = models.FloatField(default=0.0)
    ends = models.JSONField(default=dict)  # finish reason -> requests
    throttled = models.JSONField(default=dict)  # the limit that refused -> requests
    money = models.JSONField(default=dict)  # currency -> 10⁻⁹ of it, at each record's own price
    queue_ms = models.BinaryField(default=bytes)  # metering.core.sketch
    ttft_ms = models.BinaryField(default=bytes)
    tpot_ms = models.BinaryField(default=bytes)
    e2e_ms = models.BinaryField(default=bytes)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.tenant} {self.start:%Y-%m-%d %H:%M}"


class UsageSlot(Used):
    """By all that usage is told by."""

    application = models.CharField(blank=True)
    key = models.CharField(blank=True, default="")
    model = models.CharField(blank=True)
    lane = models.CharField(blank=True)

    class Meta:
        abstract = True
        indexes = [models.Index(fields=["tenant", "start"], name="%(class)s_tenant")]
        constraints = [
            models.UniqueConstraint(fields=["start", *GROUP], name="%(class)s_one_row"),
        ]


class TenantSlot(Used):
    """By tenant alone: what pages about all tenants and long ranges read."""

    class Meta:
        abstract = True
        constraints = [
            models.UniqueConstraint(fields=["start", "tenant"], name="%(class)s_one_row"),
        ]


class UsageMinute(UsageSlot):
    class Meta(UsageSlot.Meta):
        verbose_name = "usage of a minute"
        verbose_name_plural = "usage by minute"


class UsageQuarter(UsageSlot):
    """A quarter of an hour: of these every zone's days can be built (Kathmandu is at +05:45)."""

    class Meta(UsageSlot.Meta):
        verbose_name = "usage of a quarter of an hour"
        verbose_name_plural = "usage by quarter of an hour"


class UsageHour(UsageSlot):
    class Meta(UsageSlot.Meta):
        verbose_name = "usage of an hour"
        verbose_name_plural = "usage by hour"


class UsageDay(UsageSlot):
    """A day of UTC."""

    class Meta(UsageSlot.Meta):
        verbose_name = "usage of a day"
        verbose_name_plural = "usage by day"


class TenantHour(TenantSlot):
    class Meta(TenantSlot.Meta):
        verbose_name = "tenant's usage of an hour"
        verbose_name_plural = "tenants' usage by hour"


class TenantDay(TenantSlot):
    """A day of UTC."""

    class Meta(TenantSlot.Meta):
        verbose_name = "tenant's usage of a day"
        verbose_name_plural = "tenants' usage by day"


class TouchedMinute(models.Model):
    """A minute that got rows since it was last rolled up; each batch of rows leaves its own mark.

    One mark a batch, never shared: a shared one could be cleared by a roll-up that does not yet
    see the rows of a batch that found the mark already there.
    """

    minute = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name = "minute to roll up"
        verbose_name_plural = "minutes to roll up"

    def __str__(self) -> str:
        return f"{self.minute:%Y-%m-%d %H:%M}"


class TouchedQuarter(models.Model):
    """A quarter with a minute that was counted since; its hour and its day are behind too."""

    quarter = models.DateTimeField(db_index=True)

    class Meta:
        verbose_name = "quarter of an hour to roll up"
        verbose_name_plural = "quarters of an hour to roll up"

    def __str__(self) -> str:
        return f"{self.quarter:%Y-%m-%d %H:%M}"


class LiveSlot(models.Model):
    """What the gateways' samples said in one slot of time, of a pool (no lane, no tenant), of a
    lane in it (no tenant), or of a tenant in that lane. All but the extremes add up."""

    start = models.DateTimeField()
    pool = models.CharField()
    lane = models.CharField(blank=True, default="")
    tenant = models.CharField(blank=True, default="")
    observed_s = models.FloatField(default=0.0)  # of the slot, how long a gateway told of it
    queued_s = models.FloatField(default=0.0)  # request-seconds in the queue
    running_s = models.FloatField(default=0.0)  # request-seconds on an engine
    waiting_s = models.FloatField(default=0.0)  # seconds in which anything waited
    served = models.FloatField(default=0.0)  # service units
    load_s = models.FloatField(default=0.0)  # token-seconds held, of a pool
    max_load_s = models.FloatField(default=0.0)
    max_running_s = models.FloatField(default=0.0)
    endpoints_s = models.FloatField(default=0.0)  # endpoint-seconds available
    oldest_wait_s = models.FloatField(default=0.0)  # the largest seen
    debt = models.FloatField(default=0.0)  # the one furthest from zero
    bound = models.FloatField(default=0.0)  # the largest
    weight = models.FloatField(default=0.0)  # the largest

    class Meta:
        abstract = True
        constraints = [
            models.UniqueConstraint(
                fields=["start", "pool", "lane", "tenant"], name="%(class)s_one_row"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.pool} {self.lane} {self.tenant} {self.start:%Y-%m-%d %H:%M}"


class LiveMinute(LiveSlot):
    class Meta(LiveSlot.Meta):
        verbose_name = "live state of a minute"
        verbose_name_plural = "live state by minute"


class LiveQuarter(LiveSlot):
    class Meta(LiveSlot.Meta):
        verbose_name = "live state of a quarter of an hour"
        verbose_name_plural = "live state by quarter of an hour"


class LiveHour(LiveSlot):
    class Meta(LiveSlot.Meta):
        verbose_name = "live state of an hour"
        verbose_name_plural = "live state by hour"


class LiveDay(LiveSlot):
    """A day of UTC."""

    class Meta(LiveSlot.Meta):
        verbose_name = "live state of a day"
        verbose_name_plural = "live state by day"
