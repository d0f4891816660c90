"""Tiers and budgets as they stand in the document in force."""

from __future__ import annotations

from typing import get_args

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from tenants import selectors
from tenants.core.owned import OwnedBudget, OwnerKind, owned_budgets

PAGE = 100


def tiers(request: HttpRequest) -> HttpResponse:
    document = selectors.current_document()
    members: dict[str, list[str]] = {tier.name: [] for tier in document.tiers}
    for tenant in document.tenants:
        members[tenant.tier].append(tenant.name)
    rows = [(tier, members[tier.name]) for tier in document.tiers]
    return render(request, "tenants/tiers.html", {"rows": rows})


def budgets(request: HttpRequest) -> HttpResponse:
    asked = {name: request.GET.get(name, "").strip() for name in ("q", "of")}
    rows = [
        row
        for row in owned_budgets(selectors.current_document())
        if asked["of"] in ("", row.kind)
        and (asked["q"].lower() in row.owner or asked["q"].lower() in row.budget.name)
    ]
    page = Paginator(rows, PAGE).get_page(request.GET.get("page"))
    context = {
        "page": page,
        "rows": [(row, form_of(row)) for row in page],
        "asked": asked,
        "kinds": get_args(OwnerKind),
        "filtered": any(asked.values()),
    }
    return render(request, "tenants/budgets.html", context)


def form_of(owned: OwnedBudget) -> str:
    return reverse(f"{owned.kind}-edit", args=owned.owner.split("/"))
