"""Forms of keys. Tenants and applications may be thousands: they are typed, with suggestions."""

from __future__ import annotations

from collections.abc import Sequence

from django import forms

from tenants.core.document import Tenant
from tenants.forms.parts import Number, PartForm, Suggested, Whole, meant

EXPIRY = "Empty: never."


class KeyForm(PartForm):
    tenant = forms.CharField(
        label="Tenant",
        widget=Suggested("tenant-names"),
    )
    application = forms.CharField(
        label="Application",
        required=False,
        help_text="Empty: the tenant as a whole.",
        widget=forms.TextInput(attrs={"list": "application-names", "autocomplete": "off"}),
    )
    name = forms.CharField(label="Name", required=False, help_text="What or who uses this key.")
    expires_days = Whole(label="Expires after, days", required=False, min_value=1, help_text=EXPIRY)

    def allow(self, tenants: Sequence[Tenant]) -> None:
        """The tenants that this person may make keys for; one alone needs no typing."""
        self.tenants = {each.name: each for each in tenants}
        if len(tenants) == 1:
            self.initial["tenant"] = tenants[0].name
            self.fields["tenant"].widget = forms.TextInput({"readonly": True})

    def clean_tenant(self) -> str:
        name = str(self.cleaned_data["tenant"])
        if name not in self.tenants:
            message = f"There is no tenant {name!r} that you may make keys for."
            raise forms.ValidationError(message + meant(name, self.tenants))
        return name


class GraceForm(forms.Form):
    grace_hours = Number(
        label="Keep the old secret for, hours",
        required=False,
        min_value=0,
        help_text="0 or empty: it stops working at once.",
    )
    use_required_attribute = False


class ExpiryForm(forms.Form):
    expires_days = Number(
        label="Expires in, days from now", required=False, min_value=0, help_text=EXPIRY
    )
    use_required_attribute = False
