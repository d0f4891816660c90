"""API keys. A secret is shown once, on the page that answers the form, and never again.

A tenant's people see their own tenant's keys here, and nothing of anybody else's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone

from tenants import selectors
from tenants.core.effective import names_for
from tenants.core.first_call import with_curl, with_openai
from tenants.core.keys import id_in
from tenants.errors import NotFound, PolicyRefused
from tenants.forms.keys import ExpiryForm, GraceForm, KeyForm
from tenants.forms.rows import Budgets
from tenants.forms.sheet import BUDGET_NOTE, as_fields
from tenants.gate import viewer
from tenants.models import ApiKey
from tenants.models.keys import SOON, in_state
from tenants.services import keys as services
from tenants.services.state import bump
from tenants.views.answers import actor, confirm, reason, show_refusal

PAGE = 50
MOST_AT_ONCE = 200
SUGGESTED = 500  # names of applications
EVERYTHING = "all"
STALE = (
    "Somebody else changed these budgets meanwhile. What you typed is kept below; look at the "
    "audit, then save again to put it in place of theirs."
)


def chosen_by(state: str) -> Q:
    """Without a state all but what was revoked: that is over, and there is ever more of it."""
    states: Mapping[str, Q] = {
        "active": in_state("active"),
        "expiring soon": in_state("active") & Q(expires_at__lte=timezone.now() + SOON),
        "expired": in_state("expired"),
        "never used": in_state("active") & Q(last_used_at=None),
        "revoked": in_state("revoked"),
        EVERYTHING: Q(),
    }
    return states.get(state, Q(revoked_at=None))


STATES = ("active", "expiring soon", "expired", "never used", "revoked", EVERYTHING)


def keys(request: HttpRequest) -> HttpResponse:
    who = viewer(request)
    asked = {name: request.GET.get(name, "").strip() for name in ("q", "tenant", "state")}
    tenant = who.tenant if who.confined else asked["tenant"] or None
    found = selectors.keys(tenant).filter(chosen_by(asked["state"]))
    if query := asked["q"]:
        found = found.filter(Q(name__icontains=query) | Q(public_id__icontains=id_in(query)))
    context = {
        "page": Paginator(found, PAGE).get_page(request.GET.get("page")),
        "asked": asked,
        "states": STATES,
        "tenant": tenant,
        "hide_tenant": who.confined,
        "key_editor": who.can("keys.edit"),
        "filtered": any(asked.values()),
    }
    return render(request, "tenants/keys.html", context)


def create(request: HttpRequest) -> HttpResponse:
    form = key_form(request)
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
        except (PolicyRefused, NotFound) as refusal:
            show_refusal(form, refusal, named="application")
        else:
            return shown_once(request, key, secret, "made")
    context = {"form": form, "reason": reason(request), "applications": suggested(form)}
    return render(request, "tenants/key_new.html", context)


def key_form(request: HttpRequest) -> KeyForm:
    who, document = viewer(request), selectors.current_document()
    own = who.tenant if who.confined else None
    form = KeyForm(request.POST or None, initial={"tenant": request.GET.get("tenant")})
    form.allow([each for each in document.tenants if own in (None, each.name)])
    return form


def suggested(form: KeyForm) -> list[str]:
    """Applications of the tenant that is chosen; while none is, of them all."""
    chosen = form.tenants.get(form["tenant"].value() or "")
    tenants = [chosen] if chosen else form.tenants.values()
    return sorted({app.name for each in tenants for app in each.applications})[:SUGGESTED]


def shown_once(request: HttpRequest, key: ApiKey, secret: str, what: str) -> HttpResponse:
    old = key.secrets.filter(accepted_until__gt=timezone.now()).order_by("-accepted_until").first()
    old_until = old.accepted_until if old else None
    context: dict[str, Any] = {"key": key, "secret": secret, "what": what, "old_until": old_until}
    context |= first_calls(request, key.tenant.name, secret)
    return render(request, "tenants/key_secret.html", context)


def first_calls(request: HttpRequest, tenant: str, secret: str) -> dict[str, Any]:
    """Where the key works, with which models, and calls that are ready to paste. Beside a console
    that runs apart from its gateways there is one address for both, as in deploy/, or another."""
    here = settings.FAIRLANE_URL or request.build_absolute_uri("/")
    base = f"{here.rstrip('/')}/v1"
    document = selectors.current_document()
    owner = next((each for each in document.tenants if each.name == tenant), None)
    models = names_for(owner, document) if owner else []
    calls = [
        (label, of(base, secret, models[0]))
        for label, of in (("curl", with_curl), ("Python, OpenAI's client", with_openai))
        if models
    ]
    apart = os.environ.get("FAIRLANE_ROLE") == "console"
    return {"base": base, "apart": apart, "models": models, "calls": calls}


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
    context = {"form": form, "key": key, "reason": reason(request)}
    return render(request, "tenants/key_rotate.html", context)


def expire(request: HttpRequest, public_id: str) -> HttpResponse:
    key = own_key(request, public_id)
    form = ExpiryForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        days = form.cleaned_data["expires_days"]
        try:
            key = services.expire_key(public_id, days, actor=actor(request), reason=reason(request))
        except PolicyRefused as refusal:
            form.add_error("expires_days", [issue.message for issue in refusal.issues])
        else:
            ends = timezone.localtime(key.expires_at) if key.expires_at else None
            when = f"expires at {ends:%Y-%m-%d %H:%M}" if ends else "never expires"
            messages.success(request, f"Key {key.masked} {when}.")
            return redirect(list_of(key))
    context = {"form": form, "key": key, "reason": reason(request)}
    return render(request, "tenants/key_expire.html", context)


def budgets(request: HttpRequest, public_id: str) -> HttpResponse:
    """What was typed stays where somebody else changed them since the page was opened."""
    key = own_key(request, public_id)
    now = [as_fields(selectors.budget_of(row)) for row in key.budgets.all()]
    rows = Budgets(request.POST or None, prefix="budgets", initial=now)
    faults: list[str] = []
    if request.method == "POST" and rows.is_valid():
        try:
            saved = set_budgets(request, public_id, rows.parts())
        except PolicyRefused as refusal:
            for issue in refusal.issues:
                row = issue.loc[1:]  # empty where it is of the key itself
                if not row or not rows.accept(row, issue.message):
                    faults.append(issue.message)
        else:
            if saved:
                messages.success(request, f"Budgets of key {key.masked} are changed.")
                return redirect(list_of(key))
            faults.append(STALE)
    context = {
        "key": key,
        "rows": rows,
        "faults": faults,
        "note": BUDGET_NOTE,
        "seen": seen_of(key),
        "reason": reason(request),
    }
    bad = bool(faults or (rows.is_bound and not rows.is_valid()))
    return render(request, "tenants/key_budgets.html", context, status=422 if bad else 200)


def set_budgets(request: HttpRequest, public_id: str, asked: list[dict[str, Any]]) -> bool:
    """False where they are not those that the page was opened with."""
    with transaction.atomic():
        bump()  # every change of a key waits for this row
        if request.POST.get("seen") != seen_of(own_key(request, public_id)):
            return False
        services.set_key_budgets(public_id, asked, actor=actor(request), reason=reason(request))
    return True


def seen_of(key: ApiKey) -> str:
    text = repr([selectors.budget_of(row) for row in key.budgets.all()])
    return sha256(text.encode()).hexdigest()[:16]


def revoke(request: HttpRequest, public_id: str) -> HttpResponse:
    key = own_key(request, public_id)

    def act() -> HttpResponse:
        services.revoke_key(public_id, actor=actor(request), reason=reason(request))
        messages.success(request, f"Key {key.masked} is revoked.")
        return redirect(list_of(key))

    return confirm(
        request,
        act,
        title=f"Revoke {key.masked}",
        explanation=f"Requests with this key of {key.tenant.name} are refused within a second; "
        "those that run finish. It cannot be taken back: make a new key instead.",
        verb="Revoke",
        back=list_of(key),
        back_label="Keys",
        danger=True,
    )


def revoke_many(request: HttpRequest) -> HttpResponse:
    """All of the chosen keys or, where one is another tenant's or unknown, none."""
    chosen = request.POST if request.method == "POST" else request.GET
    ids = list(dict.fromkeys(chosen.getlist("key")))[:MOST_AT_ONCE]
    found = [key for key in own_keys(request, ids) if key.revoked_at is None]
    if request.method == "POST" and found:
        with transaction.atomic():
            for key in found:
                services.revoke_key(key.public_id, actor=actor(request), reason=reason(request))
        are = "key is" if len(found) == 1 else "keys are"
        messages.success(request, f"{len(found)} {are} revoked.")
        return redirect("keys")
    context = {"keys": found, "reason": reason(request)}
    return render(request, "tenants/keys_revoke.html", context)


def list_of(key: ApiKey) -> str:
    return f"{reverse('keys')}?tenant={key.tenant.name}"


def own_key(request: HttpRequest, public_id: str) -> ApiKey:
    return own_keys(request, [public_id])[0]


def own_keys(request: HttpRequest, ids: list[str]) -> list[ApiKey]:
    found = list(selectors.keys_by_id(ids))
    if len(found) < len(ids):
        raise Http404
    for key in found:
        viewer(request).require("keys.edit", key.tenant.name)
    return found
