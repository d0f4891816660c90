"""The object addresses, each with its kind and what the OpenAPI schema says of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from pydantic import BaseModel, Field, RootModel, create_model

from tenants.api.idempotency import IDEMPOTENCY_KEY
from tenants.api.objects import ObjectItem, ObjectList
from tenants.api.pages import Filters
from tenants.api.schemas import ErrorOut
from tenants.core import document
from tenants.core.diff import Kind

REASON = OpenApiParameter("reason", str, description="Stands in the audit beside each change.")
IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    required=True,
    description='The ETag that was read, or "*".',
)
FAULTS: dict[int, Any] = dict.fromkeys((400, 401, 403, 404), ErrorOut)
RACES: dict[int, Any] = {412: ErrorOut, 428: ErrorOut}
REUSED: dict[int, Any] = {422: ErrorOut}  # an Idempotency-Key

Handler = TypeVar("Handler", bound=Callable[..., Any])


class TenantApplication(document.Application):
    tenant: document.Name


def listed(
    kind: Kind, part: type[document.Part], rows: QuerySet[Any], filters: type[Filters]
) -> type[ObjectList]:
    said = {"kind": kind, "part": part, "rows": rows, "filters": filters}
    view = type(f"{part.__name__}List", (ObjectList,), said)
    made = {201: part} | REUSED
    tell: Any = extend_schema_view(
        get=lists(f"{kind}_list", f"List {kind}s", part, filters),
        post=says(f"{kind}_create", f"Create one {kind}", made, REASON, IDEMPOTENCY_KEY, body=part),
    )
    described: type[ObjectList] = tell(view)
    return described


def single(kind: Kind, part: type[document.Part]) -> type[ObjectItem]:
    view = type(f"{part.__name__}Item", (ObjectItem,), {"kind": kind, "part": part})
    answer, edit = {200: part}, (IF_MATCH, REASON)
    changed, patch = answer | RACES, OpenApiTypes.OBJECT
    tell: Any = extend_schema_view(
        get=says(f"{kind}_read", f"Read one {kind}", answer),
        put=says(f"{kind}_replace", f"Replace one {kind}", changed, *edit, body=part),
        patch=says(f"{kind}_change", f"Change one {kind}", changed, *edit, body=patch),
        delete=says(f"{kind}_delete", f"Delete one {kind}", {204: None} | RACES, *edit),
    )
    described: type[ObjectItem] = tell(view)
    return described


def says(
    operation: str,
    summary: str,
    answers: dict[int, Any],
    *parameters: OpenApiParameter,
    body: Any = None,
    tag: str = "",
    description: str | None = None,
) -> Callable[[Handler], Handler]:
    """One call, for the schema; its tag is the first word of its name unless told. What its query
    may hold is kept with it, for `Api.initial`."""
    query = [each.name for each in parameters if each.location == OpenApiParameter.QUERY]
    for_schema: Callable[[Handler], Handler] = extend_schema(
        operation_id=operation,
        summary=summary,
        description=description,
        tags=[tag or f"{operation.partition('_')[0]}s"],
        parameters=list(parameters),
        request=body,
        responses={code: named(answer) for code, answer in (answers | FAULTS).items()},
    )

    def described(handler: Handler) -> Handler:
        told = for_schema(handler)
        told.query = query  # type: ignore[attr-defined]
        return told

    return described


@cache
def named(answer: Any) -> Any:
    """A list of a type as one that the schema can name."""
    if get_origin(answer) is not list:
        return answer
    (model,) = get_args(answer)
    return type(f"{model.__name__}List", (RootModel[answer],), {})


def lists(
    operation: str, summary: str, each: type[BaseModel], filters: type[Filters], tag: str = ""
) -> Callable[[Handler], Handler]:
    """Its filters check its query."""
    return says(operation, summary, {200: pages_of(each)}, *filters.parameters(), tag=tag)


@cache
def pages_of(model: type[BaseModel]) -> type[BaseModel]:
    """One page of a list, as a type that the schema can name."""
    link = (str | None, Field(description="The address of the page, where there is one."))
    said: Any = {"next": link, "previous": link, "results": (list[model], ...)}  # type: ignore[valid-type]
    page: type[BaseModel] = create_model(f"{model.__name__}Page", **said)
    return page
