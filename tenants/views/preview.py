"""The one page between an edit and its revision: what would change, what to mind, and why.

1. Every edit of the policy by page comes through `run`; nothing else applies one.
2. The page holds the whole edit in hidden fields, so that it works without a session or a script:
   `base` is the revision that the author saw, `seal` what the preview said.
3. Applying does what was shown, or shows what it would do by now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from tenants import selectors
from tenants.core.merge import Side
from tenants.core.shown import crossings, rows, summary
from tenants.errors import NotFound, PolicyRefused
from tenants.models import PolicyRevision
from tenants.services.objects import Proposal
from tenants.services.plans import Edit, Plan, Unseen, apply_plan, plan
from tenants.views.answers import MOST_CHANGES, Place, actor, reason, tell
from tenants.views.keyset import is_whole

OWN = (
    "csrfmiddlewaretoken",
    "step",
    "base",
    "seal",
    "revision",
    "reason",
)  # not carried on as they are
CHOICE = "keep:"
SHOWN_REVISIONS = 5
NO_REASON = "Say why: the reason stands in the audit for whoever looks later."
STALE = (
    "The policy was changed while you looked at this, so nothing is applied yet. Below is what "
    "applying would do now."
)
CHOSEN = "Your choices change what is applied. Look at it again below, then apply."


@dataclass(frozen=True, slots=True)
class Asked:
    """One edit on its way. `base` is given where the edit always starts from what is in force;
    `form` where there is a form behind it to go back to and to show refusals in."""

    propose: Proposal
    title: str
    done: str
    back: Place
    after: str
    verb: str = "Apply"
    explanation: str = ""
    danger: bool = False
    form: bool = False
    base: int | None = None
    reason: str = ""  # what is offered as one
    carry: tuple[tuple[str, str], ...] = ()  # what a link says that the page must say again
    sides: tuple[str, str, str] = ("When you opened it", "In force now", "Yours")
    crossed: str = "Someone else changed the same while you edited it."


def step_of(request: HttpRequest) -> str:
    """`preview`, `apply`, or `form` to go back to it; empty for a form that was sent at first."""
    return str(request.POST.get("step", ""))


def base_of(request: HttpRequest) -> int:
    """The revision that the author saw; what is in force where the page does not say."""
    given = request.POST.get("base", "")
    current = selectors.current_revision()
    return int(given) if is_whole(given) and int(given) <= current else current


def run(request: HttpRequest, asked: Asked) -> HttpResponse:
    """Show what the edit would do, or do it.

    Raises:
        PolicyRefused: the edit is wrong, and `asked.form` says that its form can show where.
    """
    edit = Edit(
        asked.propose, base_of(request) if asked.base is None else asked.base, kept(request)
    )
    faults: list[str] = []
    try:
        if step_of(request) == "apply":
            if not reason(request):
                faults.append(NO_REASON)
            elif done := applied(request, asked, edit, faults):
                return done
        return show(request, asked, edit, faults)
    except NotFound as missing:
        raise Http404 from missing
    except PolicyRefused as refusal:
        if asked.form:
            raise
        return refused(request, asked, [str(issue) for issue in refusal.issues])


def applied(
    request: HttpRequest, asked: Asked, edit: Edit, faults: list[str]
) -> HttpResponse | None:
    seal = str(request.POST.get("seal", ""))
    try:
        found = apply_plan(edit, seal, actor=actor(request), reason=reason(request))
    except Unseen:
        chosen = request.POST.get("revision", "") == str(selectors.current_revision())
        faults.append(CHOSEN if chosen else STALE)
        return None
    tell(request, asked.done, found)
    return redirect(asked.after)


def show(request: HttpRequest, asked: Asked, edit: Edit, faults: list[str]) -> HttpResponse:
    found = plan(edit)
    if not found.changes and not found.beside:
        messages.info(request, "Nothing differed from what is in force; no revision was made.")
        return redirect(asked.back.url)
    context = page(request, asked, faults) | {
        "plan": found,
        "base": edit.base,
        "crossings": crossings(found.beside, found.old),
        "rows": rows(found.changes[:MOST_CHANGES], found.old, found.new),
        "count": len(found.changes),
        "summary": summary(found.changes),
        "warnings": [each for each in found.warnings if each.level == "warning"],
        "notes": [each for each in found.warnings if each.level == "note"],
        "clashes": sum(row.outcome == "clash" for row in found.beside),
        "others": meanwhile(edit.base, found),
    }
    return render(request, "tenants/preview.html", context, status=409 if faults else 200)


def refused(request: HttpRequest, asked: Asked, issues: list[str]) -> HttpResponse:
    context = page(request, asked, issues)
    return render(request, "tenants/preview.html", context, status=409)


def page(request: HttpRequest, asked: Asked, faults: list[str]) -> dict[str, Any]:
    given = "reason" in request.POST
    return {
        "asked": asked,
        "faults": faults,
        "reason": reason(request) if given else asked.reason,
        "carried": list(carried(request, asked)),
    }


def carried(request: HttpRequest, asked: Asked) -> Iterator[tuple[str, str]]:
    yield from (each for each in asked.carry if each[1])
    known = {name for name, _ in asked.carry}
    for name, values in request.POST.lists():
        if name not in OWN and name not in known and not name.startswith(CHOICE):
            yield from ((name, str(value)) for value in values)


def kept(request: HttpRequest) -> dict[str, Side]:
    """Whose value the author chose, by field, where others changed the same one."""
    return {
        name.removeprefix(CHOICE): "yours"
        for name, value in request.POST.items()
        if name.startswith(CHOICE) and value == "yours"
    }


def meanwhile(base: int, found: Plan) -> list[PolicyRevision]:
    """Who changed the policy since the author saw it, newest first."""
    if not found.beside:
        return []
    since = PolicyRevision.objects.filter(number__gt=base, number__lte=found.revision)
    return list(since.defer("packed")[:SHOWN_REVISIONS])
