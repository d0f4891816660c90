"""Between one object of the policy document and the flat fields of a form.

1. A field's name is its path in the document with `__` for each step: `limits__max_running`.
2. An empty field says nothing, so the document's default (or the tier's value) stands.
3. Forms only shape values; whether they are allowed is decided by the policy's own checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast

from django import forms
from django.urls import reverse_lazy
from django.utils.html import format_html
from django.utils.safestring import SafeString

from tenants.core.document import plain_numbers

Part = dict[str, Any]
Section = tuple[str, str, tuple[str, ...]]  # title, explanation, fields


def flatten(part: Part, prefix: str = "") -> Part:
    flat: Part = {}
    for name, value in part.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}__")
        else:
            flat[prefix + name] = value
    return flat


def unflatten(values: Part) -> Part:
    """A part in which what is empty is None; a group with nothing in it is None as a whole."""
    part: Part = {}
    for name, value in values.items():
        *steps, last = name.split("__")
        place = part
        for step in steps:
            place = place.setdefault(step, {})
        place[last] = None if value is None or value == "" or value == [] else plain_numbers(value)
    return {name: None if is_hollow(value) else value for name, value in part.items()}


def is_hollow(value: Any) -> bool:
    return isinstance(value, dict) and all(inner is None for inner in value.values())


class ListField(forms.CharField):
    """Names in one text field, separated by commas, spaces or lines."""

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(value) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        return (super().to_python(value) or "").replace(",", " ").split()

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(self.to_python(self.prepare_value(initial)) != self.to_python(data))


class Suggested(forms.TextInput):
    """For one name of thousands: typed, with what `tenants.views.names` suggests."""

    def __init__(self, page: str) -> None:
        """`page` is the name of the address that tells names."""
        asks = {"hx-get": reverse_lazy(page), "hx-trigger": "focus once, input changed delay:150ms"}
        super().__init__({"list": page, "autocomplete": "off", "hx-target": f"#{page}", **asks})

    def render(self, *args: Any, **kwargs: Any) -> SafeString:
        return super().render(*args, **kwargs) + format_html(
            '<datalist id="{}"></datalist>', self.attrs["list"]
        )


class Whole(forms.IntegerField):
    widget = forms.NumberInput(attrs={"step": "1"})


class Number(forms.FloatField):
    """A number with any fraction; `step` must not refuse what the policy allows."""

    widget = forms.NumberInput(attrs={"step": "any"})


def choices(*values: str, empty: str | None = None) -> list[tuple[str, str]]:
    first = [] if empty is None else [("", empty)]
    return first + [(value, value) for value in values]


def meant(name: str, names: Iterable[str]) -> str:
    """What whoever mistyped a name may have meant, as one more sentence."""
    near = get_close_matches(name, names, n=3)
    return f" Did you mean {' or '.join(near)}?" if near else ""


class PartForm(forms.Form):
    """A form over one part of the document; `error_class` and layout are the template's."""

    use_required_attribute = False  # the server's answer names the fault better
    sections: tuple[Section, ...] = ()
    named_by: Mapping[str, str] = {}  # field -> the document's list whose names it offers

    def part(self) -> Part:
        return unflatten(self.cleaned_data)

    def fill(self, name: str, values: Iterable[str]) -> None:
        """Give a choice field its names, keeping its first, empty choice."""
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        offered = [(value, value) for value in values]
        kept = [pair for pair in cast(Any, field.choices) if pair[0] == ""]
        field.choices = [*kept, *offered]

    def accept(self, path: Sequence[str | int], message: str) -> bool:
        """Put an error of the policy's checks on the field that it is about, if it is here."""
        names = [str(step) for step in path]
        while names:
            name = "__".join(names)
            if name in self.fields:
                self.add_error(name, message)
                return True
            names.pop()  # an entry of a list, or one word of a union
        return False
