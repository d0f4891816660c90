"""Which conditions raise alerts, and who is told, over the admin API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from django.db import transaction
from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response

from metering.alerts import services
from metering.alerts.rules import rules
from metering.alerts.services import DestinationValues, RuleValues
from metering.core.alert_kinds import Rule
from metering.models import AlertDestination, AlertRule
from tenants.api.base import NO_STORE, Api, etag_of
from tenants.api.described import IF_MATCH, RACES, REASON, REUSED, lists, says
from tenants.api.idempotency import IDEMPOTENCY_KEY, once
from tenants.api.pages import Filters, choice, holds, page, yes_or_no
from tenants.api.schemas import Out, Reason
from tenants.core.permissions import Action
from tenants.errors import NotFound

# --- rules ----------------------------------------------------------------------------------


class RuleOut(Out):
    kind: str
    label: str
    enabled: bool
    level: str
    threshold: float | None
    minutes: int | None
    remind_hours: float
    says: Annotated[str, Field(description="When it is raised.")]
    do: Annotated[str, Field(description="What whoever is called may do.")]

    @classmethod
    def told(cls, rule: Rule) -> dict[str, Any]:
        kind = rule.kind
        return cls(
            kind=kind.name,
            label=kind.label,
            enabled=rule.enabled,
            level=rule.level,
            threshold=None if kind.threshold is None else rule.threshold,
            minutes=None if kind.minutes is None else rule.minutes,
            remind_hours=rule.remind_hours,
            says=rule.text,
            do=kind.do,
        ).model_dump()


class EditRule(Reason):
    """A merge patch; null: as it is without any edit."""

    enabled: bool | None = None
    level: Literal["warning", "critical"] | None = None
    threshold: Annotated[float | None, Field(description="A part is 0 to 1.")] = None
    minutes: int | None = None
    remind_hours: Annotated[float | None, Field(description="0: never.")] = None


def patched(row: AlertRule | None, given: Mapping[str, Any]) -> RuleValues:
    known = {name: getattr(row, name) for name in asdict(RuleValues())} if row else {}
    values: dict[str, Any] = {**known, **given}
    values = {name: None if value == "" else value for name, value in values.items()}
    if values.get("enabled") is None:
        values["enabled"] = True
    return RuleValues(**values)


class Rules(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "alerts.view"}

    @says("alert_rules", "Which conditions raise an alert", {200: list[RuleOut]})
    def get(self, request: Request) -> Response:
        return Response([RuleOut.told(rule) for rule in rules().values()])


class OneRule(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "alerts.view", "PATCH": "alerts.edit"}

    def answer(self, kind: str) -> Response:
        told = RuleOut.told(self.found(kind))
        return Response(told, headers={"ETag": f'"{etag_of(told)}"'})

    def found(self, kind: str) -> Rule:
        rule = rules().get(kind)
        if rule is None:
            raise NotFound(f"there is no kind of alert {kind!r}")
        return rule

    @says("alert_rule_read", "Read one rule", {200: RuleOut}, tag="alerts")
    def get(self, request: Request, kind: str) -> Response:
        return self.answer(kind)

    @says(
        "alert_rule_change",
        "Change one rule",
        {200: RuleOut} | RACES,
        IF_MATCH,
        body=EditRule,
        tag="alerts",
    )
    def patch(self, request: Request, kind: str) -> Response:
        asked, by = self.order(EditRule)
        self.if_match()
        with transaction.atomic():
            row = AlertRule.objects.select_for_update().filter(kind=kind).first()
            self.check_seen(etag_of(RuleOut.told(self.found(kind))), f"rule {kind!r}")
            given = asked.model_dump(exclude_unset=True, exclude={"reason"})
            services.edit_rule(kind, patched(row, given), **by)
        return self.answer(kind)


# --- destinations ---------------------------------------------------------------------------


class DestinationOut(Out):
    id: Annotated[int, Field(validation_alias="pk")]
    name: str
    shape: str
    address: Annotated[str, Field(description="Of a webhook its host only, but to admins.")]
    enabled: bool
    only_critical: bool
    created_at: datetime


class DestinationWithSecret(DestinationOut):
    secret: Annotated[str | None, Field(description="Of a webhook; told once.")]


class NewDestination(Reason):
    name: str
    shape: Literal["email", "webhook"] = "email"
    address: Annotated[str, Field(description="Mail addresses with commas between, or one URL.")]
    enabled: bool = True
    only_critical: bool = False


class EditDestination(Reason):
    """A merge patch: what is not given stays."""

    name: str | None = None
    address: str | None = None
    enabled: bool | None = None
    only_critical: bool | None = None


class DestinationFilters(Filters):
    orders = {"name": ("name",)}
    q = holds("name")
    shape = choice("email", "webhook")
    enabled = yes_or_no("enabled")


class DestinationApi(Api):
    def told(self, row: AlertDestination) -> dict[str, Any]:
        said = DestinationOut.of(row)
        if not self.who().can("alerts.edit"):
            said["address"] = services.shown_address(row.shape, row.address)
        return said

    def answer(self, row: AlertDestination, status: int = 200, **secret: str | None) -> Response:
        headers = {"ETag": f'"{etag_of(DestinationOut.of(row))}"', **(NO_STORE if secret else {})}
        return Response({**self.told(row), **secret}, status, headers=headers)


class Destinations(DestinationApi):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "alerts.view", "POST": "alerts.edit"}

    @lists(
        "alert_destination_list", "Who is told", DestinationOut, DestinationFilters, tag="alerts"
    )
    def get(self, request: Request) -> Response:
        return page(request, AlertDestination.objects.all(), DestinationFilters, self.told)

    @says(
        "alert_destination_create",
        "Tell somebody; a webhook's secret is told once",
        {201: DestinationWithSecret} | REUSED,
        IDEMPOTENCY_KEY,
        body=NewDestination,
        tag="alerts",
    )
    @once
    def post(self, request: Request) -> Response:
        asked, by = self.order(NewDestination)
        values = DestinationValues(**asked.model_dump(exclude={"reason"}))
        row, secret = services.create_destination(values, **by)
        return self.answer(row, 201, secret=secret)


class OneDestination(DestinationApi):
    actions: ClassVar[Mapping[str, Action]] = {
        "GET": "alerts.view",
        "PATCH": "alerts.edit",
        "DELETE": "alerts.edit",
    }

    @says("alert_destination_read", "Read one", {200: DestinationOut}, tag="alerts")
    def get(self, request: Request, number: int) -> Response:
        return self.answer(services.destination(number))

    @says(
        "alert_destination_change",
        "Change one",
        {200: DestinationOut} | RACES,
        IF_MATCH,
        body=EditDestination,
        tag="alerts",
    )
    def patch(self, request: Request, number: int) -> Response:
        asked, by = self.order(EditDestination)
        with transaction.atomic():
            row = self.seen(number)
            given = asked.model_dump(exclude_none=True, exclude={"reason"})
            names = asdict(DestinationValues("", ""))
            values = DestinationValues(**{name: getattr(row, name) for name in names} | given)
            row = services.edit_destination(number, values, **by)
        return self.answer(row)

    @says(
        "alert_destination_delete",
        "Tell it nothing any more",
        {204: None} | RACES,
        IF_MATCH,
        REASON,
        tag="alerts",
    )
    def delete(self, request: Request, number: int) -> Response:
        with transaction.atomic():
            self.seen(number)
            services.delete_destination(number, actor=self.actor(), reason=self.reason())
        return Response(status=204)

    def seen(self, number: int) -> AlertDestination:
        self.if_match()
        list(AlertDestination.objects.select_for_update().filter(id=number))
        row = services.destination(number)
        self.check_seen(etag_of(DestinationOut.of(row)), f"destination {row.name!r}")
        return row


class RenewSecret(DestinationApi):
    actions: ClassVar[Mapping[str, Action]] = {"POST": "alerts.edit"}

    @says(
        "alert_destination_renew_secret",
        "Give a webhook a new secret, told once",
        {200: DestinationWithSecret} | REUSED,
        IDEMPOTENCY_KEY,
        body=Reason,
        tag="alerts",
    )
    @once
    def post(self, request: Request, number: int) -> Response:
        _, by = self.order(Reason)
        row, secret = services.new_secret(number, **by)
        return self.answer(row, secret=secret)


class TestDestination(DestinationApi):
    actions: ClassVar[Mapping[str, Action]] = {"POST": "alerts.edit"}

    @says(
        "alert_destination_test",
        "Send a test message within some seconds",
        {202: DestinationOut},
        tag="alerts",
    )
    def post(self, request: Request, number: int) -> Response:
        services.send_test(number, timezone.now(), actor=self.actor())
        return Response(self.told(services.destination(number)), 202)
