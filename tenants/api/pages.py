"""Long lists, a page at a time, by a cursor that stays right while rows are added."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request

from tenants.core.issue import Invalid, Issue, short
from tenants.moments import read_moment


class Cursor(CursorPagination):
    page_size = 100
    max_page_size = 1000
    page_size_query_param = "limit"

    def __init__(self, *ordering: str) -> None:
        self.ordering = ordering

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        return tuple(self.ordering)

    def paginate_queryset(self, *args: Any, **kwargs: Any) -> list[Any] | None:
        """Of a cursor only the form is checked before it gets here, not the position in it."""
        try:
            return super().paginate_queryset(*args, **kwargs)
        except (ValidationError, ValueError):
            raise NotFound(self.invalid_cursor_message) from None


def between(request: Request, rows: QuerySet[Any]) -> QuerySet[Any]:
    """Rows with `since <= at < until`, as far as the query says so."""
    for name, lookup in (("since", "at__gte"), ("until", "at__lt")):
        if text := request.query_params.get(name):
            rows = rows.filter(**{lookup: moment(name, text)})
    return rows


def moment(field: str, text: str) -> datetime:
    """Raises Invalid where it is no time; UTC where it says no zone."""
    found = read_moment(text.replace(" ", "+"))  # a plus sign that was not escaped
    if found is None:
        message = f"{field} is {short(text)}; it takes 2026-11-29T18:00:00Z"
        raise Invalid([Issue(field, None, short(text), message, (field,))])
    return found
