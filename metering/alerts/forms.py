"""Forms of the alert pages; what is allowed is decided by `metering.alerts.services`."""

from __future__ import annotations

from typing import Any

from django import forms

from metering.alerts.services import DestinationValues, RuleValues
from metering.core.alert_kinds import LEVELS, Rule, shown_threshold, usual
from metering.models import AlertDestination
from tenants.core.issue import Invalid
from tenants.forms.parts import Number, Whole, choices

UNITS = {"part": "%", "seconds": "seconds", "times": "times the bound"}


class Told(forms.Form):
    """With a reason for the audit, and faults of a service put on their fields."""

    use_required_attribute = False
    reason = forms.CharField(label="Reason", required=False, max_length=500)

    def refuse(self, error: Invalid) -> None:
        for issue in error.issues:
            name = str(issue.loc[0]) if issue.loc else ""
            self.add_error(name if name in self.fields else None, issue.message)


class RuleForm(Told):
    enabled = forms.BooleanField(label="Raise this alert", required=False)
    level = forms.ChoiceField(label="Level", required=False)
    threshold = Number(label="Threshold", required=False)
    minutes = Whole(label="Over, minutes", required=False)
    remind_hours = Number(
        label="Remind after, hours",
        required=False,
        help_text="While nobody has acknowledged it. 0: never.",
    )
    field_order = ["enabled", "level", "threshold", "minutes", "remind_hours", "reason"]

    def __init__(self, rule: Rule, *args: Any, **kwargs: Any) -> None:
        self.scale = 100.0 if rule.kind.unit == "part" else 1.0
        kwargs["initial"] = self._values(rule)
        super().__init__(*args, **kwargs)
        kind, standard = rule.kind, usual(rule.kind)
        level = self.fields["level"]
        assert isinstance(level, forms.ChoiceField)
        level.choices = choices(*LEVELS)
        if kind.threshold is None:
            del self.fields["threshold"]
        else:
            shown = shown_threshold(kind.unit, standard.threshold)
            self.fields["threshold"].label = f"Threshold, {UNITS[kind.unit]}"
            self.fields["threshold"].help_text = f"Empty: {shown}."
        if kind.minutes is None:
            del self.fields["minutes"]
        else:
            self.fields["minutes"].help_text = f"Empty: {standard.minutes}."

    def _values(self, rule: Rule) -> dict[str, Any]:
        return {
            "enabled": rule.enabled,
            "level": rule.level,
            "threshold": f"{rule.threshold * self.scale:.10g}",
            "minutes": rule.minutes,
            "remind_hours": f"{rule.remind_hours:g}",
        }

    def asked(self) -> RuleValues:
        given = self.cleaned_data
        threshold = given.get("threshold")
        return RuleValues(
            enabled=given["enabled"],
            level=given["level"] or None,
            threshold=None if threshold is None else threshold / self.scale,
            minutes=given.get("minutes"),
            remind_hours=given["remind_hours"],
        )


class DestinationForm(Told):
    name = forms.CharField(label="Name", max_length=100)
    address = forms.CharField(label="Address", max_length=2000)
    only_critical = forms.BooleanField(label="Critical alerts only", required=False)
    enabled = forms.BooleanField(label="Enabled", required=False)
    field_order = ["name", "address", "only_critical", "enabled", "reason"]

    def __init__(self, shape: str, row: AlertDestination | None, *args: Any, **kwargs: Any) -> None:
        self.shape = shape
        fields = ("name", "address", "only_critical", "enabled")
        kwargs["initial"] = {f: getattr(row, f) for f in fields} if row else {"enabled": True}
        super().__init__(*args, **kwargs)
        address = self.fields["address"]
        if shape == "webhook":
            address.label = "URL"
            address.help_text = "https://host/path; each alert is posted there, signed."
        else:
            address.label = "Mail addresses"
            address.help_text = "With commas between them."

    def asked(self) -> DestinationValues:
        given = self.cleaned_data
        return DestinationValues(
            name=given["name"],
            address=given["address"],
            shape=self.shape,
            enabled=given["enabled"],
            only_critical=given["only_critical"],
        )
