"""The policy's objects: one list and one item address for each kind, all alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, get_args, get_origin

from django.db.models import QuerySet
from django.urls import reverse
from rest_framework.request import Request
from rest_framework.response import Response

from tenants import places, selectors, services
from tenants.api.base import Api
from tenants.api.idempotency import once
from tenants.api.pages import Filters, page
from tenants.core.diff import Kind, name_field, named, whole
from tenants.core.document import Part
from tenants.core.issue import Invalid, Issue, refused, told
from tenants.core.permissions import Action
from tenants.errors import NotFound
from tenants.models import Application, Pool
from tenants.services import Applied

REVISION = "X-Fairlane-Revision"


class ObjectApi(Api):
    kind: ClassVar[Kind]
    part: ClassVar[type[Part]]

    def name_of(self, parts: Mapping[str, str]) -> str:
        return "/".join(parts.values())

    def answer(self, name: str, applied: Applied | None = None, status: int = 200) -> Response:
        document = selectors.current_document()
        found = named(document, self.kind).get(name)
        if found is None:
            raise NotFound(f"there is no {self.kind} {name!r}")
        headers = {"ETag": f'"{services.etag_of(document, self.kind, name)}"'}
        if applied is not None:
            headers[REVISION] = str(applied.revision)
        return Response(shown(self.kind, name, found), status, headers=headers)

    def fields(self, parts: Mapping[str, str] | None = None) -> dict[str, Any]:
        fields = json_object(self.request.data)
        if self.kind != "application":
            return fields
        # Its tenant is part of its name, not a field of its own.
        given, own = fields.pop("tenant", None), (parts or {}).get("tenant")
        if own is not None and given not in (None, own):
            raise refused("tenant", given, f"an application keeps its tenant: {own!r}")
        return fields


class ObjectList(ObjectApi):
    """The rows choose and order; what is told is the document's."""

    actions: ClassVar[Mapping[str, Action]] = {"GET": "policy.view", "POST": "policy.edit"}
    rows: ClassVar[QuerySet[Any]]
    filters: ClassVar[type[Filters]]

    def get(self, request: Request) -> Response:
        found = named(selectors.current_document(), self.kind)

        def told(row: Any) -> dict[str, Any] | None:
            name = row_name(row)
            return shown(self.kind, name, found[name]) if name in found else None

        return page(request, self.rows.all(), self.filters, told)

    @once
    def post(self, request: Request) -> Response:
        key = name_field(self.kind)
        tenant = json_object(request.data).get("tenant")
        fields = self.fields()
        name = str(fields.get(key, ""))
        if self.kind == "application":
            fields["name"] = name = f"{tenant or ''}/{name}"
        with places.told_of(self.kind, name):
            applied = services.create_object(
                self.kind, fields, actor=self.actor(), reason=self.reason()
            )
        response = self.answer(name, applied, status=201)
        response["Location"] = reverse(f"api-{self.kind}", args=self.arguments(name))
        return response

    def arguments(self, name: str) -> list[str]:
        return name.split("/", 1) if self.kind == "application" else [name]


class ObjectItem(ObjectApi):
    actions: ClassVar[Mapping[str, Action]] = {
        "GET": "policy.view",
        "PUT": "policy.edit",
        "PATCH": "policy.edit",
        "DELETE": "policy.edit",
    }

    def get(self, request: Request, **parts: str) -> Response:
        return self.answer(self.name_of(parts))

    def put(self, request: Request, **parts: str) -> Response:
        """Replaces the object: what the body leaves out has its default again."""
        return self._change(parts, replacing(self.part, self.fields(parts)))

    def patch(self, request: Request, **parts: str) -> Response:
        """A merge patch (RFC 7396): null takes a value away."""
        return self._change(parts, self.fields(parts))

    def delete(self, request: Request, **parts: str) -> Response:
        name, etag = self.name_of(parts), self.if_match()
        with places.told_of(self.kind, name):
            applied = services.delete_object(
                self.kind, name, actor=self.actor(), etag=etag, reason=self.reason()
            )
        return Response(status=204, headers={REVISION: str(applied.revision)})

    def _change(self, parts: Mapping[str, str], fields: dict[str, Any]) -> Response:
        name, etag = self.name_of(parts), self.if_match()
        no_applications(fields, "applications")
        key = name_field(self.kind)
        if fields.get(key) is None:
            fields.pop(key, None)
        with places.told_of(self.kind, name):
            applied = services.edit_object(
                self.kind, name, fields, actor=self.actor(), etag=etag, reason=self.reason()
            )
        return self.answer(name, applied)


def json_object(data: Any) -> dict[str, Any]:
    """Raises Invalid where the body is anything else."""
    if not isinstance(data, dict):
        raise Invalid([Issue("", None, told(data), "the body must be a JSON object")])
    return dict(data)


def no_applications(fields: Mapping[str, Any], path: str) -> None:
    """Of a tenant's: raises Invalid with that path."""
    if "applications" in fields:
        message = "applications have their own address: /api/v1/applications/"
        raise Invalid([Issue(path, None, "", message)])


def row_name(row: Any) -> str:
    """What the document calls the object that this row projects."""
    if isinstance(row, Application):
        return f"{row.tenant.name}/{row.name}"
    return str(row.model if isinstance(row, Pool) else row.name)


OWN_ADDRESS = ("name", "model", "applications")


def replacing(part: type[Part], given: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch that leaves nothing of what was there: what is not given is None, at each
    depth."""
    patch: dict[str, Any] = {**given}
    for name, field in part.model_fields.items():
        value, inner = given.get(name), part_in(field.annotation, *field.metadata)
        if isinstance(value, Mapping) and inner is not None:
            patch[name] = replacing(inner, value)
        elif name not in OWN_ADDRESS:
            patch.setdefault(name, None)
    return patch


def part_in(*kinds: Any) -> type[Part] | None:
    """The document type within `Cost`, `Price | None` or a tagged union; not that of a list."""
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, Part):
            return kind
        if get_origin(kind) is not list and (found := part_in(*get_args(kind))):
            return found
    return None


def shown(kind: Kind, name: str, part: Part) -> dict[str, Any]:
    own = {"tenant": name.partition("/")[0]} if kind == "application" else {}
    return own | whole(part)
