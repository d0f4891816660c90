"""Tiers, lanes, pools and budgets as they stand in the document in force."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from tenants import selectors
from tenants.core.document import Budget, Document


def lanes(request: HttpRequest) -> HttpResponse:
    found = sorted(selectors.current_document().lanes, key=lambda lane: lane.rank)
    reserved = sum(lane.reserved_share for lane in found)
    context = {"lanes": found, "reserved": reserved, "free": max(0.0, 1 - reserved)}
    return render(request, "tenants/lanes.html", context)


def tiers(request: HttpRequest) -> HttpResponse:
    document = selectors.current_document()
    members: dict[str, list[str]] = {tier.name: [] for tier in document.tiers}
    for tenant in document.tenants:
        members[tenant.tier].append(tenant.name)
    rows = [(tier, members[tier.name]) for tier in document.tiers]
    return render(request, "tenants/tiers.html", {"rows": rows})


@dataclass(frozen=True, slots=True)
class OwnedBudget:
    owner_kind: str
    owner: str
    url: str
    budget: Budget


def budgets(request: HttpRequest) -> HttpResponse:
    rows = list(owned_budgets(selectors.current_document()))
    return render(request, "tenants/budgets.html", {"rows": rows})


def owned_budgets(document: Document) -> Iterator[OwnedBudget]:
    for tier in document.tiers:
        url = reverse("tier-edit", args=[tier.name])
        yield from (OwnedBudget("tier", tier.name, url, budget) for budget in tier.budgets)
    for tenant in document.tenants:
        url = reverse("tenant-edit", args=[tenant.name])
        yield from (OwnedBudget("tenant", tenant.name, url, budget) for budget in tenant.budgets)
        for each in tenant.applications:
            url = reverse("application-edit", args=[tenant.name, each.name])
            name = f"{tenant.name}/{each.name}"
            yield from (OwnedBudget("application", name, url, budget) for budget in each.budgets)


def pools_context() -> dict[str, Any]:
    return {"pools": selectors.current_document().pools}
