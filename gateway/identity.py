"""Who is asking: decided by the key alone, by one lookup in the snapshot."""

from __future__ import annotations

import hashlib
from datetime import datetime

import msgspec

from gateway.errors import ApiError, Outcome
from tenants.core.snapshot import (
    NO_APPLICATION,
    ApplicationPolicy,
    KeyPolicy,
    PolicySnapshot,
    TenantPolicy,
)


class Identity(msgspec.Struct, frozen=True):
    digest: bytes
    key: KeyPolicy
    tenant: TenantPolicy
    application: ApplicationPolicy


def identify(snapshot: PolicySnapshot, secret: bytes, at: datetime) -> Identity:
    """The key's tenant and application under this snapshot.

    Raises:
        ApiError: invalid_api_key; the message never repeats the key.
    """
    return identity_of(snapshot, hashlib.sha256(secret).digest(), at)


def identity_of(snapshot: PolicySnapshot, digest: bytes, at: datetime) -> Identity:
    """As `identify`, for a key that was seen before: also how a waiting request is checked again
    when the policy changes.

    Raises:
        ApiError: invalid_api_key.
    """
    key = snapshot.keys.get(digest)
    if key is None or (key.expires_at is not None and key.expires_at <= at):
        raise ApiError(
            Outcome.INVALID_API_KEY,
            "The API key is not known, has expired, was revoked, or its tenant or application "
            "is no longer in the policy.",
        )
    tenant = snapshot.tenants.get(key.tenant)
    if tenant is None:
        raise ApiError(Outcome.INVALID_API_KEY, "The API key's tenant is no longer in the policy.")
    return Identity(digest, key, tenant, _application(tenant, key))


def _application(tenant: TenantPolicy, key: KeyPolicy) -> ApplicationPolicy:
    if key.application == NO_APPLICATION:
        return ApplicationPolicy(name=NO_APPLICATION, lane=tenant.lane)
    application = tenant.applications.get(key.application)
    if application is None:
        raise ApiError(
            Outcome.INVALID_API_KEY,
            f"The API key's application '{key.application}' is no longer in the policy.",
        )
    return application
