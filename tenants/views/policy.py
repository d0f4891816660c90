"""The policy as one document: what is in force, what was, and going back."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from tenants import selectors
from tenants.core.diff import diff
from tenants.core.shown import rows
from tenants.core.stale import refused_today
from tenants.errors import NotFound, PolicyRefused
from tenants.models import PolicyRevision
from tenants.services import documents
from tenants.services.plans import undo
from tenants.views import preview
from tenants.views.answers import MOST_CHANGES, Place
from tenants.views.keyset import Keyset

PAGE = 50


def document(request: HttpRequest) -> HttpResponse:
    revision = selectors.current_revision()
    text = selectors.revision_text(revision)
    if request.GET.get("download"):
        response = HttpResponse(text, content_type="application/yaml")
        response["Content-Disposition"] = 'attachment; filename="policy.yaml"'
        return response
    stale = refused_today(selectors.revision_document(revision))
    context = {"text": text, "revision": revision, "stale": stale}
    return render(request, "tenants/policy.html", context)


def edit(request: HttpRequest) -> HttpResponse:
    """The whole document as text, or from a file."""
    base, issues = preview.base_of(request), []
    given = text_of(request)
    if given is not None and preview.step_of(request) != "form":
        try:
            return preview.run(request, whole(given))
        except PolicyRefused as refusal:
            issues = [str(issue) for issue in refusal.issues]
    if given is None:
        given = selectors.revision_text(base)
    context = {"text": given, "base": base, "issues": issues}
    status = 422 if issues else 200
    return render(request, "tenants/policy_edit.html", context, status=status)


def text_of(request: HttpRequest) -> str | None:
    if (file := request.FILES.get("file")) is not None:
        return str(file.read(), "utf-8", "replace")
    text = request.POST.get("text")
    return None if text is None else str(text)


def whole(text: str) -> preview.Asked:
    found = documents.read_document(text)
    return preview.Asked(
        propose=lambda _seen: found,
        title="Apply a whole document",
        done="The document was applied.",
        back=Place(reverse("policy"), "Policy document"),
        after=reverse("policy"),
        form=True,
        carry=(("text", text),),
    )


def revisions(request: HttpRequest) -> HttpResponse:
    page = Keyset(request, PolicyRevision.objects.defer("packed"), "number", PAGE)
    context = {"page": page, "current": selectors.current_revision()}
    return render(request, "tenants/revisions.html", context)


def revision(request: HttpRequest, number: int) -> HttpResponse:
    found = PolicyRevision.objects.filter(number=number).first()
    if found is None:
        raise Http404
    old, new = selectors.revision_document(number - 1), selectors.revision_document(number)
    changes = diff(old, new)
    context: dict[str, Any] = {
        "revision": found,
        "rows": rows(changes[:MOST_CHANGES], old, new),
        "count": len(changes),
        "text": selectors.revision_text(number),
        "current": selectors.current_revision(),
        "newer": PolicyRevision.objects.filter(number=number + 1).exists(),
    }
    return render(request, "tenants/revision.html", context)


def restore(request: HttpRequest, number: int) -> HttpResponse:
    """The whole policy as it was, whatever came after."""
    try:
        target = selectors.revision_document(number)
    except NotFound as missing:
        raise Http404 from missing
    asked = preview.Asked(
        propose=lambda _seen: target,
        title=f"Restore revision {number}",
        done=f"Revision {number} restored.",
        back=Place(reverse("revisions"), "Revisions"),
        after=reverse("revisions"),
        verb="Restore",
        explanation="The whole policy becomes what it was then, as a new revision. API keys and "
        "users stay as they are.",
        base=selectors.current_revision(),
        reason=f"Restore revision {number}",
    )
    return preview.run(request, asked)


def revert(request: HttpRequest, number: int) -> HttpResponse:
    """One revision's change undone on top of what is in force now."""
    found = PolicyRevision.objects.defer("packed").filter(number=number).first()
    if found is None:
        raise Http404
    propose, base = undo(number)
    why = f": {found.reason}" if found.reason else ""
    asked = preview.Asked(
        propose=propose,
        title=f"Undo revision {number}",
        done=f"Revision {number} undone.",
        back=Place(reverse("revision", args=[number]), f"Revision {number}"),
        after=after_undo(found),
        verb="Undo",
        explanation="What this revision changed becomes what it was before it; what was changed "
        "since, elsewhere, stays.",
        base=base,
        reason=f"Undo revision {number}{why}"[:500],
        sides=(f"Revision {number} set", "In force now", f"Before revision {number}"),
        crossed="The same was changed again since.",
    )
    return preview.run(request, asked)


def after_undo(undone: PolicyRevision) -> str:
    """Back to the one object that it was about, to watch it; else to the list."""
    touched = set(undone.audit_entries.values_list("kind", "name")[:50])
    tenants = {
        name.partition("/")[0] for kind, name in touched if kind in ("tenant", "application")
    }
    if len(tenants) == 1 and all(kind in ("tenant", "application") for kind, _ in touched):
        name = next(iter(tenants))
        if any(each.name == name for each in selectors.current_document().tenants):
            return reverse("tenant", args=[name])
    return reverse("revisions")
