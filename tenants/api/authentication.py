"""`Authorization: Token …`: whose token it is, or a 401 that says what is wrong with it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone
from rest_framework.authentication import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed

from tenants.core.keys import digest
from tenants.models import AccessToken, Membership

USE_NOTED_EVERY = timedelta(minutes=10)  # a call of the API is not a write each time


class Service:
    """Who calls with a service token: no account, but what `viewer_of` and `actor_for` ask of
    one. `pk` is None, so nothing that is keyed by account is ever its own."""

    pk = None
    is_active = is_authenticated = True
    is_anonymous = is_staff = is_superuser = False

    def __init__(self, token: AccessToken) -> None:
        self.name = token.name
        self.membership = Membership(role=token.role, tenant=token.tenant)

    def get_username(self) -> str:
        """As it stands in the audit; no user can be called so."""
        return f"token:{self.name}"

    def __str__(self) -> str:
        return self.get_username()


class TokenAuth(TokenAuthentication):
    def authenticate_credentials(self, key: str) -> tuple[Any, AccessToken]:
        token = (
            AccessToken.objects.select_related("user", "tenant")
            .filter(digest=digest(key).hex())
            .first()
        )
        if token is None:
            raise AuthenticationFailed("There is no such token.")
        if token.state != "active":
            raise AuthenticationFailed(_ended(token))
        if token.user is not None and not token.user.is_active:
            raise AuthenticationFailed("The account of this token is disabled.")
        _note_use(token)
        return token.user or Service(token), token


def _ended(token: AccessToken) -> str:
    if token.revoked_at is not None:
        return f"The token {token.masked} was revoked. Make a new one in the console."
    at = f"{token.expires_at:%Y-%m-%d %H:%M} UTC"
    return f"The token {token.masked} expired on {at}. Make a new one in the console."


def _note_use(token: AccessToken) -> None:
    now = timezone.now()
    if token.last_used_at is None or now - token.last_used_at >= USE_NOTED_EVERY:
        AccessToken.objects.filter(pk=token.pk).update(last_used_at=now)
