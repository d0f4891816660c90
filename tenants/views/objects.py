"""Making, changing and deleting one object of the policy; the same three pages for every kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from tenants import selectors
from tenants.core.diff import Kind, named
from tenants.core.document import Document, Tenant
from tenants.core.effective import origins
from tenants.errors import Conflict, NotFound, PolicyRefused
from tenants.forms.sheet import Sheet
from tenants.gate import View
from tenants.services import objects
from tenants.views.answers import actor, confirm, reason, tell

LISTS: Mapping[Kind, tuple[str, str]] = {
    "lane": ("lanes", "Lanes"),
    "tier": ("tiers", "Tiers"),
    "pool": ("pools", "Pools"),
    "tenant": ("tenants", "Tenants"),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page leads back to."""

    url: str
    label: str


def place_of(kind: Kind, name: str) -> Place:
    if kind == "application":
        tenant = name.partition("/")[0]
        return Place(reverse("tenant", args=[tenant]), tenant)
    if kind == "tenant" and name:
        return Place(reverse("tenant", args=[name]), name)
    page, label = LISTS[kind]
    return Place(reverse(page), label)


def create(kind: Kind) -> View:
    def view(request: HttpRequest, tenant: str = "") -> HttpResponse:
        document = selectors.current_document()
        if tenant and tenant not in named(document, "tenant"):
            raise Http404
        name = f"{tenant}/" if kind == "application" else ""
        sheet = Sheet(kind, name, document, request.POST or None)
        if request.method == "POST" and sheet.is_valid():
            try:
                applied = objects.create_object(
                    kind, sheet.fields(), actor=actor(request), reason=sheet.reason
                )
            except PolicyRefused as refusal:
                sheet.refuse(refusal.issues)
            else:
                made = str(sheet.form.cleaned_data[sheet.key])
                tell(request, f"{kind.capitalize()} {made} made.", applied)
                return redirect(place_of(kind, name or made).url)
        return show(request, sheet, f"New {kind}", "Create")

    return view


def edit(kind: Kind) -> View:
    def view(request: HttpRequest, name: str, tenant: str = "") -> HttpResponse:
        name = f"{tenant}/{name}" if tenant else name
        document = selectors.current_document()
        if name not in named(document, kind):
            raise Http404
        etag = str(request.POST.get("etag") or objects.object_etag(kind, name))
        sheet = Sheet(
            kind, name, document, request.POST or None, inherited(document, kind, name), etag
        )
        if request.method == "POST" and sheet.is_valid() and save(request, sheet):
            return redirect(place_of(kind, name).url)
        return show(request, sheet, f"{kind.capitalize()} {sheet.own_name}", "Save")

    return view


def save(request: HttpRequest, sheet: Sheet) -> bool:
    try:
        applied = objects.edit_object(
            sheet.kind,
            sheet.name,
            sheet.fields(),
            actor=actor(request),
            etag=sheet.etag,
            reason=sheet.reason,
        )
    except PolicyRefused as refusal:
        sheet.refuse(refusal.issues)
    except Conflict:
        present = selectors.current_document()
        sheet.show_conflict(present, objects.object_etag(sheet.kind, sheet.name))
    except NotFound as gone:
        raise Http404 from gone
    else:
        tell(request, f"{sheet.kind.capitalize()} {sheet.own_name} changed.", applied)
        return True
    return False


def show(request: HttpRequest, sheet: Sheet, title: str, verb: str) -> HttpResponse:
    back = place_of(sheet.kind, sheet.name)
    context: dict[str, Any] = {
        "sheet": sheet,
        "title": title,
        "verb": verb,
        "back": back,
        "delete_url": "" if sheet.is_new else delete_url(sheet.kind, sheet.name),
    }
    status = 409 if sheet.conflict is not None else 422 if sheet.faults else 200
    return render(request, "tenants/sheet.html", context, status=status)


def delete_url(kind: Kind, name: str) -> str:
    args = name.split("/", 1) if kind == "application" else [name]
    return reverse(f"{kind}-delete", args=args)


def delete(kind: Kind) -> View:
    def view(request: HttpRequest, name: str, tenant: str = "") -> HttpResponse:
        name = f"{tenant}/{name}" if tenant else name
        back = place_of(kind, name)
        faults: list[str] = []
        try:
            etag = str(request.POST.get("etag") or objects.object_etag(kind, name))
            if request.method == "POST":
                applied = objects.delete_object(
                    kind, name, actor=actor(request), etag=etag, reason=reason(request)
                )
                tell(request, f"{kind.capitalize()} {name} deleted.", applied)
                gone = kind == "tenant"
                return redirect("tenants" if gone else back.url)
        except NotFound as missing:
            raise Http404 from missing
        except PolicyRefused as refusal:
            faults = [str(issue) for issue in refusal.issues]
        except Conflict as conflict:
            faults = [f"{conflict}. Look at it again before you delete it."]
            etag = objects.object_etag(kind, name)
        return confirm(
            request,
            title=f"Delete {kind} {name}",
            explanation=CONSEQUENCES[kind],
            verb="Delete",
            back=back.url,
            back_label=back.label,
            danger=True,
            faults=faults,
            etag=etag,
        )

    return view


CONSEQUENCES: Mapping[Kind, str] = {
    "lane": "Requests that wait in it are refused. Tiers that name it must be changed first.",
    "tier": "Tenants of this tier must be moved first.",
    "pool": "Requests that wait for this model are refused; those that run finish.",
    "tenant": "Its keys stop working at once, and what waits is refused. Usage records stay. "
    "Restoring an earlier revision brings it back, keys included.",
    "application": "Its keys stop working at once. Usage records stay.",
}


def inherited(document: Document, kind: Kind, name: str) -> dict[str, str]:
    """What the tier or the default says where a tenant says nothing, by field of the form."""
    tenant = named(document, kind).get(name)
    if not isinstance(tenant, Tenant):
        return {}
    tier = next(tier for tier in document.tiers if tier.name == tenant.tier)
    found: dict[str, str] = {}
    for field, (value, origin) in origins(tenant, tier).items():
        if origin != "tenant" and field not in ("timezone", "enabled"):
            found[field.replace(".", "__")] = f"{_shown(value)}, from {origin}"
    return found


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "unlimited" if value is None else str(value)
