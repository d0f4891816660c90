"""What several pages do alike: who acts, where to go on, and how a service's refusal is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.html import format_html

from tenants.errors import NotFound, PolicyRefused
from tenants.services.actors import Actor, actor_for
from tenants.services.documents import Applied

MOST_CHANGES = 200  # that a page shows; a first policy may be thousands


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page leads back to."""

    url: str
    label: str


def actor(request: HttpRequest) -> Actor:
    return actor_for(request.user, "page", str(request.META.get("REMOTE_ADDR", "")))


def reason(request: HttpRequest) -> str:
    return str(request.POST.get("reason", "")).strip()


def tell(request: HttpRequest, what: str, applied: Applied) -> None:
    """With the way back at hand: whoever sees that it was wrong undoes it from here."""
    if not applied.created:
        messages.info(request, "Nothing differed from what is in force; no revision was made.")
        return
    text = format_html(
        '{} <a href="{}">Revision {}</a> is in force. <a class="button small" href="{}">Undo…</a>',
        what,
        reverse("revision", args=[applied.revision]),
        applied.revision,
        reverse("revision-revert", args=[applied.revision]),
    )
    messages.success(request, text)


def confirm(
    request: HttpRequest,
    act: Callable[[], HttpResponse],
    *,
    title: str,
    explanation: str,
    verb: str,
    back: str,
    back_label: str,
    danger: bool = False,
) -> HttpResponse:
    """Ask whether it is meant, and do it where the form was sent; where that is refused, say why.
    For what is no change of the policy; those go through `preview.run`."""
    faults: list[str] = []
    if request.method == "POST":
        try:
            return act()
        except PolicyRefused as refusal:
            faults = [issue.message for issue in refusal.issues]
    context: Mapping[str, Any] = {
        "title": title,
        "explanation": explanation,
        "verb": verb,
        "back": back,
        "back_label": back_label,
        "danger": danger,
        "faults": faults,
        "reason": reason(request),
    }
    return render(request, "tenants/confirm.html", context, status=409 if faults else 200)


def show_refusal(form: Any, refusal: PolicyRefused | NotFound, named: str = "tenant") -> None:
    """Each fault at the field that it is about; `named` is the one that names what is not there."""
    if isinstance(refusal, NotFound):
        form.add_error(named, str(refusal))
        return
    for issue in refusal.issues:
        form.accept(issue.loc, issue.message) or form.add_error(None, issue.message)


def told_once(
    request: HttpRequest, title: str, secrets: list[tuple[str, str]], done: str
) -> HttpResponse:
    context = {"title": title, "secrets": secrets, "done": done}
    return render(request, "tenants/told_once.html", context)
