"""Taking one endpoint out of service, and back: one click, then the preview of every edit."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from tenants import selectors
from tenants.core.diff import named
from tenants.core.document import Pool
from tenants.services import objects
from tenants.views import preview
from tenants.views.answers import Place

EXPLANATION = {
    True: "It takes no new requests; those that run on it finish.",
    False: "It takes requests again as soon as it answers.",
}


def drain(request: HttpRequest, name: str) -> HttpResponse:
    """`url` says which endpoint; `drain` is `on` or empty."""
    pool = named(selectors.current_document(), "pool").get(name)
    if not isinstance(pool, Pool):
        raise Http404
    url, on = request.POST.get("url"), request.POST.get("drain") == "on"
    if url not in [endpoint.url for endpoint in pool.endpoints]:
        return redirect("pools")
    endpoints = [
        {"url": each.url, "drain": on if each.url == url else each.drain} for each in pool.endpoints
    ]
    back = Place(reverse("pools"), "Pools")
    asked = preview.Asked(
        propose=objects.editing("pool", name, {"endpoints": endpoints}),
        title=f"{'Drain' if on else 'Undrain'} {url}",
        done=f"{url} {'drains' if on else 'is back in service'}.",
        back=back,
        after=back.url,
        verb="Drain" if on else "Undrain",
        explanation=EXPLANATION[on],
    )
    return preview.run(request, asked)
