"""Every budget of a document with whose it is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tenants.core.document import Budget, Document

OwnerKind = Literal["tier", "tenant", "application"]


@dataclass(frozen=True, slots=True)
class OwnedBudget:
    kind: OwnerKind
    owner: str  # `tenant/application` of an application
    budget: Budget

    @property
    def id(self) -> str:
        return f"{self.kind}:{self.owner}/{self.budget.name}"


def owned_budgets(document: Document) -> Iterator[OwnedBudget]:
    """Those of applications behind their tenant's."""
    for tier in document.tiers:
        yield from (OwnedBudget("tier", tier.name, budget) for budget in tier.budgets)
    for tenant in document.tenants:
        yield from (OwnedBudget("tenant", tenant.name, budget) for budget in tenant.budgets)
        for each in tenant.applications:
            name = f"{tenant.name}/{each.name}"
            yield from (OwnedBudget("application", name, budget) for budget in each.budgets)
