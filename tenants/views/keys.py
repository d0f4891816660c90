"""API keys. A secret is shown once, on the page that answers the form, and never again.

A tenant's people see their own tenant's keys here, and nothing of anybody else's.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache

from tenants import selectors
from tenants.core.document import Document
from tenants.errors import NotFound, PolicyRefused
from tenants.forms import KeyForm
from tenants.forms.parts import Number
from tenants.gate import viewer
from tenants.models import ApiKey
from tenants.services import keys as services
from tenants.views.answers import actor, confirm, reason

STATES = ("active", "expired", "revoked")


def keys(request: HttpRequest) -> HttpResponse:
    who = viewer(request)
    tenant = who.tenant if who.confined else request.GET.get("tenant") or None
    found = selectors.keys(tenant)
    if query := request.GET.get("q", "").strip():
        found = found.filter(name__icontains=query) | found.filter(public_id__icontains=query)
    context = {
        "page": Paginator(found, 100).get_page(request.GET.get("page")),
        "q": query,
        "tenant": tenant,
        "hide_tenant": who.confined,
        "tenants": [] if who.confined else tenant_names(),
        "key_editor": who.can("keys.edit"),
    }
    return render(request, "tenants/keys.html", context)


def tenant_names() -> list[str]:
    return [tenant.name for tenant in selectors.current_document().tenants]


@never_cache
def create(request: HttpRequest) -> HttpResponse:
    who, document = viewer(request), selectors.current_document()
    form = key_form(request, document, who.tenant if who.confined else None)
    if request.method == "POST" and form.is_valid():
        asked = form.part()
        try:
            key, secret = services.create_key(
                asked["tenant"],
                asked["application"],
                asked["name"] or "",
                asked["expires_days"],
                actor=actor(request),
                reason=reason(request),
            )
        except PolicyRefused as refusal:
            for issue in refusal.issues:
                form.accept(issue.loc, issue.message) or form.add_error(None, issue.message)
        except NotFound as missing:
            form.add_error("application", str(missing))
        else:
            return shown_once(request, key, secret, "made")
    return render(request, "tenants/key_new.html", {"form": form, "reason": reason(request)})


def key_form(request: HttpRequest, document: Document, own: str | None) -> KeyForm:
    tenants = [each for each in document.tenants if own is None or each.name == own]
    applications = sorted({app.name for each in tenants for app in each.applications})
    form = KeyForm(request.POST or None, initial={"tenant": request.GET.get("tenant")})
    form.fill("tenant", [each.name for each in tenants])
    form.fill("application", applications)
    return form


def shown_once(request: HttpRequest, key: ApiKey, secret: str, what: str) -> HttpResponse:
    context: dict[str, Any] = {"key": key, "secret": secret, "what": what}
    return render(request, "tenants/key_secret.html", context)


class GraceForm(forms.Form):
    grace_hours = Number(
        label="Keep the old secret for, hours",
        required=False,
        min_value=0,
        help_text="0 or empty: it stops working at once.",
    )
    use_required_attribute = False


@never_cache
def rotate(request: HttpRequest, public_id: str) -> HttpResponse:
    key = own_key(request, public_id)
    form = GraceForm(request.POST or None, initial={"grace_hours": 24})
    if request.method == "POST" and form.is_valid():
        grace = form.cleaned_data["grace_hours"] or 0
        try:
            key, secret = services.rotate_key(
                public_id, grace, actor=actor(request), reason=reason(request)
            )
        except PolicyRefused as refusal:
            form.add_error(None, [issue.message for issue in refusal.issues])
        else:
            return shown_once(request, key, secret, "rotated")
    return render(request, "tenants/key_rotate.html", {"form": form, "key": key})


def revoke(request: HttpRequest, public_id: str) -> HttpResponse:
    key = own_key(request, public_id)
    if request.method == "POST":
        services.revoke_key(public_id, actor=actor(request), reason=reason(request))
        return redirect(f"{reverse('keys')}?tenant={key.tenant.name}")
    return confirm(
        request,
        title=f"Revoke {key.masked}",
        explanation=f"Requests with this key of {key.tenant.name} are refused within a second; "
        "those that run finish. It cannot be taken back: make a new key instead.",
        verb="Revoke",
        back=reverse("keys"),
        back_label="Keys",
        danger=True,
    )


def own_key(request: HttpRequest, public_id: str) -> ApiKey:
    key = selectors.keys().filter(public_id=public_id).first()
    if key is None:
        raise Http404
    viewer(request).require("keys.edit", key.tenant.name)
    return key
