"""Forms about people and tokens. They only shape values; the services say what is allowed."""

from __future__ import annotations

from collections.abc import Collection

from django import forms

from tenants.core.permissions import ROLES
from tenants.forms.parts import Number, PartForm, Suggested, choices, meant
from tenants.services.ends import DEFAULT_DAYS

ROLE_HELP = "Admins change everything, operators see everything; the others see one tenant."


class RoleForm(PartForm):
    role = forms.ChoiceField(
        label="Role", choices=choices(*ROLES), initial="tenant-viewer", help_text=ROLE_HELP
    )
    tenant = forms.CharField(
        label="Tenant",
        required=False,
        widget=Suggested("tenant-names"),
        help_text="For tenant-admin and tenant-viewer; empty for the others.",
    )

    def allow(self, names: Collection[str]) -> None:
        self.names = names

    def clean_tenant(self) -> str:
        name = str(self.cleaned_data["tenant"])
        if name and name not in self.names:
            raise forms.ValidationError(f"There is no tenant {name!r}.{meant(name, self.names)}")
        return name


class UserForm(RoleForm):
    username = forms.CharField(
        label="User name", max_length=150, help_text="Letters, digits and @ . + - _"
    )
    field_order = ("username", "role", "tenant")


class ServiceTokenForm(RoleForm):
    name = forms.CharField(
        label="Name", max_length=63, help_text="What uses it. Stands in the audit; a-z, 0-9 and -."
    )
    expires_days = Number(label="Expires after, days", initial=DEFAULT_DAYS)
    field_order = ("name", "role", "tenant", "expires_days")


class DaysForm(PartForm):
    expires_days = Number(label="Expires after, days", initial=DEFAULT_DAYS)


class PasswordForm(PartForm):
    old = forms.CharField(
        label="Present password",
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    new = forms.CharField(
        label="New password",
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text="At least 12 characters, and none of the common ones.",
    )
    again = forms.CharField(
        label="New password again",
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def clean_again(self) -> str:
        again = str(self.cleaned_data.get("again"))
        if again != self.cleaned_data.get("new"):
            raise forms.ValidationError("the two do not match")
        return again


class CodeForm(PartForm):
    code = forms.CharField(
        label="Code",
        max_length=32,
        widget=forms.TextInput(attrs={"autocomplete": "one-time-code", "inputmode": "numeric"}),
    )
