"""The object addresses, each with its kind and what the OpenAPI schema says of it."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from pydantic import BaseModel, RootModel

from tenants.api.objects import ObjectItem, ObjectList
from tenants.api.schemas import ErrorOut
from tenants.core import document
from tenants.core.diff import Kind

REASON = OpenApiParameter("reason", str, description="Stands in the audit beside each change.")
QUERY = OpenApiParameter("q", str, description="Only objects whose name holds this text.")
IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    required=True,
    description='The ETag that was read, or "*".',
)
FAULTS: dict[int, Any] = dict.fromkeys((400, 401, 403, 404), ErrorOut)
RACES: dict[int, Any] = {412: ErrorOut, 428: ErrorOut}


class TenantApplication(document.Application):
    tenant: document.Name


def many(model: type[BaseModel]) -> type[BaseModel]:
    """A list of `model`, as a type that the schema can name."""
    return type(f"{model.__name__}List", (RootModel[list[model]],), {})  # type: ignore[valid-type]


def listed(kind: Kind, part: type[document.Part]) -> type[ObjectList]:
    view = type(f"{part.__name__}List", (ObjectList,), {"kind": kind, "part": part})
    tell: Any = extend_schema_view(
        get=says(kind, "list", f"List {kind}s", {200: many(part)}, QUERY),
        post=says(kind, "create", f"Create one {kind}", {201: part}, REASON, body=part),
    )
    described: type[ObjectList] = tell(view)
    return described


def single(kind: Kind, part: type[document.Part]) -> type[ObjectItem]:
    view = type(f"{part.__name__}Item", (ObjectItem,), {"kind": kind, "part": part})
    answer, edit = {200: part}, (IF_MATCH, REASON)
    patch = OpenApiTypes.OBJECT
    tell: Any = extend_schema_view(
        get=says(kind, "read", f"Read one {kind}", answer),
        put=says(kind, "replace", f"Replace one {kind}", answer | RACES, *edit, body=part),
        patch=says(kind, "change", f"Change one {kind}", answer | RACES, *edit, body=patch),
        delete=says(kind, "delete", f"Delete one {kind}", {204: None} | RACES, *edit),
    )
    described: type[ObjectItem] = tell(view)
    return described


def says(
    kind: str,
    verb: str,
    summary: str,
    answers: dict[int, Any],
    *parameters: OpenApiParameter,
    body: Any = None,
) -> Any:
    return extend_schema(
        operation_id=f"{kind}_{verb}",
        summary=summary,
        tags=[f"{kind}s"],
        parameters=list(parameters),
        request=body,
        responses=answers | FAULTS,
    )
