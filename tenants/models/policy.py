"""Lanes, tiers, pools and endpoints as rows: a projection of the policy document.

Only `tenants.services` writes them, in the transaction that stores the revision; the constraints
here hold against any other writer.
"""

from __future__ import annotations

from typing import get_args

from django.db import models
from django.db.models import Q

from tenants.core.snapshot import EngineKind, OnOverload

OVERLOAD = list(get_args(OnOverload))
ENGINES = list(get_args(EngineKind))


class LimitColumns(models.Model):
    """The limits; null is unlimited on a tier and inherited on a tenant."""

    requests_per_minute = models.PositiveBigIntegerField(null=True, blank=True)
    tokens_per_minute = models.PositiveBigIntegerField(null=True, blank=True)
    max_running = models.PositiveBigIntegerField(null=True, blank=True)
    max_queued = models.PositiveBigIntegerField(null=True, blank=True)
    max_input_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    max_output_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    soft_limits = models.JSONField(null=True, blank=True)  # names of rates

    class Meta:
        abstract = True


class Lane(models.Model):
    name = models.CharField(max_length=63, unique=True)
    rank = models.PositiveIntegerField(unique=True)
    engine_priority = models.IntegerField()
    reserved_share = models.FloatField(default=0.0)
    ceiling = models.FloatField(default=1.0)
    max_queue_seconds = models.FloatField(default=60.0)

    class Meta:
        ordering = ["rank"]
        constraints = [
            models.CheckConstraint(
                condition=Q(reserved_share__gte=0, reserved_share__lte=1), name="lane_share_0_to_1"
            ),
            models.CheckConstraint(
                condition=Q(ceiling__gt=0, ceiling__lte=1), name="lane_ceiling_0_to_1"
            ),
            models.CheckConstraint(
                condition=Q(max_queue_seconds__gt=0), name="lane_queue_seconds_positive"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Tier(LimitColumns):
    name = models.CharField(max_length=63, unique=True)
    weight = models.FloatField(default=1.0)
    lane = models.ForeignKey(Lane, on_delete=models.PROTECT, related_name="tiers")
    allowed_lanes = models.JSONField(default=list)  # names, by rank
    model_patterns = models.JSONField(default=list)  # the document's `models`: pools it may use
    on_overload = models.CharField(max_length=8, default="queue")

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(condition=Q(weight__gt=0), name="tier_weight_positive"),
            models.CheckConstraint(
                condition=Q(on_overload__in=OVERLOAD), name="tier_on_overload_known"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Pool(models.Model):
    model = models.CharField(max_length=128, unique=True)
    aliases = models.JSONField(default=list)
    engine = models.CharField(max_length=16, default="vllm")
    capacity_auto = models.BooleanField(default=False)
    max_running = models.PositiveBigIntegerField(default=16)  # per endpoint
    max_running_tokens = models.PositiveBigIntegerField(default=60_000)
    cost_input = models.FloatField(default=1.0)  # service units per token
    cost_cached_input = models.FloatField(default=1.0)
    cost_output = models.FloatField(default=2.0)
    price_currency = models.CharField(max_length=3, blank=True)  # empty: no price
    price_input_per_million = models.DecimalField(
        max_digits=18, decimal_places=9, null=True, blank=True
    )
    price_output_per_million = models.DecimalField(
        max_digits=18, decimal_places=9, null=True, blank=True
    )
    tokenizer_kind = models.CharField(max_length=8, default="estimate")
    tokenizer_path = models.CharField(max_length=1024, blank=True)
    api_key_env = models.CharField(max_length=128, blank=True)
    isolate_prefix_cache = models.BooleanField(default=True)
    locality_quantum = models.FloatField(default=0.0)
    timeouts = models.JSONField(default=dict)  # seconds

    class Meta:
        ordering = ["model"]
        constraints = [
            models.CheckConstraint(condition=Q(engine__in=ENGINES), name="pool_engine_known"),
            models.CheckConstraint(
                condition=Q(max_running__gte=1, max_running_tokens__gte=1),
                name="pool_capacity_positive",
            ),
            models.CheckConstraint(
                condition=Q(
                    cost_input__gte=0,
                    cost_cached_input__gte=0,
                    cost_output__gte=0,
                    locality_quantum__gte=0,
                ),
                name="pool_cost_not_negative",
            ),
            models.CheckConstraint(
                condition=Q(
                    price_currency="",
                    price_input_per_million=None,
                    price_output_per_million=None,
                )
                | (
                    ~Q(price_currency="")
                    & Q(price_input_per_million__isnull=False, price_input_per_million__gte=0)
                    & Q(price_output_per_million__isnull=False, price_output_per_million__gte=0)
                ),
                name="pool_price_whole_or_none",
            ),
            models.CheckConstraint(
                condition=(Q(tokenizer_kind="file") & ~Q(tokenizer_path=""))
                | (Q(tokenizer_kind__in=["estimate", "engine"]) & Q(tokenizer_path="")),
                name="pool_tokenizer_path_iff_file",
            ),
        ]

    def __str__(self) -> str:
        return self.model


class Endpoint(models.Model):
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="endpoints")
    url = models.CharField(max_length=2000)
    drain = models.BooleanField(default=False)
    position = models.PositiveIntegerField(default=0)  # as in the document

    class Meta:
        ordering = ["pool", "position"]
        constraints = [
            models.UniqueConstraint(fields=["pool", "url"], name="endpoint_url_once_per_pool"),
            models.CheckConstraint(
                condition=Q(url__startswith="http://") | Q(url__startswith="https://"),
                name="endpoint_url_is_http",
            ),
        ]

    def __str__(self) -> str:
        return self.url
