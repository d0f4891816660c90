"""Long lists, a page at a time, by a cursor that stays right while rows are added."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_naive, make_aware
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request

from tenants.core.issue import Invalid, Issue, short


class Cursor(CursorPagination):
    page_size = 100
    max_page_size = 1000
    page_size_query_param = "limit"

    def __init__(self, *ordering: str) -> None:
        self.ordering = ordering

    def get_ordering(self, request: Request, queryset: Any, view: Any) -> tuple[str, ...]:
        return tuple(self.ordering)


def between(request: Request, rows: QuerySet[Any]) -> QuerySet[Any]:
    """Rows with `since <= at < until`, as far as the query says so."""
    for name, lookup in (("since", "at__gte"), ("until", "at__lt")):
        if text := request.query_params.get(name):
            rows = rows.filter(**{lookup: moment(name, text)})
    return rows


def moment(field: str, text: str) -> Any:
    """Raises Invalid where it is no time; UTC where it says no zone."""
    try:
        found = parse_datetime(text.replace(" ", "+"))  # a plus sign that was not escaped
    except ValueError:
        found = None
    if found is None:
        message = f"{field} is {short(text)}; it takes 2026-11-29T18:00:00Z"
        raise Invalid([Issue(field, None, short(text), message, (field,))])
    return make_aware(found) if is_naive(found) else found
