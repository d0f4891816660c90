"""Usage and live state over the admin API. A tenant's people get their own tenant's, only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, ClassVar, cast, get_args

from django.utils import timezone
from django_filters import CharFilter
from drf_spectacular.utils import OpenApiParameter
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from metering import selectors
from metering.models import UsageRow
from metering.selectors import Dimension, Share
from tenants.api.base import NO_STORE, Api
from tenants.api.described import lists, says
from tenants.api.pages import Filters, Moment, Whole, fault, moment, page
from tenants.core.issue import Invalid
from tenants.core.permissions import Action

RANGE = [OpenApiParameter(name, datetime) for name in ("since", "until")]
TENANT = OpenApiParameter("tenant", str, description="Only this tenant's.")
DAY = timedelta(days=1)


class RecordOut(BaseModel):
    request_id: str
    at: datetime
    tenant: str
    application: str
    key: str
    model: str
    lane: str
    interaction: str
    endpoint: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    usage_source: str
    cost: float
    estimated_cost: float
    queue_ms: float
    ttft_ms: float | None
    e2e_ms: float
    status: int
    finish_reason: str
    throttle_reason: str
    policy_revision: int


class RecordFilters(Filters):
    orders = {"at": ("at",)}
    tie = "request_id"
    tenant = CharFilter(help_text="Only this tenant's.")
    application = CharFilter()
    key = CharFilter(help_text="By its id.")
    model = CharFilter()
    lane = CharFilter()
    interaction = CharFilter()
    status = Whole()
    finish_reason = CharFilter()
    throttle_reason = CharFilter()
    since = Moment(field_name="at", lookup_expr="gte")
    until = Moment(field_name="at", lookup_expr="lt")


class SummaryOut(BaseModel):
    since: datetime
    until: datetime
    by: str
    results: list[Share]


class LiveOut(BaseModel):
    gateways: list[dict[str, Any]]


class UsageApi(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "usage.view"}

    def tenant(self) -> str | None:
        """Whose usage this request may read and asks for; None is everybody's."""
        who, asked = self.who(), self.request.query_params.get("tenant") or None
        if not who.confined:
            return asked
        if asked is not None:
            who.require("usage.view", asked)
        return who.tenant


class Records(UsageApi):
    @lists("usage_records", "Usage records, oldest first", RecordOut, RecordFilters, "usage")
    def get(self, request: Request) -> Response:
        rows = UsageRow.objects.all()
        if (tenant := self.tenant()) is not None:
            rows = rows.filter(tenant=tenant)
        return page(request, rows, RecordFilters, record)


def record(row: UsageRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in RecordOut.model_fields}


class Summary(UsageApi):
    @says(
        "usage_summary",
        "Usage of a range, by tenant, application, model or lane",
        {200: SummaryOut},
        *(TENANT, *RANGE, OpenApiParameter("by", str, enum=list(get_args(Dimension)))),
        tag="usage",
    )
    def get(self, request: Request) -> Response:
        since, until = self.range()
        by = request.query_params.get("by", "tenant")
        if by not in get_args(Dimension):
            allowed = ", ".join(get_args(Dimension))
            raise Invalid([fault("by", by, f"it takes one of: {allowed}")])
        shares = selectors.breakdown(cast(Dimension, by), since, until, tenant=self.tenant())
        told = {"since": since, "until": until, "by": by}
        return Response({**told, "results": [asdict(share) for share in shares]})

    def range(self) -> tuple[datetime, datetime]:
        """The last day, unless the query says otherwise."""
        asked = self.request.query_params
        until = moment("until", asked["until"]) if asked.get("until") else timezone.now()
        since = moment("since", asked["since"]) if asked.get("since") else until - DAY
        return since, until


class Live(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "live.view"}

    @says(
        "live",
        "The state of each running gateway, not older than a few seconds",
        {200: LiveOut},
        tag="live",
    )
    def get(self, request: Request) -> Response:
        return Response({"gateways": selectors.latest_samples()}, headers=NO_STORE)
