"""Corrections of budgets over the admin API: listed, and made once under one id."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar

from django.conf import settings
from django.utils import timezone
from django_filters import CharFilter
from pydantic import Field
from rest_framework import exceptions
from rest_framework.request import Request
from rest_framework.response import Response

from metering.corrections import CannotCorrect, IdTaken, correct
from metering.models import Correction
from tenants.api.base import Api
from tenants.api.described import lists, says
from tenants.api.idempotency import IDEMPOTENCY_KEY, once
from tenants.api.pages import Filters, Moment, moment, page
from tenants.api.schemas import Body, ErrorOut, Out, read
from tenants.core.issue import refused
from tenants.core.permissions import Action


class NewCorrection(Body):
    account: Annotated[str, Field(description="Of a sustained budget: `tenant:acme/hourly`.")]
    units: Annotated[float, Field(description="Added to what was used; below zero: given back.")]
    reason: Annotated[str, Field(min_length=1, description="Stands in the ledger and the audit.")]
    id: Annotated[
        str | None,
        Field(max_length=200, description="Any text of yours: under one id it is made once."),
    ] = None
    at: Annotated[
        str | None, Field(description="A moment in the window that it is for; now when unset.")
    ] = None


class CorrectionOut(Out):
    number: Annotated[int, Field(validation_alias="pk")]
    id: Annotated[str | None, Field(validation_alias="given_id")]
    account: str
    at: datetime
    units: float
    counter: Annotated[
        str, Field(description="Empty: an entry of the ledger. Else only this counter was off.")
    ]
    actor: str
    reason: str
    made_at: datetime


class CorrectionMade(CorrectionOut):
    used: Annotated[float, Field(description="What the account used in that window, now.")]


class CorrectionFilters(Filters):
    orders = {"-made_at": ("-made_at",)}
    account = CharFilter()
    actor = CharFilter()
    since = Moment(field_name="at", lookup_expr="gte")
    until = Moment(field_name="at", lookup_expr="lt")


class Taken(exceptions.APIException):
    status_code = 409


class Corrections(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "policy.view", "POST": "policy.edit"}

    @lists(
        "correction_list", "Corrections, newest first", CorrectionOut, CorrectionFilters, "usage"
    )
    def get(self, request: Request) -> Response:
        return page(request, Correction.objects.all(), CorrectionFilters, CorrectionOut.of)

    @says(
        "correction_create",
        "Add to what a sustained budget used, or give back",
        {200: CorrectionMade, 201: CorrectionMade, 409: ErrorOut, 422: ErrorOut},
        IDEMPOTENCY_KEY,
        body=NewCorrection,
        tag="usage",
        description="An entry of the ledger, audited; running gateways take it up within a second. "
        "The answer is 200 where it had been made before under the same id.",
    )
    @once
    def post(self, request: Request) -> Response:
        asked = read(NewCorrection, request.data)
        try:
            made = correct(
                self.actor(), asked.account, asked.units, asked.reason, when(asked.at), asked.id
            )
        except IdTaken as error:
            raise Taken(str(error)) from error
        except CannotCorrect as error:
            value: Any = getattr(asked, error.field, "")
            raise refused(error.field, value, str(error)) from error
        told = {**CorrectionOut.of(made.correction), "used": made.used}
        return Response(told, 201 if made.created else 200)


def when(text: str | None) -> datetime:
    """A moment whose records are still kept; now where none is given.

    Raises:
        Invalid: it is none.
    """
    now = timezone.now()
    if not text:
        return now
    found = moment("at", text)
    oldest = now - timedelta(days=settings.FAIRLANE_KEEP_RECORDS_DAYS)
    if not oldest < found <= now:
        raise refused("at", text, f"at takes a moment of the last {(now - oldest).days} days")
    return found
