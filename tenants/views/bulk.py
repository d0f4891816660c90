"""The same change for many tenants: chosen on their list, one preview, one revision."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from tenants import selectors
from tenants.core.diff import named
from tenants.core.document import Document
from tenants.core.shown import counted, few
from tenants.errors import PolicyRefused
from tenants.forms.bulk import BulkForm
from tenants.services import objects
from tenants.views import preview
from tenants.views.answers import Place


def tenants(request: HttpRequest) -> HttpResponse:
    """From the list come ticked `name`s, or `all` with `matching`; later `names` holds them. With
    a `state` the list's button has said all that there is to say."""
    document = selectors.current_document()
    names = chosen(request, document)
    if not names:
        messages.error(request, "No tenant is chosen. Tick those that you want to change.")
        return redirect("tenants")
    form = BulkForm(request.POST if is_filled(request) else None)
    for field, offered in form.named_by.items():
        form.fill(field, [each.name for each in getattr(document, offered)])
    if form.is_bound and form.is_valid() and preview.step_of(request) != "form":
        try:
            return preview.run(request, asked(names, form))
        except PolicyRefused as refusal:
            for issue in refusal.issues:
                form.add_error(None, str(issue))
    context = {
        "form": form,
        "names": names,
        "shown": few(names),
        "base": preview.base_of(request),
        "sections": [
            (title, note, [form[name] for name in fields]) for title, note, fields in form.sections
        ],
    }
    return render(request, "tenants/bulk.html", context, status=422 if form.errors else 200)


def chosen(request: HttpRequest, document: Document) -> list[str]:
    """In the policy's order, each once; names that are no tenants count for nothing."""
    given = request.POST if request.method == "POST" else request.GET
    names = {*given.get("names", "").split(), *given.getlist("name")}
    if given.get("all"):
        names |= set(given.get("matching", "").split())
    return [name for name in named(document, "tenant") if name in names]


def is_filled(request: HttpRequest) -> bool:
    return bool(request.POST.get("step") or request.POST.get("state"))


def asked(names: list[str], form: BulkForm) -> preview.Asked:
    patch, one = form.part(), names[0] if len(names) == 1 else ""
    verb, did = VERBS.get(
        form.cleaned_data["state"] if len(patch) == 1 else "", ("Change", "changed")
    )
    many = f"tenant {one}" if one else counted(len(names), "tenant")
    back = (
        Place(reverse("tenant", args=[one]), one) if one else Place(reverse("tenants"), "Tenants")
    )
    return preview.Asked(
        propose=objects.editing_each("tenant", dict.fromkeys(names, patch)),
        title=f"{verb} {many}",
        done=f"{many.capitalize()} {did}.",
        back=back,
        after=back.url,
        verb=verb if verb != "Change" else "Apply",
        explanation=f"{'' if one else f'For {few(names)}. '}{CONSEQUENCES.get(verb, '')}",
        danger=verb == "Suspend",
        form=True,
        carry=(("names", " ".join(names)), ("name", ""), ("matching", ""), ("all", "")),
    )


VERBS = {"suspended": ("Suspend", "suspended"), "enabled": ("Resume", "resumed")}
CONSEQUENCES = {
    "Suspend": "Requests are refused from the next second on, those that wait too; what runs "
    "finishes. Keys, budgets and records stay."
}
