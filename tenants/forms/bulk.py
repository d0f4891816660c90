"""One form for many tenants: what is left empty stays as each of them has it."""

from __future__ import annotations

from typing import Any

from django import forms

from tenants.forms.objects import LIMITS, LimitFields
from tenants.forms.parts import Number, Part, Section, choices, unflatten

STAYS = "leave as it is"
OWN = (
    ("weight", "Weight"),
    ("lane", "Lane"),
    ("allowed_lanes", "Allowed lanes"),
    ("limits", "Limits"),
    ("soft_limits", "Soft limits"),
    ("on_overload", "When overloaded"),
    ("models", "Models"),
)
STATES = [("", STAYS), ("suspended", "suspend"), ("enabled", "resume")]


class BulkForm(LimitFields):
    soft_limits = None  # type: ignore[assignment]  # a list: no value of it says "as it is"
    state = forms.ChoiceField(label="State", required=False, choices=STATES)
    tier = forms.ChoiceField(label="Tier", required=False, choices=choices(empty=STAYS))
    weight = Number(label="Weight", required=False)
    lane = forms.ChoiceField(label="Lane", required=False, choices=choices(empty=STAYS))
    inherit = forms.MultipleChoiceField(
        label="Take their own values away",
        required=False,
        choices=OWN,
        widget=forms.CheckboxSelectMultiple,
        help_text="The tier's value holds again for each of them.",
    )
    sections: tuple[Section, ...] = (
        ("", "", ("state", "tier", "weight", "lane")),
        ("Limits", "", LIMITS),
        ("Back to the tier", "", ("inherit",)),
    )
    named_by = {"tier": "tiers", "lane": "lanes"}

    def clean(self) -> dict[str, Any] | None:
        given = super().clean() or {}
        said = {name.partition("__")[0] for name, value in given.items() if not is_empty(value)}
        if both := said & set(given.get("inherit", [])):
            names = ", ".join(sorted(both))
            self.add_error("inherit", f"{names}: given above as well; it takes one of the two.")
        elif not said and not self.errors:
            self.add_error(None, "Nothing is chosen: fill in what should change.")
        return given

    def part(self) -> Part:
        """A merge patch with what was said only; None takes a tenant's own value away."""
        given = dict(self.cleaned_data)
        own, state = given.pop("inherit"), given.pop("state")
        patch = unflatten({name: value for name, value in given.items() if not is_empty(value)})
        if state:
            patch["enabled"] = False if state == "suspended" else None
        return patch | dict.fromkeys(own)


def is_empty(value: Any) -> bool:
    return value is None or value in ("", [])
