"""The policy as one document: what is in force, what was, and going back."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from tenants import selectors
from tenants.core import yaml_text
from tenants.core.diff import diff
from tenants.core.document import canonical
from tenants.errors import Conflict, NotFound, PolicyRefused
from tenants.models import PolicyRevision
from tenants.services import documents
from tenants.views.answers import actor, confirm, reason, tell


def document(request: HttpRequest) -> HttpResponse:
    text = yaml_text.dump(canonical(selectors.current_document()))
    if request.GET.get("download"):
        response = HttpResponse(text, content_type="application/yaml")
        response["Content-Disposition"] = 'attachment; filename="policy.yaml"'
        return response
    context = {"text": text, "revision": selectors.current_revision()}
    return render(request, "tenants/policy.html", context)


def revisions(request: HttpRequest) -> HttpResponse:
    found = PolicyRevision.objects.defer("packed")
    page = Paginator(found, 50).get_page(request.GET.get("page"))
    context = {"page": page, "current": selectors.current_revision()}
    return render(request, "tenants/revisions.html", context)


def revision(request: HttpRequest, number: int) -> HttpResponse:
    found = PolicyRevision.objects.filter(number=number).first()
    if found is None:
        raise Http404
    new = selectors.revision_document(number)
    context: dict[str, Any] = {
        "revision": found,
        "changes": diff(selectors.revision_document(number - 1), new),
        "text": yaml_text.dump(canonical(new)),
        "current": selectors.current_revision(),
    }
    return render(request, "tenants/revision.html", context)


def restore(request: HttpRequest, number: int) -> HttpResponse:
    """Shows what going back would change before it is done; `etag` is the revision looked at."""
    try:
        target = selectors.revision_document(number)
    except NotFound as missing:
        raise Http404 from missing
    seen, faults = request.POST.get("etag") or str(selectors.current_revision()), []
    if request.method == "POST":
        try:
            applied = documents.rollback(
                number, actor=actor(request), reason=reason(request), expected_revision=int(seen)
            )
        except PolicyRefused as refusal:
            faults = [str(issue) for issue in refusal.issues]
        except (Conflict, ValueError):
            faults = ["The policy was changed meanwhile. Look at the difference below again."]
        else:
            tell(request, f"Revision {number} restored.", applied)
            return redirect("revisions")
    return confirm(
        request,
        title=f"Restore revision {number}",
        explanation="The whole policy becomes what it was then, as a new revision. API keys and "
        "users stay as they are. This is what changes:",
        verb="Restore",
        back=reverse("revisions"),
        back_label="Revisions",
        faults=faults,
        changes=diff(selectors.current_document(), target),
        etag=str(selectors.current_revision()),
    )
