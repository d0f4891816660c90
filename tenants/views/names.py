"""Names for a field in which one of thousands is typed: some of those that have the text in them.

A page asks by htmx while somebody types; without a script the name is typed whole. What is not one
is refused by the form, which says so.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from tenants import selectors

MOST = 20


def tenants(request: HttpRequest) -> HttpResponse:
    names = (each.name for each in selectors.current_document().tenants)
    return options(request, names, request.GET.get("tenant", ""))


def options(request: HttpRequest, names: Iterable[str], asked: str) -> HttpResponse:
    """Those that begin with the text come first."""
    text = asked.strip().lower()
    found = sorted(
        (each for each in names if text in each.lower()),
        key=lambda each: (not each.lower().startswith(text), each),
    )
    return render(request, "components/options.html", {"names": found[:MOST]})
