"""Making, changing and deleting one object of the policy; the same pages for every kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from tenants import selectors
from tenants.core.diff import Kind, named
from tenants.core.document import Document, Tenant
from tenants.core.effective import origins, tier_of
from tenants.core.shown import budget_text, words
from tenants.errors import PolicyRefused
from tenants.forms.sheet import Sheet
from tenants.gate import View
from tenants.services import objects
from tenants.views import preview
from tenants.views.answers import Place

LISTS: Mapping[Kind, tuple[str, str]] = {
    "lane": ("lanes", "Lanes"),
    "tier": ("tiers", "Tiers"),
    "pool": ("pools", "Pools"),
    "tenant": ("tenants", "Tenants"),
}


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
        sheet = Sheet(kind, name, document, request.POST or None, more=more_of(request))
        if is_sent(request, sheet):
            made = str(sheet.form.cleaned_data[sheet.key])
            asked = preview.Asked(
                propose=objects.creating(kind, sheet.fields()),
                title=f"New {kind} {made}",
                done=f"{kind.capitalize()} {made} made.",
                back=place_of(kind, name),
                after=place_of(kind, name or made).url,
                form=True,
                base=selectors.current_revision(),
            )
            if answer := previewed(request, sheet, asked):
                return answer
        return show(request, sheet, f"New {kind}")

    return view


def edit(kind: Kind) -> View:
    def view(request: HttpRequest, name: str, tenant: str = "") -> HttpResponse:
        name = f"{tenant}/{name}" if tenant else name
        base = preview.base_of(request)
        document = seen(kind, name, base)
        sheet = Sheet(
            kind,
            name,
            document,
            request.POST or None,
            inherited(document, kind, name),
            base,
            more=more_of(request),
        )
        title = f"{kind.capitalize()} {sheet.own_name}"
        if is_sent(request, sheet):
            place = place_of(kind, name)
            asked = preview.Asked(
                propose=objects.editing(kind, name, sheet.fields()),
                title=title,
                done=f"{title} changed.",
                back=place,
                after=place.url,
                form=True,
            )
            if answer := previewed(request, sheet, asked):
                return answer
        return show(request, sheet, title)

    return view


def seen(kind: Kind, name: str, base: int) -> Document:
    """The policy in force, or as the author saw it where the object is gone by now."""
    for document in (selectors.current_document(), selectors.revision_document(base)):
        if name in named(document, kind):
            return document
    raise Http404


def is_sent(request: HttpRequest, sheet: Sheet) -> bool:
    asked = request.method == "POST" and not sheet.more
    return asked and sheet.is_valid() and preview.step_of(request) != "form"


def more_of(request: HttpRequest) -> str:
    return str(request.POST.get("more", ""))


def previewed(request: HttpRequest, sheet: Sheet, asked: preview.Asked) -> HttpResponse | None:
    """None where the policy's checks refuse it: the sheet then shows where."""
    try:
        return preview.run(request, asked)
    except PolicyRefused as refusal:
        sheet.refuse(refusal.issues)
    return None


def show(request: HttpRequest, sheet: Sheet, title: str) -> HttpResponse:
    context: dict[str, Any] = {
        "sheet": sheet,
        "title": title,
        "back": place_of(sheet.kind, sheet.name),
        "delete_url": "" if sheet.is_new else delete_url(sheet.kind, sheet.name),
    }
    return render(request, "tenants/sheet.html", context, status=422 if sheet.faults else 200)


def delete_url(kind: Kind, name: str) -> str:
    args = name.split("/", 1) if kind == "application" else [name]
    return reverse(f"{kind}-delete", args=args)


def delete(kind: Kind) -> View:
    def view(request: HttpRequest, name: str, tenant: str = "") -> HttpResponse:
        name = f"{tenant}/{name}" if tenant else name
        seen(kind, name, selectors.current_revision())
        back = place_of(kind, name)
        asked = preview.Asked(
            propose=objects.deleting(kind, name),
            title=f"Delete {kind} {name}",
            done=f"{kind.capitalize()} {name} deleted.",
            back=back,
            after=reverse("tenants") if kind == "tenant" else back.url,
            verb="Delete",
            explanation=consequences(kind, name),
            danger=True,
        )
        return preview.run(request, asked)

    return view


def consequences(kind: Kind, name: str) -> str:
    """Keys are no part of the document, so no preview of it shows them."""
    if kind not in ("tenant", "application"):
        return CONSEQUENCES[kind]
    tenant, _, application = name.partition("/")
    inside = {"application__name": application} if application else {}
    found = selectors.keys(tenant).filter(revoked_at=None, **inside)
    number, bounded = found.count(), found.exclude(budgets=None).distinct().count()
    keys = {0: "It has no keys.", 1: "Its key stops working at once."}.get(
        number, f"Its {number:,} keys stop working at once."
    )
    if bounded:
        keys += f" {bounded:,} of them {'has' if bounded == 1 else 'have'} budgets of their own."
    return f"{keys} {CONSEQUENCES[kind]}"


CONSEQUENCES: Mapping[Kind, str] = {
    "lane": "Requests that wait in it are refused. Tiers that name it must be changed first.",
    "tier": "Tenants of this tier must be moved first.",
    "pool": "Requests that wait for this model are refused; those that run finish.",
    "tenant": "What waits is refused. Usage records stay. "
    "Undoing this brings it back, keys included.",
    "application": "Usage records stay.",
}


def inherited(document: Document, kind: Kind, name: str) -> dict[str, str]:
    """What the tier or the default says where a tenant says nothing, by field of the form."""
    tenant = named(document, kind).get(name)
    if not isinstance(tenant, Tenant):
        return {}
    found: dict[str, str] = {}
    for field, (value, origin) in origins(tenant, tier_of(tenant, document)).items():
        if field.startswith("budgets.") and origin == "tier":
            found[field.replace(".", "__", 1)] = budget_text(value)
            continue
        if origin != "tenant" and field not in ("timezone", "enabled"):
            text = "unlimited" if value is None else words(value)
            found[field.replace(".", "__")] = f"{text}, from {origin}"
    return found
