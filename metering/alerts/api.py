"""Alerts over the admin API: listed, read, acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar

from django.db.models import Q, QuerySet
from django.utils import timezone
from django_filters import CharFilter
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from metering.alerts import services
from metering.alerts.rules import rules
from metering.core.alert_kinds import KINDS
from metering.models import Alert
from tenants.api.base import Api
from tenants.api.described import lists, says
from tenants.api.pages import Choice, Filters, Moment, choice, holds, page
from tenants.api.schemas import Body, Out, read
from tenants.core.permissions import Action
from tenants.errors import NotFound

STATES: Mapping[str, Q] = {
    "open": Q(resolved_at=None, acknowledged_at=None),
    "acknowledged": Q(resolved_at=None, acknowledged_at__isnull=False),
    "resolved": Q(resolved_at__isnull=False),
}


def state_of(alert: Alert) -> str:
    if alert.resolved_at is not None:
        return "resolved"
    return "open" if alert.acknowledged_at is None else "acknowledged"


class AlertOut(Out):
    id: Annotated[int, Field(validation_alias="pk")]
    kind: str
    label: str
    level: str
    state: Annotated[str, Field(description="open, acknowledged or resolved")]
    subject: str
    message: str
    first_at: datetime
    last_at: datetime
    resolved_at: datetime | None
    acknowledged_at: datetime | None
    acknowledged_by: str
    note: str


class Acknowledge(Body):
    note: Annotated[str, Field(description="For whoever looks at it after you.")] = ""


class InState(Choice):
    """A word for what is several columns in the table."""

    def filter(self, qs: QuerySet[Any], value: Q | None) -> QuerySet[Any]:
        return qs if value is None else qs.filter(value)


class AlertFilters(Filters):
    orders = {"-first_at": ("-first_at",)}
    state = InState(takes=STATES)
    kind = choice(*KINDS)
    subject = CharFilter()
    q = holds("subject", "message")
    since = Moment(field_name="last_at", lookup_expr="gte")
    until = Moment(field_name="first_at", lookup_expr="lt")


def told() -> Any:
    """Tells of one alert; the rules are read once for all."""
    known = rules()

    def tell(alert: Alert) -> dict[str, Any]:
        rule = known.get(alert.kind)
        fields = {name: getattr(alert, name, None) for name in AlertOut.model_fields}
        fields |= {"pk": alert.pk, "state": state_of(alert)}
        return AlertOut.model_validate(
            fields | {"level": rule.level if rule else "warning"}
        ).model_dump()

    return tell


class Alerts(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "alerts.view"}

    @lists("alert_list", "Alerts, newest first", AlertOut, AlertFilters)
    def get(self, request: Request) -> Response:
        return page(request, Alert.objects.all(), AlertFilters, told())


class OneAlert(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "alerts.view"}

    @says("alert_read", "Read one alert", {200: AlertOut})
    def get(self, request: Request, number: int) -> Response:
        found = Alert.objects.filter(id=number).first()
        if found is None:
            raise NotFound(f"there is no alert {number}")
        return Response(told()(found))


class AcknowledgeAlert(Api):
    actions: ClassVar[Mapping[str, Action]] = {"POST": "alerts.edit"}

    @says(
        "alert_acknowledge",
        "Say that somebody looks after it",
        {200: AlertOut},
        body=Acknowledge,
        description="No reminder is sent any more. Of several, the first one counts.",
    )
    def post(self, request: Request, number: int) -> Response:
        asked = read(Acknowledge, request.data)
        found = services.acknowledge(number, asked.note, timezone.now(), actor=self.actor())
        return Response(told()(found))
