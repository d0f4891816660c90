"""What several pages do alike: who acts, where to go on, and how a service's refusal is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from tenants.core.diff import Change
from tenants.services.actors import Actor, actor_for
from tenants.services.documents import Applied


def actor(request: HttpRequest) -> Actor:
    return actor_for(request.user, "page", str(request.META.get("REMOTE_ADDR", "")))


def reason(request: HttpRequest) -> str:
    return str(request.POST.get("reason", "")).strip()


def tell(request: HttpRequest, what: str, applied: Applied) -> None:
    """The revision's number is what an admin notes down to undo it."""
    if applied.created:
        text = f"{what} Revision {applied.revision} is in force."
        messages.success(request, text)
    else:
        messages.info(request, "Nothing differed from what is in force; no revision was made.")


def confirm(
    request: HttpRequest,
    *,
    title: str,
    explanation: str,
    verb: str,
    back: str,
    back_label: str,
    danger: bool = False,
    faults: list[str] | None = None,
    changes: list[Change] | None = None,
    etag: str = "",
) -> HttpResponse:
    context: Mapping[str, Any] = {
        "title": title,
        "explanation": explanation,
        "verb": verb,
        "back": back,
        "back_label": back_label,
        "danger": danger,
        "faults": faults or [],
        "changes": changes,
        "etag": etag,
        "reason": reason(request),
    }
    return render(request, "tenants/confirm.html", context, status=409 if faults else 200)
