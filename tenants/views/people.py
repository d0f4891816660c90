"""Users and the audit trail."""

from __future__ import annotations

from django.contrib.auth import get_user_model
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from tenants.models import AuditEntry
from tenants.moments import read_moment

KINDS = ("tenant", "application", "tier", "lane", "pool", "key", "user")
FILTERS = ("actor", "kind", "name", "since", "until")


def users(request: HttpRequest) -> HttpResponse:
    people = get_user_model()._default_manager.select_related("membership__tenant")
    page = Paginator(people.order_by("username"), 100).get_page(request.GET.get("page"))
    return render(request, "tenants/users.html", {"page": page})


def audit(request: HttpRequest) -> HttpResponse:
    asked = {name: request.GET.get(name, "").strip() for name in FILTERS}
    entries, wrong = audit_entries(asked)
    context = {
        "page": Paginator(entries, 50).get_page(request.GET.get("page")),
        "asked": asked,
        "wrong": wrong,
        "kinds": KINDS,
        "query": query_without_page(request),
    }
    return render(request, "tenants/audit.html", context)


def audit_entries(asked: dict[str, str]) -> tuple[QuerySet[AuditEntry], str]:
    """The entries that fit, and the first filter that cannot be read, which is then left out."""
    entries: QuerySet[AuditEntry] = AuditEntry.objects.select_related("revision").defer(
        "revision__packed"
    )
    wrong = ""
    if actor := asked.get("actor"):
        entries = entries.filter(actor=actor)
    if kind := asked.get("kind"):
        entries = entries.filter(kind=kind)
    if name := asked.get("name"):
        entries = entries.filter(name__icontains=name)
    for field, lookup in (("since", "at__gte"), ("until", "at__lt")):
        if text := asked.get(field):
            moment = read_moment(text)
            if moment is None:
                wrong = wrong or f"{field} is {text!r}; it takes 2026-11-29 or 2026-11-29T18:00."
            else:
                entries = entries.filter(**{lookup: moment})
    return entries, wrong


def query_without_page(request: HttpRequest) -> str:
    query = request.GET.copy()
    query.pop("page", None)
    return query.urlencode()
