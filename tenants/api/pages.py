"""Lists, a page at a time: filters, an order, and a cursor that stays right while rows are added.

1. A cursor holds the last row's values of the order, the row's own id last, so that no row is left
   out or told twice, however many rows are alike. It is signed: nobody makes one up. It can be
   read, so where a tenant's people get it that id is not a number in a table of everybody's rows.
2. A parameter that the list does not know is refused, with those that it knows.
3. Every order is over columns that are never null; the id decides among equals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any, ClassVar

from django import forms
from django.core import signing
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django_filters import CharFilter, Filter, FilterSet
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from tenants.core.issue import Invalid, Issue, short, told
from tenants.moments import read_moment

FEWEST, USUAL, MOST = 1, 100, 1000
PAGING = ("cursor", "limit", "ordering")
EXAMPLE = "2026-11-29T18:00:00Z"
FORMAT = "format"  # DRF's own: which of a view's renderers answers


class MomentField(forms.Field):
    def to_python(self, value: Any) -> datetime | None:
        if value in (None, ""):
            return None
        found = read_moment(value.replace(" ", "+"))  # a plus sign that was not escaped
        if found is None:
            raise ValidationError(f"it takes {EXAMPLE}")
        return found


class WholeField(forms.Field):
    def to_python(self, value: Any) -> int | None:
        if value in (None, ""):
            return None
        if not value.isdecimal() or len(value) > 9:
            raise ValidationError("it takes a whole number")
        return int(value)


class ChoiceField(forms.Field):
    def __init__(self, *args: Any, takes: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.takes = takes

    def to_python(self, value: Any) -> Any:
        if value in (None, ""):
            return None
        if value not in self.takes:
            raise ValidationError(f"it takes one of: {', '.join(self.takes)}")
        return self.takes[value]


class Moment(Filter):  # type: ignore[misc]
    field_class = MomentField


class Whole(Filter):  # type: ignore[misc]
    field_class = WholeField


class Choice(Filter):  # type: ignore[misc]
    """One of some words; `takes` says which, and what each is in the table."""

    field_class = ChoiceField


def choice(*words: str, field_name: str | None = None, **said: Any) -> Choice:
    return Choice(field_name=field_name, takes={word: word for word in words}, **said)


def yes_or_no(field_name: str) -> Choice:
    return Choice(field_name=field_name, takes={"true": True, "false": False})


class Filters(FilterSet):  # type: ignore[misc]
    """What one list can be asked for. `orders` names what `ordering` takes, the usual one first,
    each with its columns; a minus before it turns it round."""

    orders: ClassVar[Mapping[str, tuple[str, ...]]]
    tie: ClassVar[str] = "pk"  # decides among equals; what a tenant reads must not count rows

    @classmethod
    def parameters(cls) -> list[OpenApiParameter]:
        told = [parameter(name, each) for name, each in cls.base_filters.items()]
        orders = [*cls.orders, *(turned(name) for name in cls.orders)]
        usual = next(iter(cls.orders))
        return [
            *told,
            OpenApiParameter("ordering", str, enum=orders, description=f"Usually {usual}."),
            OpenApiParameter("cursor", str, description="From `next` or `previous` of a page."),
            OpenApiParameter("limit", int, description=f"Of a page, {FEWEST} to {MOST}."),
        ]

    def chosen(self) -> QuerySet[Any]:
        """The rows that are asked for.

        Raises:
            Invalid: a parameter is unknown, or its value is wrong.
        """
        check_known(self.data, [*self.base_filters, *PAGING])
        if not self.is_valid():
            raise Invalid(
                fault(name, self.data.get(name), " ".join(faults))
                for name, faults in self.form.errors.items()
            )
        found: QuerySet[Any] = self.qs
        return found


def holds(*columns: str) -> CharFilter:
    """Rows in which one of the columns has this text in it, whatever its case."""

    def filtered(rows: QuerySet[Any], _name: str, text: str) -> QuerySet[Any]:
        return rows.filter(reduce(Q.__or__, (Q(**{f"{c}__icontains": text}) for c in columns)))

    return CharFilter(method=filtered, help_text="Only what has this text in it.")


def parameter(name: str, each: Any) -> OpenApiParameter:
    kind: Any = datetime if isinstance(each, Moment) else str
    takes = list(each.extra["takes"]) if isinstance(each, Choice) else None
    said = each.extra.get("help_text") or ""
    return OpenApiParameter(name, kind, enum=takes, description=said)


def check_known(asked: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raises Invalid where the query has any other parameter."""
    said = f"unknown parameter; known: {', '.join(sorted(known))}"
    unknown = [name for name in asked if name not in (*known, FORMAT)]
    if unknown:
        raise Invalid(Issue(name, None, told(asked[name]), said, (name,)) for name in unknown)


