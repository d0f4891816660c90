"""Bodies of the admin API that are not objects of the policy file.

Pydantic checks them strictly, as it does the policy: an unknown field is an error that names it.
What is told is read off the row by its attributes, by the same names unless a path says another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError, field_validator

from tenants.core.document import Budget, Name
from tenants.core.issue import Invalid, Issue, Loc, short, told
from tenants.core.merge import Side
from tenants.core.validation import takes
from tenants.selectors import budget_of
from tenants.services.ends import DEFAULT_DAYS

Model = TypeVar("Model", bound=BaseModel)


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Out(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    @classmethod
    def of(cls, row: Any) -> dict[str, Any]:
        """As plain values, of any object with these attributes."""
        return cls.model_validate(row).model_dump()


def within(*path: str) -> Any:
    """None where the path ends early."""
    return Field(default=None, validation_alias=AliasPath(*path))


# --- orders ---------------------------------------------------------------------------------


class Reason(Body):
    reason: Annotated[str, Field(description="Stands in the audit beside each change.")] = ""


class NewKey(Reason):
    tenant: str
    application: Annotated[str | None, Field(description="One of the tenant's.")] = None
    name: Annotated[str, Field(description="What people call it.")] = ""
    expires_days: Annotated[float | None, Field(description="From now on; null: never.")] = None
    budgets: Annotated[list[Budget], Field(description="Beside the tenant's.")] = []


class RotateKey(Reason):
    grace_hours: Annotated[float, Field(description="How long the old secret works on.")] = 0


class EditKey(Reason):
    """What is left out stays; at least one is given."""

    expires_days: Annotated[float | None, Field(description="From now on; null: never.")] = None
    budgets: Annotated[
        list[Budget], Field(description="All that it is to have of its own, beside the tenant's.")
    ] = []


class RevokeKeys(Reason):
    ids: Annotated[list[str], Field(min_length=1, max_length=1000)]


class PolicyText(Body):
    document: Annotated[
        str | dict[str, Any], Field(description="The whole policy: YAML text, or its values.")
    ]


class ApplyPolicy(PolicyText, Reason):
    pass


class Rollback(Reason):
    revision: Annotated[int, Field(ge=0)]


class Revert(Rollback):
    keep: Annotated[
        dict[str, Side], Field(description="Where both changed a field, by its name as 409 tells.")
    ] = {}
    dry_run: bool = False


class TenantEdit(Body):
    name: Name
    changes: Annotated[
        dict[str, Any], Field(description="A merge patch (RFC 7396), as of the tenant's PATCH.")
    ]


class EditTenants(Reason):
    tenants: Annotated[list[TenantEdit], Field(min_length=1, max_length=5000)]


class NewUser(Reason):
    username: str
    role: str
    tenant: str | None = None
    password: Annotated[str | None, Field(description="Made up where none is given.")] = None


class EditUser(Reason):
    """A merge patch: what is not given stays. A role and its tenant are given together."""

    role: str | None = None
    tenant: str | None = None
    enabled: bool | None = None
    must_use_totp: bool | None = None


class NewToken(Reason):
    name: str
    role: str
    tenant: str | None = None
    expires_days: float = DEFAULT_DAYS


class RenewToken(Reason):
    expires_days: float = DEFAULT_DAYS


# --- what is told ---------------------------------------------------------------------------


class KeyOut(Out):
    id: Annotated[str, Field(validation_alias="public_id")]
    masked: str
    tenant: Annotated[str, Field(validation_alias=AliasPath("tenant", "name"))]
    application: str | None = within("application", "name")
    name: str
    state: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: Annotated[datetime | None, Field(description="To about a minute.")]
    budgets: Annotated[list[Budget], Field(description="Its own, beside the tenant's.")]

    @field_validator("budgets", mode="before")
    @classmethod
    def of_rows(cls, rows: Any) -> list[Budget]:
        return [budget_of(row) for row in rows.all()]


class RevokedOut(BaseModel):
    results: list[KeyOut]


class KeyWithSecret(KeyOut):
    key: Annotated[str, Field(description="The whole key; this answer is the only one with it.")]


class ChangeOut(Out):
    kind: str
    name: str
    field: str
    old: Any
    new: Any


class WarningOut(Out):
    level: str
    kind: str
    name: str
    field: str
    message: str


class AppliedOut(Out):
    revision: int
    created: bool
    changes: list[ChangeOut]
    warnings: list[WarningOut]


class RevisionOut(Out):
    number: int
    at: datetime
    author: str
    source: str
    reason: str
    changes: int


class RevisionWithDocument(RevisionOut):
    document: dict[str, Any]


class AuditOut(Out):
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
    revision: int | None = within("revision", "number")


class UserOut(Out):
    username: str
    role: str | None = within("membership", "role")
    tenant: str | None = within("membership", "tenant", "name")
    enabled: Annotated[bool, Field(validation_alias="is_active")]
    must_use_totp: bool = Field(
        default=False, validation_alias=AliasPath("membership", "must_use_totp")
    )
    last_login: datetime | None


class UserWithSecrets(UserOut):
    password: Annotated[str, Field(description="Told once.")]
    token: Annotated[str, Field(description="For the admin API; told once.")]


class TokenOut(Out):
    id: Annotated[str, Field(validation_alias="public_id")]
    masked: str
    name: str
    role: str
    tenant: str | None = within("tenant", "name")
    state: str
    created_at: datetime
    created_by: str
    expires_at: datetime
    revoked_at: datetime | None
    last_used_at: datetime | None


class TokenWithSecret(TokenOut):
    token: Annotated[str, Field(description="The whole token; told once.")]


class PasswordOut(Out):
    username: str
    password: Annotated[str, Field(description="Told once; to be changed at the next sign-in.")]


class BudgetOut(Budget):
    id: Annotated[str, Field(description="owner kind, owner and name: `tier:gold/hourly`")]
    owner_kind: str
    owner: str


class NewBudget(Budget):
    owner_kind: Annotated[str, Field(description="tier, tenant or application")]
    owner: Annotated[str, Field(description="`tenant/application` of an application")]


class Fault(BaseModel):
    field: str
    value: Annotated[Any, Field(description="As it was sent; cut where it is long.")]
    message: str


class ErrorOut(BaseModel):
    detail: str
    errors: list[Fault]


def read(model: type[Model], data: Any) -> Model:
    """Raises Invalid with every fault."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise Invalid(_issues(model, data, error)) from None


