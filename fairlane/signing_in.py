"""Settings of how people sign in to the console, read and checked like all others.

Django's own accounts work by themselves. What is not switched on here is not loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from fairlane import environment as given
from tenants.core.issue import Invalid
from tenants.core.permissions import role_fits

LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Oidc:
    """`roles`: (group, role, tenant), the first that fits wins."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    label: str
    scopes: tuple[str, ...]
    claim: str
    roles: tuple[tuple[str, str, str | None], ...]

    @property
    def provider(self) -> str:
        """Another issuer's `sub` is another person, so accounts hang on the issuer too."""
        return f"oidc-{sha256(self.issuer.encode()).hexdigest()[:16]}"


def oidc() -> Oidc | None:
    """None where OIDC_ISSUER is unset: then nobody signs in through a provider."""
    issuer = str(given.env.str("OIDC_ISSUER", default="")).rstrip("/")
    if not issuer:
        return None
    parts = urlsplit(issuer)
    if not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOCAL)):
        raise ImproperlyConfigured(
            f"OIDC_ISSUER is {issuer!r}; it takes https://… (http:// on this machine only)"
        )
    return Oidc(
        issuer,
        given.needed("OIDC_CLIENT_ID", "OIDC_ISSUER"),
        given.needed("OIDC_CLIENT_SECRET", "OIDC_ISSUER"),
        str(given.env.str("OIDC_NAME", default="single sign-on")),
        _scopes(),
        str(given.env.str("OIDC_ROLE_CLAIM", default="groups")),
        _roles(),
    )


def _scopes() -> tuple[str, ...]:
    found = tuple(str(given.env.str("OIDC_SCOPES", default="openid profile email")).split())
    if "openid" not in found:
        raise ImproperlyConfigured(
            f"OIDC_SCOPES is {' '.join(found)!r}; it takes scopes with spaces between, openid "
            "among them"
        )
    return found


def _roles() -> tuple[tuple[str, str, str | None], ...]:
    """`admins=admin,acme-team=tenant-viewer:acme`."""
    found = []
    for text in str(given.env.str("OIDC_ROLES", default="")).split(","):
        if not text.strip():
            continue
        group, equals, means = text.strip().rpartition("=")
        role, _, tenant = means.partition(":")
        try:
            role_fits(role, tenant or None)
        except Invalid as wrong:
            equals = ""
            why = f" ({wrong.issues[0].message})"
        else:
            why = ""
        if not (group and equals):
            raise ImproperlyConfigured(
                f"OIDC_ROLES has {text.strip()!r}; it takes group=role or group=role:tenant, with "
                f"commas between{why}"
            )
        found.append((group, role, tenant or None))
    return tuple(found)


THROTTLED: Mapping[str, Any] = {
    "AXES_LOCKOUT_PARAMETERS": [["username", "ip_address"]],
    "AXES_RESET_ON_SUCCESS": True,
    # What the lock-out page promises must hold, whoever tries on meanwhile.
    "AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT": False,
    "AXES_LOCKOUT_CALLABLE": "tenants.views.sign_in.locked_out",
    "AXES_DISABLE_ACCESS_LOG": True,
    "AXES_ENABLE_ADMIN": False,
    "AXES_VERBOSE": False,
}


def sso_settings(oidc: Oidc) -> dict[str, Any]:
    """allauth's, for one provider and nothing else of what it can do: no sign-up form, no mail, no
    linking of accounts by address."""
    app = {
        "provider_id": oidc.provider,
        "name": oidc.label,
        "client_id": oidc.client_id,
        "secret": oidc.client_secret,
        "settings": {"server_url": oidc.issuer, "oauth_pkce_enabled": True},
    }
    return {
        "SOCIALACCOUNT_PROVIDERS": {
            "openid_connect": {
                "APPS": [app],
                "SCOPE": list(oidc.scopes),
                "OAUTH_PKCE_ENABLED": True,
            }
        },
        "SOCIALACCOUNT_ADAPTER": "tenants.sso.People",
        "ACCOUNT_ADAPTER": "tenants.sso.Quiet",
        # Begins a sign-in and nothing else; a form would need the provider in the CSP.
        "SOCIALACCOUNT_LOGIN_ON_GET": True,
        "SOCIALACCOUNT_EMAIL_VERIFICATION": "none",
        "SOCIALACCOUNT_STORE_TOKENS": False,
        "SOCIALACCOUNT_REQUESTS_TIMEOUT": 10,
        "ACCOUNT_EMAIL_VERIFICATION": "none",
        "ACCOUNT_SIGNUP_FIELDS": ["username*"],
    }
