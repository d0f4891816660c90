"""Long lists, newest first, a page at a time by where the last one ended.

1. A page costs the same wherever it is: nothing is counted and nothing is skipped.
2. Entries that come while somebody reads move no page.
3. A position that cannot be read is the first page.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.db.models import DateTimeField, Model, Q, QuerySet
from django.http import HttpRequest

from tenants.moments import read_moment

MOST_ID = 2**63 - 1


class Keyset:
    """`field` orders the rows, from the largest down, and `id` between equals. `?before=` and
    `?after=` hold a position: `VALUE` of a whole number, `VALUE_ID` of a moment."""

    def __init__(self, request: HttpRequest, rows: QuerySet[Any], field: str, size: int) -> None:
        self.request, self.field, self.size = request, field, size
        self._of_moments = isinstance(rows.model._meta.get_field(field), DateTimeField)
        self.before, self.after = (self._position(name) for name in ("before", "after"))
        self.backwards = self.after is not None and self.before is None
        self._rows = rows.order_by(f"-{field}", "-id")

    @cached_property
    def _found(self) -> list[Model]:
        """One more than the page shows: it says whether there is another page that way. Which rows
        is asked of an index alone; only those are then read."""
        rows = self._rows
        if self.backwards:
            rows = rows.filter(self._beyond("gt", self.after)).reverse()
        elif self.before is not None:
            rows = rows.filter(self._beyond("lt", self.before))
        pks = list(rows.values_list("pk", flat=True)[: self.size + 1])
        read = {row.pk: row for row in self._rows.filter(pk__in=pks)}
        return [read[pk] for pk in pks]

    @cached_property
    def object_list(self) -> list[Model]:
        page = self._found[: self.size]
        return page[::-1] if self.backwards else page

    @property
    def older(self) -> str:
        """The query of the next page; empty where this is the last one."""
        more = self.backwards or len(self._found) > self.size
        return self._query("before", self.object_list[-1]) if more and self.object_list else ""

    @property
    def newer(self) -> str:
        more = len(self._found) > self.size if self.backwards else self.before is not None
        return self._query("after", self.object_list[0]) if more and self.object_list else ""

    @property
    def first(self) -> str:
        """Back to the newest ones, from a page that is empty, too."""
        return self._query("", None) if self.before is not None or self.after is not None else ""

    def _beyond(self, way: str, position: Any) -> Q:
        value, pk = position
        same = Q(**{self.field: value, f"id__{way}": pk})
        further = Q(**{f"{self.field}__{way}": value})
        return Q(**{f"{self.field}__{way}e": value}) & (further | same)  # the first uses the index

    def _position(self, name: str) -> tuple[Any, int] | None:
        """A whole number is its row's alone, so that no id beside it is beyond."""
        value, _, pk = self.request.GET.get(name, "").partition("_")
        if not self._of_moments:
            nothing_beside = 0 if name == "before" else MOST_ID
            return (int(value), nothing_beside) if is_whole(value) else None
        at = read_moment(value)
        return (at, int(pk)) if at and is_whole(pk) else None

    def _query(self, name: str, row: Any) -> str:
        query = self.request.GET.copy()
        query.pop("before", None)
        query.pop("after", None)
        if name:
            value = getattr(row, self.field)
            query[name] = f"{value.isoformat()}_{row.pk}" if self._of_moments else str(value)
        return query.urlencode()


def is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text[:20]) <= MOST_ID and len(text) < 20
