"""The alerts' pages: what is open and what was, the rules, and who is told."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from metering.alerts import services
from metering.alerts.forms import DestinationForm, RuleForm
from metering.alerts.rules import rules
from metering.alerts.subjects import place_of, tenant_of
from metering.core.alert_kinds import KINDS, Rule
from metering.core.prose import in_words
from metering.models import Alert, AlertDelivery, AlertDestination
from metering.models_alerts import SHAPES
from tenants.core.issue import Invalid
from tenants.errors import NotFound
from tenants.selectors import current_document
from tenants.views.answers import actor, confirm, reason

STATES = {"": "open", "resolved": "over", "all": "all"}
View = Callable[..., HttpResponse]


def or_404(view: View) -> View:
    @wraps(view)
    def found(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except NotFound:
            raise Http404 from None

    return found


# --- alerts ---------------------------------------------------------------------------------


def alerts(request: HttpRequest) -> HttpResponse:
    asked = {name: request.GET.get(name, "").strip() for name in ("state", "kind", "subject")}
    page = Paginator(_chosen(asked), 50).get_page(request.GET.get("page"))
    known = rules()
    context = {
        "page": page,
        "rows": [(alert, known.get(alert.kind)) for alert in page],
        "asked": asked,
        "states": STATES.items(),
        "kinds": KINDS.values(),
        "filtered": any(asked.values()),
        "told": AlertDestination.objects.filter(enabled=True).exists(),
    }
    return render(request, "metering/alerts.html", context)


def _chosen(asked: dict[str, str]) -> QuerySet[Alert]:
    """The newest first; those that are over only where they are asked for."""
    rows = Alert.objects.all()
    if asked["state"] == "":
        rows = rows.filter(resolved_at=None)
    elif asked["state"] == "resolved":
        rows = rows.filter(resolved_at__isnull=False)
    if asked["kind"]:
        rows = rows.filter(kind=asked["kind"])
    if asked["subject"]:
        rows = rows.filter(subject__icontains=asked["subject"])
    return rows.order_by("-first_at", "-id")


def alert(request: HttpRequest, number: int) -> HttpResponse:
    row = Alert.objects.filter(id=number).first()
    if row is None:
        raise Http404
    context = {
        "alert": row,
        "rule": rules().get(row.kind),
        "tenant": tenant_of(row.subject, {each.name for each in current_document().tenants}),
        "place": place_of(row),
        "deliveries": row.deliveries.select_related("destination").order_by("id")[:100],
    }
    return render(request, "metering/alert.html", context)


@require_POST
@or_404
def acknowledge(request: HttpRequest, number: int) -> HttpResponse:
    note = str(request.POST.get("note", ""))
    try:
        row = services.acknowledge(number, note, timezone.now(), actor=actor(request))
    except Invalid as error:
        messages.error(request, error.issues[0].message.capitalize() + ".")
    else:
        messages.success(request, f"{row.label}: {in_words(row.subject)} is acknowledged.")
    return redirect("alert", number)


# --- rules ----------------------------------------------------------------------------------


def rule_list(request: HttpRequest) -> HttpResponse:
    context = {"rules": rules().values(), "destinations": _destinations()}
    return render(request, "metering/alert_rules.html", context)


def _destinations() -> QuerySet[AlertDestination]:
    """Each with what became of its last message."""
    last = AlertDelivery.objects.filter(destination=OuterRef("pk")).order_by("-id")
    found = {name: Subquery(last.values(name)[:1]) for name in ("state", "error", "sent_at")}
    return AlertDestination.objects.annotate(
        **{f"last_{name}": value for name, value in found.items()}
    ).order_by("name")


def edit_rule(request: HttpRequest, kind: str) -> HttpResponse:
    rule: Rule | None = rules().get(kind)
    if rule is None:
        raise Http404
    form = RuleForm(rule, request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            services.edit_rule(kind, form.asked(), actor=actor(request), reason=reason(request))
        except Invalid as error:
            form.refuse(error)
        else:
            messages.success(request, f"{rule.kind.label}: saved; it holds from the next look.")
            return redirect("alert-rules")
    return render(request, "metering/alert_rule.html", {"form": form, "rule": rule})


# --- destinations ---------------------------------------------------------------------------


def new_destination(request: HttpRequest) -> HttpResponse:
    shape = request.GET.get("shape", SHAPES[0])
    if shape not in SHAPES:
        raise Http404
    form = DestinationForm(shape, None, request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            row, secret = services.create_destination(
                form.asked(), actor=actor(request), reason=reason(request)
            )
        except Invalid as error:
            form.refuse(error)
        else:
            if secret is not None:
                return _shown_once(request, row, secret)
            messages.success(request, f"{row.name} is told of alerts from now on.")
            return redirect("alert-rules")
    return _destination_page(request, form, None)


@or_404
def edit_destination(request: HttpRequest, number: int) -> HttpResponse:
    row = services.destination(number)
    form = DestinationForm(row.shape, row, request.POST or None)
    if request.method == "POST" and form.is_valid():
        try:
            services.edit_destination(
                number, form.asked(), actor=actor(request), reason=reason(request)
            )
        except Invalid as error:
            form.refuse(error)
        else:
            messages.success(request, "Saved.")
            return redirect("alert-rules")
    return _destination_page(request, form, row)


def _destination_page(
    request: HttpRequest, form: DestinationForm, row: AlertDestination | None
) -> HttpResponse:
    context = {"form": form, "destination": row, "shape": form.shape}
    return render(request, "metering/alert_destination.html", context)


def _shown_once(request: HttpRequest, row: AlertDestination, secret: str) -> HttpResponse:
    return render(request, "metering/alert_secret.html", {"destination": row, "secret": secret})


@or_404
def new_secret(request: HttpRequest, number: int) -> HttpResponse:
    row = services.destination(number)
    if row.shape != "webhook":
        raise Http404

    def act() -> HttpResponse:
        return _shown_once(
            request, *services.new_secret(number, actor=actor(request), reason=reason(request))
        )

    return confirm(
        request,
        act,
        title=f"New secret for {row.name}",
        explanation="Messages are signed with the new secret from now on. The old one ends at "
        "once: let the receiver know both until this is done.",
        verb="Make a new secret",
        back=reverse("alert-rules"),
        back_label="Alert rules",
    )


@or_404
def delete_destination(request: HttpRequest, number: int) -> HttpResponse:
    row = services.destination(number)

    def act() -> HttpResponse:
        services.delete_destination(number, actor=actor(request), reason=reason(request))
        messages.success(request, f"{row.name} is told of nothing any more.")
        return redirect("alert-rules")

    return confirm(
        request,
        act,
        title=f"Delete {row.name}",
        explanation="It is told of no alert any more; what waits to be sent to it is dropped.",
        verb="Delete",
        back=reverse("alert-rules"),
        back_label="Alert rules",
        danger=True,
    )


@require_POST
@or_404
def test_destination(request: HttpRequest, number: int) -> HttpResponse:
    delivery = services.send_test(number, timezone.now(), actor=actor(request))
    messages.success(
        request,
        f"A test message to {delivery.destination.name} goes out within some seconds. "
        "Load this page again to see what became of it.",
    )
    return redirect("alert-rules")
