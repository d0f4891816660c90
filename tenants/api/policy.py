"""The whole policy as one document, its history, and who changed what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib.auth import get_user_model
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from tenants import selectors, services
from tenants.api.base import Api
from tenants.api.described import FAULTS, IF_MATCH, RACES, many
from tenants.api.pages import Cursor, between
from tenants.api.schemas import (
    AppliedOut,
    ApplyPolicy,
    AuditOut,
    PolicyText,
    RevisionOut,
    RevisionWithDocument,
    Rollback,
    UserOut,
    audit_out,
    change_out,
    read,
    revision_out,
)
from tenants.core import yaml_text
from tenants.core.document import Document, canonical
from tenants.core.issue import Invalid, Issue, short
from tenants.core.permissions import Action
from tenants.errors import NotFound
from tenants.models import AuditEntry, PolicyRevision
from tenants.services import Applied


class Yaml(BaseRenderer):
    media_type, format, charset = "application/yaml", "yaml", "utf-8"

    def render(self, data: Any, *_: Any, **__: Any) -> bytes:
        return yaml_text.dump(data).encode()


class PolicyApi(Api):
    def expected(self) -> int | None:
        """The revision that the caller has seen."""
        given = self.if_match()
        if given is not None and not given.isdecimal():
            message = f'If-Match is {short(given)}; it takes the policy\'s ETag, such as "7", or *'
            raise Invalid([Issue("If-Match", None, short(given), message)])
        return None if given is None else int(given)

    def applied(self, applied: Applied) -> Response:
        told = AppliedOut(
            revision=applied.revision,
            created=applied.created,
            changes=[change_out(change) for change in applied.changes],
        )
        return Response(told.model_dump(), headers={"ETag": f'"{applied.revision}"'})


class Policy(PolicyApi):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "policy.view"}
    renderer_classes = [JSONRenderer, Yaml]

    @extend_schema(
        operation_id="policy_read",
        summary="The policy in force, as JSON or YAML",
        tags=["policy"],
        responses={200: Document} | FAULTS,
    )
    def get(self, request: Request) -> Response:
        number = selectors.current_revision()
        document = canonical(selectors.revision_document(number))
        return Response(document, headers={"ETag": f'"{number}"'})


class Diff(PolicyApi):
    actions: ClassVar[Mapping[str, Action]] = {"POST": "policy.view"}

    @extend_schema(
        operation_id="policy_diff",
        summary="What a document would change",
        tags=["policy"],
        request=PolicyText,
        responses={200: AppliedOut} | FAULTS,
    )
    def post(self, request: Request) -> Response:
        asked = read(PolicyText, request.data)
        return self.applied(
            services.apply_document(asked.document, actor=self.actor(), dry_run=True)
        )


class Apply(PolicyApi):
    actions: ClassVar[Mapping[str, Action]] = {"POST": "policy.edit"}

    @extend_schema(
        operation_id="policy_apply",
        summary="Put a document in force, whole or not at all",
        tags=["policy"],
        parameters=[IF_MATCH],
        request=ApplyPolicy,
        responses={200: AppliedOut} | FAULTS | RACES,
    )
    def post(self, request: Request) -> Response:
        expected, asked = self.expected(), read(ApplyPolicy, request.data)
        return self.applied(
            services.apply_document(
                asked.document,
                actor=self.actor(),
                reason=asked.reason,
                expected_revision=expected,
            )
        )


class RollBack(PolicyApi):
    actions: ClassVar[Mapping[str, Action]] = {"POST": "policy.edit"}

    @extend_schema(
        operation_id="policy_rollback",
        summary="Put an earlier revision in force again",
        tags=["policy"],
        parameters=[IF_MATCH],
        request=Rollback,
        responses={200: AppliedOut} | FAULTS | RACES,
    )
    def post(self, request: Request) -> Response:
        expected, asked = self.expected(), read(Rollback, request.data)
        return self.applied(
            services.rollback(
                asked.revision,
                actor=self.actor(),
                reason=asked.reason,
                expected_revision=expected,
            )
        )


class History(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "policy.view"}

    @extend_schema(
        operation_id="policy_history",
        summary="Revisions, newest first",
        tags=["policy"],
        parameters=[OpenApiParameter("cursor", str), OpenApiParameter("limit", int)],
        responses={200: many(RevisionOut)} | FAULTS,
    )
    def get(self, request: Request) -> Response:
        pager = Cursor("-number")
        rows = pager.paginate_queryset(PolicyRevision.objects.defer("packed"), request, view=self)
        return pager.get_paginated_response([revision_out(row).model_dump() for row in rows or []])


class Revision(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "policy.view"}

    @extend_schema(
        operation_id="policy_revision",
        summary="One revision with its document",
        tags=["policy"],
        responses={200: RevisionWithDocument} | FAULTS,
    )
    def get(self, request: Request, number: int) -> Response:
        found = PolicyRevision.objects.filter(number=number).first()
        if found is None:
            raise NotFound(f"there is no revision {number}")
        return Response({**revision_out(found).model_dump(), "document": found.document})


class Audit(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "audit.view"}

    @extend_schema(
        operation_id="audit_list",
        summary="Who changed what, newest first",
        tags=["audit"],
        parameters=[
            OpenApiParameter(name, str)
            for name in ("actor", "kind", "name", "since", "until", "cursor")
        ],
        responses={200: many(AuditOut)} | FAULTS,
    )
    def get(self, request: Request) -> Response:
        entries = AuditEntry.objects.select_related("revision").defer("revision__packed")
        for field in ("actor", "kind", "name"):
            if value := request.query_params.get(field):
                entries = entries.filter(**{field: value})
        pager = Cursor("-at", "-id")
        rows = pager.paginate_queryset(between(request, entries), request, view=self)
        return pager.get_paginated_response([audit_out(row).model_dump() for row in rows or []])


class Users(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "users.view"}

    @extend_schema(
        operation_id="user_list",
        summary="People and their roles",
        tags=["users"],
        responses={200: many(UserOut)} | FAULTS,
    )
    def get(self, request: Request) -> Response:
        people = get_user_model()._default_manager.select_related("membership__tenant")
        return Response([user_out(user).model_dump() for user in people.order_by("username")])


def user_out(user: Any) -> UserOut:
    member = getattr(user, "membership", None)
    return UserOut(
        username=user.get_username(),
        role=member.role if member else "admin" if user.is_superuser else None,
        tenant=member.tenant.name if member and member.tenant else None,
        active=user.is_active,
        last_login=user.last_login,
    )
