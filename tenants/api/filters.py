"""What each list of the admin API can be asked for, over the tables that project the policy."""

from __future__ import annotations

from typing import Any, get_args

from django.db.models import Q, QuerySet
from django_filters import CharFilter

from tenants.api.pages import Filters, Moment, Whole, choice, holds, yes_or_no
from tenants.audited import about_tenant
from tenants.core.permissions import ROLES
from tenants.core.snapshot import EngineKind
from tenants.models.keys import State, in_state
from tenants.services.actors import SOURCES


def of_state(rows: QuerySet[Any], _name: str, state: State) -> QuerySet[Any]:
    return rows.filter(in_state(state))


class Tenants(Filters):
    orders = {"name": ("name",), "tier": ("tier__name",)}
    q = holds("name")
    tier = CharFilter(field_name="tier__name")
    enabled = yes_or_no("enabled")


class Applications(Filters):
    orders = {"tenant": ("tenant__name", "name"), "name": ("name",), "weight": ("weight",)}
    q = holds("name", "tenant__name")
    tenant = CharFilter(field_name="tenant__name")
    lane = CharFilter(field_name="lane__name")


class Tiers(Filters):
    orders = {"name": ("name",), "weight": ("weight",)}
    q = holds("name")
    lane = CharFilter(field_name="lane__name")


class Lanes(Filters):
    orders = {"rank": ("rank",), "name": ("name",)}
    q = holds("name")


class Pools(Filters):
    orders = {"model": ("model",)}
    q = holds("model")
    engine = choice(*get_args(EngineKind))


class Budgets(Filters):
    orders = {"created": ("pk",), "name": ("name",), "cost": ("cost",)}
    q = holds("name")
    kind = choice("burst", "sustained")
    period = CharFilter()
    on_exhausted = choice("reject", "demote", "alert")
    tier = CharFilter(field_name="tier__name")
    tenant = CharFilter(method="of_tenant", help_text="Its own and those of its applications.")

    def of_tenant(self, rows: QuerySet[Any], _name: str, tenant: str) -> QuerySet[Any]:
        return rows.filter(Q(tenant__name=tenant) | Q(application__tenant__name=tenant))


class Keys(Filters):
    orders = {"-created_at": ("-created_at",), "name": ("name",), "tenant": ("tenant__name",)}
    tie = "public_id"
    q = holds("name", "public_id")
    tenant = CharFilter(field_name="tenant__name", help_text="Only this tenant's.")
    application = CharFilter(field_name="application__name")
    created_by = CharFilter()
    state = choice(*get_args(State), method=of_state)


class Tokens(Filters):
    orders = {"-created_at": ("-created_at",), "name": ("name",), "expires_at": ("expires_at",)}
    q = holds("name", "public_id")
    role = choice(*ROLES)
    tenant = CharFilter(field_name="tenant__name")
    state = choice(*get_args(State), method=of_state)


class Users(Filters):
    orders = {"username": ("username",)}
    q = holds("username")
    role = choice(*ROLES, field_name="membership__role")
    tenant = CharFilter(field_name="membership__tenant__name")
    enabled = yes_or_no("is_active")


class Revisions(Filters):
    orders = {"-number": ("-number",)}
    q = holds("reason", "author")
    author = CharFilter()
    source = choice(*SOURCES)
    since = Moment(field_name="at", lookup_expr="gte")
    until = Moment(field_name="at", lookup_expr="lt")


def of_tenant(rows: QuerySet[Any], _name: str, tenant: str) -> QuerySet[Any]:
    return rows.filter(about_tenant(tenant))


class Audit(Filters):
    orders = {"-at": ("-at",)}
    q = holds("name", "field", "reason")
    actor = CharFilter()
    source = choice(*SOURCES)
    kind = CharFilter()
    name = CharFilter()
    tenant = CharFilter(method=of_tenant, help_text="Of it and of all that belongs to it.")
    field = CharFilter()
    revision = Whole(field_name="revision__number")
    since = Moment(field_name="at", lookup_expr="gte")
    until = Moment(field_name="at", lookup_expr="lt")
