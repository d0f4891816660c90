"""Budgets over all owners. An edit is an edit of the owner, with the owner's ETag."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, cast

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from tenants import places, selectors, services
from tenants.api.base import Api
from tenants.api.described import FAULTS, IF_MATCH, RACES, REASON, many
from tenants.api.schemas import BudgetOut
from tenants.core.diff import Kind, named
from tenants.core.document import Budget, Document
from tenants.core.issue import Invalid, Issue, short
from tenants.core.permissions import Action
from tenants.errors import NotFound

OWNERS: tuple[Kind, ...] = ("tier", "tenant", "application")


def owned(document: Document) -> Iterator[tuple[Kind, str, Budget]]:
    for kind in OWNERS:
        for name, part in named(document, kind).items():
            for budget in cast(Any, part).budgets:
                yield kind, name, budget


def shown(kind: Kind, owner: str, budget: Budget) -> dict[str, Any]:
    about = {"id": f"{kind}:{owner}/{budget.name}", "owner_kind": kind, "owner": owner}
    return about | budget.model_dump(exclude_none=True)


class Budgets(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "policy.view"}

    @extend_schema(
        operation_id="budget_list",
        summary="Budgets of tiers, tenants and applications",
        tags=["budgets"],
        responses={200: many(BudgetOut)} | FAULTS,
    )
    def get(self, request: Request) -> Response:
        return Response([shown(*each) for each in owned(selectors.current_document())])


class OneBudget(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "policy.view", "PATCH": "policy.edit"}

    @extend_schema(
        operation_id="budget_read",
        summary="Read a budget",
        tags=["budgets"],
        responses={200: BudgetOut} | FAULTS,
    )
    def get(self, request: Request, budget_id: str) -> Response:
        kind, owner, budget = self._find(budget_id)
        etag = services.object_etag(kind, owner)
        return Response(shown(kind, owner, budget), headers={"ETag": f'"{etag}"'})

    @extend_schema(
        operation_id="budget_change",
        summary="Change a budget",
        tags=["budgets"],
        parameters=[IF_MATCH, REASON],
        request=OpenApiTypes.OBJECT,
        responses={200: BudgetOut} | FAULTS | RACES,
    )
    def patch(self, request: Request, budget_id: str) -> Response:
        etag = self.if_match()
        kind, owner, budget = self._find(budget_id)
        if not isinstance(request.data, dict):
            raise Invalid([Issue("", None, short(request.data), "the body must be a JSON object")])
        merged = budget.model_dump(exclude_none=True) | request.data
        changed = {key: value for key, value in merged.items() if value is not None}
        if changed.get("name") != budget.name:
            raise Invalid(
                [Issue("name", None, short(changed.get("name")), "a budget keeps its name")]
            )
        siblings = cast(Any, named(selectors.current_document(), kind)[owner]).budgets
        whole = [
            changed if each.name == budget.name else each.model_dump(exclude_none=True)
            for each in siblings
        ]
        try:
            services.edit_object(
                kind,
                owner,
                {"budgets": whole},
                actor=self.actor(),
                etag=etag or services.object_etag(kind, owner),
                reason=self.reason(),
            )
        except Invalid as invalid:
            mine = [places.relative(issue, kind, owner) for issue in invalid.issues]
            raise Invalid(mine) from None
        return self.get(request, budget_id)

    def _find(self, budget_id: str) -> tuple[Kind, str, Budget]:
        for kind, owner, budget in owned(selectors.current_document()):
            if budget_id == f"{kind}:{owner}/{budget.name}":
                return kind, owner, budget
        raise NotFound(f"there is no budget {budget_id!r}")
