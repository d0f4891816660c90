"""One object of the policy on one page: its form, its lists, and what became of saving it.

1. What was typed stays in the form whatever the answer is.
2. A fault that the policy's checks find is shown at the field that it is about; one that is about
   another object is shown above the form, with its path.
3. `base` is the revision that the author saw when the page was opened; the preview merges what was
   typed with what others changed since (`tenants.services.plans`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django import forms

from tenants import places
from tenants.core.diff import Kind, name_field, named
from tenants.core.document import Document, Part, plain_numbers
from tenants.core.issue import Issue
from tenants.forms import objects
from tenants.forms.parts import PartForm, flatten
from tenants.forms.rows import Budgets, Endpoints

ENDPOINT_NOTE = "Where the model is served. A draining one finishes what runs."
MORE_ROWS = 4
BUDGET_NOTE = "In service units. Burst refills all the time; sustained starts anew each period."


@dataclass(frozen=True, slots=True)
class Spec:
    form: type[PartForm]
    lists: tuple[tuple[str, str, str, Any], ...] = ()  # field, title, note, formset


BUDGETS = ("budgets", "Budgets", BUDGET_NOTE, Budgets)
SPECS: Mapping[Kind, Spec] = {
    "lane": Spec(objects.LaneForm),
    "tier": Spec(objects.TierForm, (BUDGETS,)),
    "tenant": Spec(objects.TenantForm, (BUDGETS,)),
    "application": Spec(objects.ApplicationForm, (BUDGETS,)),
    "pool": Spec(
        objects.PoolForm,
        (("endpoints", "Endpoints", ENDPOINT_NOTE, Endpoints),),
    ),
}


@dataclass
class Sheet:
    """`name` is empty for a new object; an application's is `tenant/name` or `tenant/`."""

    kind: Kind
    name: str
    document: Document
    data: Any = None
    inherited: Mapping[str, str] = field(default_factory=dict)
    base: int = 0
    general: list[str] = field(default_factory=list)
    more: str = ""  # the list that is to get more empty rows; what was typed is not judged yet

    def __post_init__(self) -> None:
        spec = SPECS[self.kind]
        if self.more in {name for name, *_ in spec.lists}:
            self.data = with_rows(self.data, self.more)
        self.present = self._present()
        self.form = spec.form(self.data, initial=self._initial())
        for field_name, names in self.form.named_by.items():
            self.form.fill(field_name, [part.name for part in getattr(self.document, names)])
        if not self.is_new:
            self.form.fields[self.key].disabled = True
            self.form.fields[self.key].help_text = "A name stays; keys and records refer to it."
        self.lists = [
            (title, note, formset(self.data, prefix=name, initial=self.present.get(name, [])))
            for name, title, note, formset in spec.lists
        ]
        if self.more:
            for each in (self.form, *(row for _, _, rows in self.lists for row in rows.forms)):
                each.errors.clear()

    @property
    def key(self) -> str:
        return name_field(self.kind)

    @property
    def is_new(self) -> bool:
        return not self.name or self.name.endswith("/")

    @property
    def own_name(self) -> str:
        return self.name.rpartition("/")[2] if self.kind == "application" else self.name

    @property
    def faults(self) -> bool:
        return bool(self.general or self.form.errors or self.row_errors)

    @property
    def row_errors(self) -> bool:
        return any(not rows.is_valid() or rows.fault for _, _, rows in self.lists if rows.is_bound)

    @property
    def sections(self) -> Iterator[tuple[str, str, list[tuple[forms.BoundField, str]]]]:
        for title, note, names in self.form.sections:
            yield title, note, [(self.form[name], self.inherited.get(name, "")) for name in names]

    @property
    def inherited_budgets(self) -> list[tuple[str, str]]:
        """Those of the tier that hold, by name."""
        start = "budgets__"
        return [
            (name.removeprefix(start), text)
            for name, text in self.inherited.items()
            if name.startswith(start)
        ]

    def is_valid(self) -> bool:
        return all([self.form.is_valid(), *(rows.is_valid() for _, _, rows in self.lists)])

    def fields(self) -> dict[str, Any]:
        """A merge patch of the whole object: what is empty is None, so that it is taken away."""
        fields = self.form.part()
        fields |= {rows.prefix: rows.parts() or None for _, _, rows in self.lists}
        if self.kind == "application" and self.is_new:
            fields["name"] = self.name + str(fields.get("name", ""))
        return fields

    def refuse(self, issues: list[Issue]) -> None:
        for issue in issues:
            path = places.inside(issue, self.kind, self._full_name())
            if path is None or not self._accept(path, issue.message):
                self.general.append(str(issue))

    def _accept(self, path: tuple[str | int, ...], message: str) -> bool:
        for _, _, rows in self.lists:
            if path and path[0] == rows.prefix and rows.accept(path[1:], message):
                return True
        return self.form.accept(path, message)

    def _full_name(self) -> str:
        return self.name + str(self.form[self.key].value() or "") if self.is_new else self.name

    def _present(self) -> dict[str, Any]:
        found = named(self.document, self.kind).get(self.name)
        return as_fields(found) if found is not None else {}

    def _initial(self) -> dict[str, Any]:
        initial = flatten(self.present)
        if initial.pop("capacity", None) == "auto":
            initial["capacity_auto"] = True
        return initial or {"enabled": True, "isolate_prefix_cache": True}


def with_rows(data: Any, name: str) -> Any:
    """What was sent, with more empty rows in one list."""
    data = data.copy()
    given = str(data.get(f"{name}-TOTAL_FORMS", ""))
    known = int(given) if given.isascii() and given.isdecimal() and len(given) < 5 else 0
    data[f"{name}-TOTAL_FORMS"] = str(known + MORE_ROWS)
    return data


def as_fields(part: Part) -> dict[str, Any]:
    return plain_numbers(part.model_dump(exclude={"applications"}, exclude_none=True))
