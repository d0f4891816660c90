"""Lists inside an object: budgets of an owner, endpoints of a pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from django import forms

from tenants.core.periods import days_of
from tenants.forms.parts import Number, Part, PartForm, choices

PERIODS = ("minute", "hour", "day", "week", "month", "30d", "90d", "365d")


class BudgetRow(PartForm):
    name = forms.CharField(label="Name", required=False)
    kind = forms.ChoiceField(
        label="Kind", choices=choices("sustained", "burst"), initial="sustained"
    )
    cost = Number(label="Cost, units", required=False)
    refill_per_second = Number(label="Refill per second", required=False)
    period = forms.ChoiceField(label="Period", required=False, choices=choices(*PERIODS, empty="–"))
    on_exhausted = forms.ChoiceField(
        label="When used up",
        required=False,
        choices=choices("reject", "demote", "alert"),
        initial="reject",
    )

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        period = str((self.initial or {}).get("period") or "")
        if days_of(period):  # of another number of days, from a file or the API: it may stay
            field = cast(forms.ChoiceField, self.fields["period"])
            field.choices = choices(*dict.fromkeys([*PERIODS, period]), empty="–")

    def part(self) -> Part:
        """A burst budget has no `on_exhausted` to choose; its menu's first entry says nothing."""
        part = super().part()
        if part["kind"] == "burst" and part["on_exhausted"] == "reject":
            part["on_exhausted"] = None
        return part


class EndpointRow(PartForm):
    url = forms.CharField(
        label="URL, with its /v1", required=False, widget=forms.TextInput(attrs={"class": "url"})
    )
    drain = forms.BooleanField(label="Drain", required=False)


if TYPE_CHECKING:  # generic for the type checker only
    FormSet = forms.BaseFormSet[PartForm]
else:
    FormSet = forms.BaseFormSet


class Rows(FormSet):
    """Rows that may be removed, and empty ones that count for nothing."""

    fault = ""  # of the list itself

    def add_fields(self, form: PartForm, index: int | None) -> None:
        super().add_fields(form, index)
        form.fields["DELETE"].label = "Remove"

    def kept(self) -> list[PartForm]:
        return [
            form
            for form in self.forms
            if form.has_changed() or form.initial
            if not form.cleaned_data.get("DELETE")
        ]

    def parts(self) -> list[Part]:
        """Without what is empty: a list is replaced whole, so nothing has to be taken away."""
        parts = [form.part() for form in self.kept()]
        return [
            {key: value for key, value in part.items() if value is not None and key != "DELETE"}
            for part in parts
        ]

    def accept(self, path: Sequence[str | int], message: str) -> bool:
        """An error of the policy's checks: `path` begins with the row's place in `parts()`."""
        rows = self.kept()
        if not path:
            self.fault = message
            return True
        if not isinstance(path[0], int) or path[0] >= len(rows):
            return False
        row = rows[path[0]]
        if not row.accept(path[1:], message):
            row.add_error(None, message)
        return True


def rows_of(row: type[PartForm], extra: int) -> Any:
    return forms.formset_factory(row, formset=Rows, extra=extra, can_delete=True)


Budgets = rows_of(BudgetRow, extra=2)
Endpoints = rows_of(EndpointRow, extra=2)