def _issues(model: type[BaseModel], data: Any, error: ValidationError) -> Iterator[Issue]:
    """One of each place: where a field takes either of two forms pydantic tells of both."""
    found = dict[Loc, list[Any]]()
    for each in error.errors():
        found.setdefault(place(data, each), []).append(each)
    for loc, faults in found.items():
        first, *more = sorted(faults, key=takes)
        ways = [said(model, first, loc), *map(takes, more)]
        yield Issue(".".join(map(str, loc)), None, given(first), " or ".join(ways), loc)


def place(data: Any, error: Any) -> Loc:
    """Without pydantic's own steps: the names of a field's forms are no place in the data."""
    steps: Loc = error["loc"]
    kept = []
    for position, step in enumerate(steps):
        inside = isinstance(data, Mapping) and step in data
        inside |= isinstance(data, list) and isinstance(step, int) and step < len(data)
        is_missing = error["type"] == "missing" and position == len(steps) - 1
        if inside or is_missing:
            kept.append(step)
            data = data[step] if inside else None
    return tuple(kept)


def given(error: Any) -> Any:
    """Of what is missing pydantic gives what it is missing in."""
    return None if error["type"] == "missing" else told(error["input"])


def said(model: type[BaseModel], error: Any, loc: Loc) -> str:
    if error["type"] == "extra_forbidden" and len(loc) == 1:
        return f"unknown field; known: {', '.join(sorted(model.model_fields))}"
    field = next((str(part) for part in reversed(loc) if isinstance(part, str)), "body")
    if error["type"] == "missing":
        return f"{field} is missing"
    return f"{field} is {short(error['input'])}: {takes(error)}"
