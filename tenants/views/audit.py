"""Who changed what: filtered, a page at a time, and as a file.

Every filter has an index that ends in the order of the page, so that a page costs the same among
a million entries as among ten; nothing is counted.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils import timezone

from tenants.audited import about_tenant, begins
from tenants.core.permissions import Action
from tenants.core.text import no_formula, taken
from tenants.gate import viewer
from tenants.models import AuditEntry
from tenants.models.history import Beginning
from tenants.moments import read_moment
from tenants.services.actors import SOURCES
from tenants.streaming import Streamed
from tenants.views.keyset import Keyset

PAGE = 50
PIECE = 64 * 2**10  # characters of a file that are sent at once
KINDS = (
    "tenant",
    "application",
    "tier",
    "lane",
    "pool",
    "key",
    "user",
    "token",
    "budget_counter",
    "alert",
    "alert_rule",
    "destination",
)
FILTERS = ("tenant", "actor", "kind", "name", "field", "source", "since", "until")
COLUMNS = (
    "at",
    "actor",
    "source",
    "address",
    "kind",
    "name",
    "field",
    "old",
    "new",
    "reason",
    "revision",
)


def audit(request: HttpRequest) -> HttpResponseBase:
    asked = {name: request.GET.get(name, "").strip() for name in FILTERS}
    entries, wrong = entries_of(asked)
    if request.GET.get("format") == "csv" and not wrong:
        return as_file(entries)
    context = {
        "page": Keyset(request, entries, "at", PAGE),
        "asked": asked,
        "wrong": wrong,
        "kinds": KINDS,
        "sources": SOURCES,
        "query": filters_of(request),
        "filtered": any(asked.values()),
        "can_undo": viewer(request).can(UNDOING),
    }
    return render(request, "tenants/audit.html", context)


UNDOING: Action = "policy.edit"


def entries_of(asked: dict[str, str]) -> tuple[QuerySet[AuditEntry], str]:
    """The entries that fit, and the first filter that cannot be read, which is then left out.
    A name that ends in `*` stands for all that begin so."""
    entries: QuerySet[AuditEntry] = AuditEntry.objects.select_related("revision").defer(
        "revision__packed"
    )
    for whole in ("actor", "kind", "source"):
        if value := asked.get(whole):
            entries = entries.filter(**{whole: value})
    if tenant := asked.get("tenant"):
        entries = entries.filter(about_tenant(tenant))
    if name := asked.get("name"):
        entries = entries.filter(begins(name[:-1]) if name.endswith("*") else Q(name=name))
    if path := asked.get("field"):
        entries = entries.alias(beginning=Beginning("field"))
        entries = entries.filter(beginning=Beginning.of(path))
        if Beginning.of(path + " ") == Beginning.of(path):
            # Were it `field=`, SQLite would put the value into the index's expression and scan all.
            entries = entries.filter(field__gte=path, field__lte=path)
    return within(entries, asked)


def within(
    entries: QuerySet[AuditEntry], asked: dict[str, str]
) -> tuple[QuerySet[AuditEntry], str]:
    wrong = ""
    for field, lookup in (("since", "at__gte"), ("until", "at__lt")):
        if text := asked.get(field):
            moment = read_moment(text, timezone.get_current_timezone())
            if moment is None:
                wrong = wrong or f"{field} is {text!r}; it takes 2026-11-29 or 2026-11-29T18:00."
            else:
                entries = entries.filter(**{lookup: moment})
    return entries, wrong


def filters_of(request: HttpRequest) -> str:
    query = request.GET.copy()
    for name in ("before", "after", "format"):
        query.pop(name, None)
    return query.urlencode()


def as_file(entries: QuerySet[AuditEntry]) -> HttpResponseBase:
    """Streamed, newest first: what the list shows, all of it."""
    fields = [*COLUMNS[:-1], "revision__number"]
    rows = entries.order_by("-at", "-id").values_list(*fields)
    answer = Streamed(lines(rows), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="audit.csv"'
    return answer


def lines(rows: QuerySet[Any, tuple[Any, ...]]) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for at, *values in rows.iterator(chunk_size=2000):
        writer.writerow([at.strftime("%Y-%m-%dT%H:%M:%SZ"), *(cell(value) for value in values)])
        if buffer.tell() >= PIECE:
            yield taken(buffer)
    yield taken(buffer)


def cell(value: Any) -> Any:
    if isinstance(value, dict | list | bool):
        return json.dumps(value)
    return no_formula(value) if isinstance(value, str) else value
