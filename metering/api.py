"""Usage and live state over the admin API. A tenant's people get their own tenant's, only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, ClassVar, cast, get_args

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from metering import selectors
from metering.models import UsageRow
from metering.selectors import Dimension
from tenants.api.base import Api
from tenants.api.described import FAULTS
from tenants.api.pages import Cursor, between, moment
from tenants.core.issue import Invalid, Issue, short
from tenants.core.permissions import Action

RANGE = [OpenApiParameter(name, datetime) for name in ("since", "until")]
TENANT = OpenApiParameter("tenant", str, description="Only this tenant's.")
DAY = timedelta(days=1)
INTERNAL = ("id", "accounts")  # columns that are no part of a usage record
FIELDS = tuple(field.name for field in UsageRow._meta.fields if field.name not in INTERNAL)


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


class RecordPage(BaseModel):
    next: str | None
    previous: str | None
    results: list[RecordOut]


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
    @extend_schema(
        operation_id="usage_records",
        summary="Usage records, oldest first",
        tags=["usage"],
        parameters=[
            TENANT,
            *RANGE,
            OpenApiParameter("cursor", str),
            OpenApiParameter("limit", int),
        ],
        responses={200: RecordPage} | FAULTS,
    )
    def get(self, request: Request) -> Response:
        rows = UsageRow.objects.all()
        if (tenant := self.tenant()) is not None:
            rows = rows.filter(tenant=tenant)
        pager = Cursor("at", "id")
        page = pager.paginate_queryset(between(request, rows), request, view=self)
        return pager.get_paginated_response([record(row) for row in page or []])


def record(row: UsageRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in FIELDS}


class Summary(UsageApi):
    @extend_schema(
        operation_id="usage_summary",
        summary="Usage of a range, by tenant, application, model or lane",
        tags=["usage"],
        parameters=[TENANT, *RANGE, OpenApiParameter("by", str, enum=list(get_args(Dimension)))],
        responses={200: OpenApiTypes.OBJECT} | FAULTS,
    )
    def get(self, request: Request) -> Response:
        since, until = self.range()
        by = request.query_params.get("by", "tenant")
        if by not in get_args(Dimension):
            allowed = ", ".join(get_args(Dimension))
            message = f"by is {short(by)}; it takes one of: {allowed}"
            raise Invalid([Issue("by", None, short(by), message)])
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

    @extend_schema(
        operation_id="live",
        summary="The state of each running gateway, not older than a few seconds",
        tags=["live"],
        responses={200: OpenApiTypes.OBJECT} | FAULTS,
    )
    def get(self, request: Request) -> Response:
        headers = {"Cache-Control": "no-store"}
        return Response({"gateways": selectors.latest_samples()}, headers=headers)
