"""Tiers and budgets as they stand in the document in force."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from tenants import selectors
from tenants.core.document import Budget, Document

PAGE = 100
OwnerKind = Literal["tier", "tenant", "application"]


def tiers(request: HttpRequest) -> HttpResponse:
    document = selectors.current_document()
    members: dict[str, list[str]] = {tier.name: [] for tier in document.tiers}
    for tenant in document.tenants:
        members[tenant.tier].append(tenant.name)
    rows = [(tier, members[tier.name]) for tier in document.tiers]
    return render(request, "tenants/tiers.html", {"rows": rows})


@dataclass(frozen=True, slots=True)
class OwnedBudget:
    kind: OwnerKind
    owner: tuple[str, ...]  # an application's tenant comes first
    budget: Budget

    @property
    def name(self) -> str:
        return "/".join(self.owner)

    @property
    def url(self) -> str:
        return reverse(f"{self.kind}-edit", args=self.owner)


def budgets(request: HttpRequest) -> HttpResponse:
    asked = {name: request.GET.get(name, "").strip() for name in ("q", "of")}
    rows = [
        row
        for row in owned_budgets(selectors.current_document())
        if asked["of"] in ("", row.kind)
        and (asked["q"].lower() in row.name or asked["q"].lower() in row.budget.name)
    ]
    context = {
        "page": Paginator(rows, PAGE).get_page(request.GET.get("page")),
        "asked": asked,
        "kinds": get_args(OwnerKind),
        "filtered": any(asked.values()),
    }
    return render(request, "tenants/budgets.html", context)


def owned_budgets(document: Document) -> Iterator[OwnedBudget]:
    for tier in document.tiers:
        yield from (OwnedBudget("tier", (tier.name,), budget) for budget in tier.budgets)
    for tenant in document.tenants:
        own = (tenant.name,)
        yield from (OwnedBudget("tenant", own, budget) for budget in tenant.budgets)
        for each in tenant.applications:
            both = (tenant.name, each.name)
            yield from (OwnedBudget("application", both, budget) for budget in each.budgets)
