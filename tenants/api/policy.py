"""The whole policy as one document, its history, and who changed what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from drf_spectacular.types import OpenApiTypes
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from tenants import selectors, services
from tenants.api import filters
from tenants.api.base import Api, Changed, Order, refusal
from tenants.api.described import IF_MATCH, RACES, Handler, lists, says
from tenants.api.objects import no_applications
from tenants.api.pages import page
from tenants.api.schemas import (
    AppliedOut,
    ApplyPolicy,
    AuditOut,
    EditTenants,
    ErrorOut,
    PolicyText,
    Revert,
    RevisionOut,
    RevisionWithDocument,
    Rollback,
    read,
)
from tenants.core import yaml_text
from tenants.core.document import Document, canonical
from tenants.core.issue import refused, short, told
from tenants.core.merge import Beside
from tenants.core.permissions import Action
from tenants.core.schema import json_schema
from tenants.errors import NotFound
from tenants.models import AuditEntry, PolicyRevision
from tenants.services import Applied, plans


class Yaml(BaseRenderer):
    media_type, format, charset = "application/yaml", "yaml", "utf-8"

    def render(self, data: Any, *_: Any, **__: Any) -> bytes:
        return yaml_text.dump(data).encode()


class PolicyApi(Api):
    def expected(self) -> int | None:
        """The revision that the caller has seen."""
        given = self.if_match()
        if given is not None and not (given.isdecimal() and len(given) <= 9):
            message = f'If-Match is {short(given)}; it takes the policy\'s ETag, such as "7", or *'
            raise refused("If-Match", given, message)
        return None if given is None else int(given)

    def revising(self, model: type[Order]) -> tuple[Order, dict[str, Any]]:
        """The body, and what every service takes that makes a revision of the whole."""
        expected = self.expected()
        asked, by = self.order(model)
        return asked, {**by, "expected_revision": expected}

    def applied(self, applied: Applied) -> Response:
        return Response(AppliedOut.of(applied), headers={"ETag": f'"{applied.revision}"'})


def revises(
    operation: str, summary: str, body: type, tag: str = "policy", **said: Any
) -> Callable[[Handler], Handler]:
    answers = {200: AppliedOut} | RACES | said.pop("more", {})
    return says(operation, summary, answers, IF_MATCH, body=body, tag=tag, **said)


class Policy(PolicyApi):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "policy.view"}
    renderer_classes = [JSONRenderer, Yaml]

    @says("policy_read", "The policy in force, as JSON or YAML", {200: Document}, tag="policy")
    def get(self, request: Request) -> Response:
        number = selectors.current_revision()
        document = canonical(selectors.revision_document(number))
        return Response(document, headers={"ETag": f'"{number}"'})


class Schema(PolicyApi):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "policy.view"}

    @says(
        "policy_schema",
        "JSON Schema of the policy file, for editors",
        {200: OpenApiTypes.OBJECT},
        tag="policy",
    )
    def get(self, request: Request) -> Response:
        return Response(json_schema())


class Diff(PolicyApi):
    actions: ClassVar[Mapping[str, Action]] = {"POST": "policy.view"}

    @says(
        "policy_diff",
        "What a document would change, with warnings",
        {200: AppliedOut},
        body=PolicyText,
        tag="policy",
    )
    def post(self, request: Request) -> Response:
        asked = read(PolicyText, request.data)
        return self.applied(
            services.apply_document(asked.document, actor=self.actor(), dry_run=True)
        )


class Apply(PolicyApi):
    actions: ClassVar[Mapping[str, Action]] = {"POST": "policy.edit"}

    @revises("policy_apply", "Put a document in force, whole or not at all", ApplyPolicy)
    def post(self, request: Request) -> Response:
        asked, by = self.revising(ApplyPolicy)
        return self.applied(services.apply_document(asked.document, **by))


class RollBack(PolicyApi):
    actions: ClassVar[Mapping[str, Action]] = {"POST": "policy.edit"}

    @revises("policy_rollback", "Put an earlier revision in force again", Rollback)
    def post(self, request: Request) -> Response:
        asked, by = self.revising(Rollback)
        return self.applied(services.rollback(asked.revision, **by))


class TakeBack(PolicyApi):
    """Unlike a rollback it leaves later revisions' changes as they are."""

    actions: ClassVar[Mapping[str, Action]] = {"POST": "policy.edit"}

    @revises(
        "policy_revert",
        "Take one revision's change back, and no other's",
        Revert,
        more={409: ErrorOut},
        description="Where a later revision changed the same field, 409 names it; `keep` then says "
        "for each whose value holds: `yours` (as before the revision) or `theirs` (as now).",
    )
    def post(self, request: Request) -> Response:
        expected, (asked, by) = self.expected(), self.order(Revert)
        edit = plans.Edit(*plans.undo(asked.revision), keep=asked.keep)
        plan = plans.plan(edit)
        if expected not in (None, plan.revision):
            raise Changed(f"revision {plan.revision} is in force, not {expected}")
        if clashes := [each for each in plan.beside if undecided(each, asked)]:
            errors = [told_of(each, asked.revision) for each in clashes]
            return refusal("Later revisions changed the same fields.", errors, 409)
        if asked.dry_run or not plan.changes:
            return self.applied(Applied(plan.revision, plan.changes, False, plan.warnings))
        by["reason"] = asked.reason or f"Revert revision {asked.revision}"
        return self.applied(plans.apply_plan(edit, plan.seal, **by))


def undecided(field: Beside, asked: Revert) -> bool:
    return field.outcome == "clash" and field.key not in asked.keep


def told_of(field: Beside, revision: int) -> dict[str, Any]:
    now, before = short(field.theirs), short(field.yours)
    what = field.field or field.name
    message = (
        f"{what} is {now} now, and was {before} before revision {revision}; "
        "say in keep which one holds"
    )
    return {"field": field.key, "value": told(field.theirs), "message": message}


class EditMany(PolicyApi):
    actions: ClassVar[Mapping[str, Action]] = {"POST": "policy.edit"}

    @revises(
        "tenant_change_many",
        "Change many tenants, all or none, as one revision",
        EditTenants,
        tag="tenants",
        description="If-Match takes the policy's ETag.",
    )
    def post(self, request: Request) -> Response:
        asked, by = self.revising(EditTenants)
        edits = {each.name: each.changes for each in asked.tenants}
        if len(edits) < len(asked.tenants):
            raise refused("tenants", len(asked.tenants), "a tenant is named twice")
        for name, changes in edits.items():
            no_applications(changes, f"tenants[{name}].applications")
        return self.applied(services.edit_objects("tenant", edits, **by))


class History(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "policy.view"}

    @lists("policy_history", "Revisions, newest first", RevisionOut, filters.Revisions, "policy")
    def get(self, request: Request) -> Response:
        rows = PolicyRevision.objects.defer("packed")
        return page(request, rows, filters.Revisions, RevisionOut.of)


class Revision(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "policy.view"}

    @says(
        "policy_revision",
        "One revision with its document",
        {200: RevisionWithDocument},
        tag="policy",
    )
    def get(self, request: Request, number: int) -> Response:
        found = PolicyRevision.objects.filter(number=number).first()
        if found is None:
            raise NotFound(f"there is no revision {number}")
        return Response(RevisionWithDocument.of(found))


class Audit(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "audit.view"}

    @lists("audit_list", "Who changed what, newest first", AuditOut, filters.Audit, "audit")
    def get(self, request: Request) -> Response:
        rows = AuditEntry.objects.select_related("revision").defer("revision__packed")
        return page(request, rows, filters.Audit, AuditOut.of)