def fault(name: str, value: object, takes: str) -> Issue:
    return Issue(name, None, told(value), f"{name} is {short(value)}; {takes}", (name,))


def turned(order: str) -> str:
    return order.removeprefix("-") if order.startswith("-") else f"-{order}"


# --- pages ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Order:
    """Columns by which rows are put in order, each unless `down` in rising order."""

    name: str
    columns: tuple[tuple[str, bool], ...]

    def back(self) -> Order:
        return Order(self.name, tuple((column, not down) for column, down in self.columns))

    def sql(self) -> list[str]:
        return [f"-{column}" if down else column for column, down in self.columns]

    def values(self, row: Any) -> list[Any]:
        found = [reduce(getattr, column.split("__"), row) for column, _ in self.columns]
        return [each.isoformat() if isinstance(each, datetime) else each for each in found]

    def after(self, values: list[Any]) -> Q:
        """What comes after a row with these values. The first column's bound is said alone as
        well, for the index."""
        beyond, same = Q(), Q()
        for (column, down), value in zip(self.columns, values, strict=True):
            beyond |= same & Q(**{f"{column}__{'lt' if down else 'gt'}": value})
            same &= Q(**{column: value})
        first, down = self.columns[0]
        return Q(**{f"{first}__{'lte' if down else 'gte'}": values[0]}) & beyond


def order_of(filters: type[Filters], asked: str | None) -> Order:
    name = asked or next(iter(filters.orders))
    for known, columns in filters.orders.items():
        if name in (known, turned(known)):
            down = [(c.removeprefix("-"), c.startswith("-")) for c in columns]
            down.append((filters.tie, down[0][1]))
            order = Order(name, tuple(down))
            return order if name == known else order.back()
    takes = ", ".join([*filters.orders, *map(turned, filters.orders)])
    raise Invalid([fault("ordering", name, f"it takes one of: {takes}")])


def page(
    request: Request, rows: QuerySet[Any], filters: type[Filters], shown: Callable[[Any], Any]
) -> Response:
    """One page of `rows` as the query asks for it; `shown` tells of a row, or None to leave it out.

    Raises:
        Invalid: a parameter is unknown or wrong.
        NotFound: the cursor is none of this list's.
    """
    asked = request.query_params
    chosen = filters(asked, queryset=rows).chosen()
    order, most = order_of(filters, asked.get("ordering")), limit(asked.get("limit"))
    back, values = read_cursor(request, order)
    way = order.back() if back else order
    if values is not None:
        chosen = chosen.filter(way.after(values))
    found = list(chosen.order_by(*way.sql())[: most + 1])
    more, found = len(found) > most, found[:most]
    if back:
        found.reverse()
    later, earlier = (values is not None, more) if back else (more, values is not None)
    told = {
        "next": link(request, order, found[-1], back=False) if found and later else None,
        "previous": link(request, order, found[0], back=True) if found and earlier else None,
        "results": [each for row in found if (each := shown(row)) is not None],
    }
    return Response(told)


def limit(asked: str | None) -> int:
    if not asked:
        return USUAL
    if not asked.isdecimal() or len(asked) > 9 or not FEWEST <= int(asked) <= MOST:
        raise Invalid([fault("limit", asked, f"it takes {FEWEST} to {MOST}")])
    return int(asked)


def link(request: Request, order: Order, row: Any, *, back: bool) -> str:
    cursor = signing.dumps([order.name, back, order.values(row)], salt=request.path)
    address: str = replace_query_param(request.build_absolute_uri(), "cursor", cursor)
    return address


def read_cursor(request: Request, order: Order) -> tuple[bool, list[Any] | None]:
    """Which way to go, and the values of the row to go on from."""
    given = request.query_params.get("cursor")
    if not given:
        return False, None
    try:
        name, back, values = signing.loads(given, salt=request.path)
    except signing.BadSignature:
        raise NotFound("Invalid cursor") from None
    if name != order.name:
        raise NotFound(f"Invalid cursor: it is of a list in the order {name}")
    return back, values


def moment(field: str, text: str) -> datetime:
    """Raises Invalid where it is no time; UTC where it says no zone."""
    found = read_moment(text.replace(" ", "+"))
    if found is None:
        raise Invalid([fault(field, text, f"it takes {EXAMPLE}")])
    return found
