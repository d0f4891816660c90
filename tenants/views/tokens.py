"""Service tokens: what a pipeline or a script calls the admin API with."""

from __future__ import annotations

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from tenants import selectors, services
from tenants.errors import NotFound, PolicyRefused
from tenants.forms.people import ServiceTokenForm
from tenants.gate import viewer
from tenants.views.answers import actor, confirm, reason, show_refusal, told_once
from tenants.views.users import with_tenants


def tokens(request: HttpRequest) -> HttpResponse:
    found = selectors.service_tokens()
    if query := request.GET.get("q", "").strip():
        found = found.filter(name__icontains=query) | found.filter(public_id__icontains=query)
    context = {
        "page": Paginator(found, 50).get_page(request.GET.get("page")),
        "q": query,
        "editor": viewer(request).can("users.edit"),
    }
    return render(request, "tenants/tokens.html", context)


def create(request: HttpRequest) -> HttpResponse:
    form = with_tenants(ServiceTokenForm(request.POST or None))
    if request.method == "POST" and form.is_valid():
        asked = form.part()
        try:
            made, text = services.create_service_token(
                asked["name"],
                asked["role"],
                asked["tenant"],
                asked["expires_days"],
                actor=actor(request),
                reason=reason(request),
            )
        except (PolicyRefused, NotFound) as refusal:
            show_refusal(form, refusal)
        else:
            label = f"Token {made.name}, until {made.expires_at:%Y-%m-%d %H:%M} UTC"
            return told_once(request, f"Token {made.name}", [(label, text)], reverse("tokens"))
    return render(request, "tenants/token_new.html", {"form": form, "reason": reason(request)})


def revoke(request: HttpRequest, token_id: str) -> HttpResponse:
    token = selectors.service_tokens().filter(public_id=token_id).first()
    if token is None:
        raise Http404

    def act() -> HttpResponse:
        services.revoke_token(token_id, actor=actor(request), reason=reason(request))
        return redirect("tokens")

    return confirm(
        request,
        act,
        title=f"Revoke the token {token.name}",
        explanation="Calls of the admin API with it are refused at once. It cannot be taken back, "
        "and its name is not given again: make a new one instead.",
        verb="Revoke",
        back=reverse("tokens"),
        back_label="Tokens",
        danger=True,
    )
