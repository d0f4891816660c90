"""Budgets over all owners. A budget is a part of its owner, so an edit is one of the owner, with
the owner's ETag; a key's budgets are told with the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast, get_args

from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response

from tenants import places, selectors, services
from tenants.api import filters
from tenants.api.base import Api
from tenants.api.described import IF_MATCH, RACES, REASON, REUSED, lists, says
from tenants.api.idempotency import IDEMPOTENCY_KEY, once
from tenants.api.objects import json_object
from tenants.api.pages import page
from tenants.api.schemas import BudgetOut, NewBudget
from tenants.core.diff import Kind, named
from tenants.core.document import Budget, Document, plain_numbers
from tenants.core.issue import refused
from tenants.core.owned import OwnedBudget, OwnerKind, owned_budgets
from tenants.core.permissions import Action
from tenants.errors import Conflict, NotFound
from tenants.models import Budget as BudgetRow

OWNERS: tuple[OwnerKind, ...] = get_args(OwnerKind)
ABOUT = ("id", "owner_kind", "owner")  # told with a budget, and no fields of it
ATTEMPTS = 5
Fields = dict[str, Any]


def fields_of(budget: Budget) -> Fields:
    return plain_numbers(budget.model_dump(exclude_none=True))


def shown(owned: OwnedBudget) -> Fields:
    about = {"id": owned.id, "owner_kind": owned.kind, "owner": owned.owner}
    return about | fields_of(owned.budget)


def row_id(row: BudgetRow) -> str:
    if row.tier:
        return f"tier:{row.tier.name}/{row.name}"
    if row.tenant:
        return f"tenant:{row.tenant.name}/{row.name}"
    owner = cast(Any, row.application)
    return f"application:{owner.tenant.name}/{owner.name}/{row.name}"


class BudgetApi(Api):
    def answer(self, budget_id: str, status: int = 200) -> Response:
        document = selectors.current_document()
        found = self.found(document, budget_id)
        etag = services.etag_of(document, found.kind, found.owner)
        return Response(shown(found), status, headers={"ETag": f'"{etag}"'})

    def found(self, document: Document, budget_id: str) -> OwnedBudget:
        for owned in owned_budgets(document):
            if budget_id == owned.id:
                return owned
        raise NotFound(f"there is no budget {budget_id!r}")

    def replace(self, kind: Kind, owner: str, etag: str | None, name: str, new: Any) -> None:
        """Put `new(old)` in the place of the owner's budget `name`; None takes it away. Without an
        ETag it is done on what is there, whoever else is at it."""
        for attempt in range(ATTEMPTS):
            document = selectors.current_document()
            part = named(document, kind).get(owner)
            if part is None:
                raise NotFound(f"there is no {kind} {owner!r}")
            budgets = {each.name: fields_of(each) for each in cast(Any, part).budgets}
            budgets[name] = new(budgets.get(name))
            whole = [each for each in budgets.values() if each is not None]
            seen = etag or services.etag_of(document, kind, owner)
            try:
                self.write(kind, owner, whole, seen)
            except Conflict:
                if etag or attempt == ATTEMPTS - 1:
                    raise
            else:
                return

    def write(self, kind: Kind, owner: str, budgets: list[Fields], etag: str) -> None:
        """An issue is told as one of the budget: nothing else was sent."""
        said: Any = {"actor": self.actor(), "etag": etag, "reason": self.reason()}
        with places.told_of(kind, owner):
            services.edit_object(kind, owner, {"budgets": budgets}, **said)


class Budgets(BudgetApi):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "policy.view", "POST": "policy.edit"}

    @lists("budget_list", "Budgets of tiers, tenants and applications", BudgetOut, filters.Budgets)
    def get(self, request: Request) -> Response:
        told = {each.id: shown(each) for each in owned_budgets(selectors.current_document())}
        rows = BudgetRow.objects.filter(key=None).select_related(
            "tier", "tenant", "application__tenant"
        )
        return page(request, rows, filters.Budgets, lambda row: told.get(row_id(row)))

    @says(
        "budget_create",
        "Give a tier, tenant or application a budget",
        {201: BudgetOut} | REUSED,
        *(REASON, IDEMPOTENCY_KEY),
        body=NewBudget,
    )
    @once
    def post(self, request: Request) -> Response:
        fields = json_object(request.data)
        kind, owner, name = (str(fields.get(key, "")) for key in ("owner_kind", "owner", "name"))
        if kind not in OWNERS:
            takes = ", ".join(OWNERS)
            raise refused("owner_kind", kind, f"owner_kind is {kind!r}; it takes one of: {takes}")

        def new(old: Fields | None) -> Fields:
            if old is not None:
                raise refused("name", name, f"{kind} {owner!r} has a budget {name!r} already")
            return {key: value for key, value in fields.items() if key not in ABOUT}

        self.replace(kind, owner, None, name, new)
        return self.answer(f"{kind}:{owner}/{name}", 201)


class OneBudget(BudgetApi):
    actions: ClassVar[Mapping[str, Action]] = {
        "GET": "policy.view",
        "PATCH": "policy.edit",
        "DELETE": "policy.edit",
    }

    @says("budget_read", "Read a budget", {200: BudgetOut})
    def get(self, request: Request, budget_id: str) -> Response:
        return self.answer(budget_id)

    @says(
        "budget_change",
        "Change a budget",
        {200: BudgetOut} | RACES,
        *(IF_MATCH, REASON),
        body=OpenApiTypes.OBJECT,
    )
    def patch(self, request: Request, budget_id: str) -> Response:
        etag, patch = self.if_match(), json_object(request.data)
        found = self.found(selectors.current_document(), budget_id)
        about = shown(found)
        for key in (*ABOUT, "name"):
            if (given := patch.pop(key, about[key])) != about[key]:
                raise refused(key, given, f"a budget keeps its {key}: {about[key]!r}")

        def new(old: Fields | None) -> Fields:
            merged = (old or {}) | patch
            return {key: value for key, value in merged.items() if value is not None}

        self.replace(found.kind, found.owner, etag, found.budget.name, new)
        return self.answer(budget_id)

    @says("budget_delete", "Take a budget away", {204: None} | RACES, IF_MATCH, REASON)
    def delete(self, request: Request, budget_id: str) -> Response:
        etag = self.if_match()
        found = self.found(selectors.current_document(), budget_id)
        self.replace(found.kind, found.owner, etag, found.budget.name, lambda _old: None)
        return Response(status=204)
