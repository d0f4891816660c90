"""Bodies of the admin API that are not objects of the policy file.

Pydantic checks them strictly, as it does the policy: an unknown field is an error that names it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tenants.core.diff import Change
from tenants.core.document import Budget
from tenants.core.issue import Invalid, Issue, short
from tenants.models import ApiKey, AuditEntry, PolicyRevision

Model = TypeVar("Model", bound=BaseModel)


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class NewKey(Body):
    tenant: str
    application: str | None = None
    name: str = ""
    expires_days: float | None = None
    budgets: list[Budget] = []
    reason: str = ""


class RotateKey(Body):
    grace_hours: float = 0
    reason: str = ""


class Reason(Body):
    reason: str = ""


class PolicyText(Body):
    document: Annotated[
        str | dict[str, Any], Field(description="The whole policy: YAML text, or its values.")
    ]


class ApplyPolicy(PolicyText):
    reason: str = ""


class Rollback(Body):
    revision: Annotated[int, Field(ge=0)]
    reason: str = ""


class KeyOut(BaseModel):
    id: str
    masked: str
    tenant: str
    application: str | None
    name: str
    state: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None


class KeyWithSecret(KeyOut):
    key: Annotated[str, Field(description="The whole key; this answer is the only one with it.")]


class ChangeOut(BaseModel):
    kind: str
    name: str
    field: str
    old: Any
    new: Any


class AppliedOut(BaseModel):
    revision: int
    created: bool
    changes: list[ChangeOut]


class RevisionOut(BaseModel):
    number: int
    at: datetime
    author: str
    source: str
    reason: str
    changes: int


class RevisionWithDocument(RevisionOut):
    document: dict[str, Any]


class AuditOut(BaseModel):
    at: datetime
    actor: str
    source: str
    address: str
    kind: str
    name: str
    field: str
    old: Any
    new: Any
    reason: str
    revision: int | None


class UserOut(BaseModel):
    username: str
    role: str | None
    tenant: str | None
    active: bool
    last_login: datetime | None


class BudgetOut(Budget):
    id: Annotated[str, Field(description="owner kind, owner and name: `tier:gold/hourly`")]
    owner_kind: str
    owner: str


class Fault(BaseModel):
    field: str
    value: str
    message: str


class ErrorOut(BaseModel):
    detail: str
    errors: list[Fault]


def read(model: type[Model], data: Any) -> Model:
    """Raises Invalid with every fault."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise Invalid(
            Issue(".".join(map(str, e["loc"])), None, short(e["input"]), e["msg"], e["loc"])
            for e in error.errors()
        ) from None


def key_out(key: ApiKey) -> KeyOut:
    return KeyOut(
        id=key.public_id,
        masked=key.masked,
        tenant=key.tenant.name,
        application=key.application.name if key.application else None,
        name=key.name,
        state=key.state,
        created_at=key.created_at,
        created_by=key.created_by,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
    )


def change_out(change: Change) -> ChangeOut:
    return ChangeOut(
        kind=change.kind, name=change.name, field=change.field, old=change.old, new=change.new
    )


def revision_out(revision: PolicyRevision) -> RevisionOut:
    return RevisionOut(
        number=revision.number,
        at=revision.at,
        author=revision.author,
        source=revision.source,
        reason=revision.reason,
        changes=revision.changes,
    )


def audit_out(entry: AuditEntry) -> AuditOut:
    return AuditOut(
        at=entry.at,
        actor=entry.actor,
        source=entry.source,
        address=entry.address,
        kind=entry.kind,
        name=entry.name,
        field=entry.field,
        old=entry.old,
        new=entry.new,
        reason=entry.reason,
        revision=entry.revision.number if entry.revision else None,
    )
