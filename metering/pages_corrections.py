"""Corrections of budgets: the list, and the form that makes one, from a budget or a request."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone

from metering.corrections import CannotCorrect, correct
from metering.models import Correction, UsageRow
from metering.restore import budget_index
from tenants.forms.parts import Number, Suggested
from tenants.selectors import load_snapshot
from tenants.views.answers import actor
from tenants.views.names import options

FIELDS = {"account": "accounts", "units": "units", "reason": "reason"}


def corrections(request: HttpRequest) -> HttpResponse:
    rows = Correction.objects.order_by("-made_at", "-id")
    account = request.GET.get("account", "").strip()
    if account:
        rows = rows.filter(account=account)
    context = {
        "page": Paginator(rows, 50).get_page(request.GET.get("page")),
        "account": account,
    }
    return render(request, "metering/corrections.html", context)


class CorrectionForm(forms.Form):
    accounts: forms.Field = forms.CharField(
        label="Budget",
        widget=Suggested("budget-names"),
        help_text="The account of a sustained budget, such as tenant:acme/hourly.",
    )
    units = Number(
        label="Units",
        help_text="Added to what was used; below zero gives units back.",
    )
    reason = forms.CharField(
        label="Reason", max_length=500, help_text="Stands in the ledger and in the audit."
    )
    given_id = forms.CharField(widget=forms.HiddenInput)
    use_required_attribute = False

    def asked(self) -> list[str]:
        given = self.cleaned_data["accounts"]
        return given if isinstance(given, list) else [given.strip()]


class RecordForm(CorrectionForm):
    """For one request: it counts against several budgets, and is set right in all or some."""

    accounts = forms.MultipleChoiceField(
        label="Budgets", widget=forms.CheckboxSelectMultiple, required=True
    )

    def __init__(self, row: UsageRow, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["accounts"]
        assert isinstance(field, forms.MultipleChoiceField)
        field.choices = [(account, account) for account in row.accounts]


def new(request: HttpRequest) -> HttpResponse:
    row = _record(request)
    form = _form(request, row)
    if request.method == "POST" and form.is_valid() and _made(request, form, row):
        return redirect("corrections")
    return render(request, "metering/correction_new.html", {"form": form, "record": row})


def names(request: HttpRequest) -> HttpResponse:
    """Accounts of sustained budgets, while one is typed."""
    known = budget_index(load_snapshot()).items()
    sustained = (account for account, budget in known if budget.period is not None)
    return options(request, sustained, request.GET.get("accounts", ""))


def _record(request: HttpRequest) -> UsageRow | None:
    name = request.GET.get("record")
    if not name:
        return None
    row = UsageRow.objects.filter(request_id=name).first()
    if row is None:
        raise Http404
    return row


def _form(request: HttpRequest, row: UsageRow | None) -> CorrectionForm:
    given = request.POST or None
    initial: dict[str, Any] = {"given_id": str(uuid.uuid4())}
    if row is None:
        return CorrectionForm(given, initial={**initial, "accounts": request.GET.get("account")})
    initial |= {"accounts": row.accounts, "units": f"{-row.cost:.12g}"}
    initial["reason"] = f"Request {row.request_id}: "
    return RecordForm(row, given, initial=initial)


def _made(request: HttpRequest, form: CorrectionForm, row: UsageRow | None) -> bool:
    """All of them, or none with the reason in the form."""
    at: datetime = row.at if row else timezone.now()
    asked = form.cleaned_data
    try:
        with transaction.atomic():
            for account in form.asked():
                name = f"{asked['given_id']}:{account}"
                made = correct(actor(request), account, asked["units"], asked["reason"], at, name)
                told = f"{account}: {made.used:,.12g} units used in its window now."
                messages.success(request, told)
    except CannotCorrect as error:
        form.add_error(FIELDS.get(error.field), str(error))
        return False
    return True
