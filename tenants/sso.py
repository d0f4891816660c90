"""Single sign-on by OpenID Connect: what allauth asks of a project. Loaded only where OIDC_ISSUER
is set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import structlog
from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.providers.base import AuthProcess
from allauth.socialaccount.providers.openid_connect import views as openid
from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from requests import RequestException

from tenants.services.actors import Actor
from tenants.services.sso import Mapped, follow_claim, free_name, record_arrival
from tenants.sessions import pass_second_factor

log = structlog.get_logger("fairlane.sso")


class Quiet(DefaultAccountAdapter):  # type: ignore[misc]  # untyped
    """The console says what there is to say."""

    def add_message(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def respond_user_inactive(self, request: HttpRequest, user: Any) -> HttpResponse:
        return refusal(request, "This account is disabled.")

    def login(self, request: HttpRequest, user: Any) -> None:
        super().login(request, user)
        pass_second_factor(request)  # the provider's to ask for


class People(DefaultSocialAccountAdapter):  # type: ignore[misc]  # untyped
    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Signing in is all: to link a provider's account with a local one would let whoever holds
        the first into the second."""
        if sociallogin.state.get("process") not in (None, "", AuthProcess.LOGIN):
            raise ImmediateHttpResponse(refusal(request, "That is not offered here."))
        sociallogin.email_addresses = []  # nobody is found by an address
        if sociallogin.is_existing:
            arrived(request, sociallogin)

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: Any) -> bool:
        return True

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return True

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> Any:
        user, said = sociallogin.user, claims(sociallogin)
        user.username = free_name(wanted_name(said))
        user.set_unusable_password()
        with transaction.atomic():
            sociallogin.save(request)
            record_arrival(user, actor(request, user))
        arrived(request, sociallogin)
        return user

    def on_authentication_error(
        self,
        request: HttpRequest,
        provider: Any,
        error: Any = None,
        exception: Exception | None = None,
        extra_context: Any = None,
    ) -> None:
        log.warning("sign-in failed", error=str(error), why=repr(exception))
        raise ImmediateHttpResponse(
            refusal(request, "The identity provider did not confirm who you are.")
        )


def login(request: HttpRequest, provider_id: str) -> HttpResponse:
    return reached(request, openid.login, provider_id)


def callback(request: HttpRequest, provider_id: str) -> HttpResponse:
    return reached(request, openid.callback, provider_id)


def reached(request: HttpRequest, view: Any, provider_id: str) -> HttpResponse:
    try:
        answer: HttpResponse = view(request, provider_id)
    except RequestException as error:
        log.error("identity provider out of reach", why=repr(error))
        return refusal(request, "The identity provider is out of reach.", 502)
    return answer


def refusal(request: HttpRequest, why: str, status: int = 403) -> HttpResponse:
    return render(request, "registration/sso_failed.html", {"why": why}, status=status)


def arrived(request: HttpRequest, sociallogin: Any) -> None:
    user = sociallogin.user
    follow_claim(user, mapped(claims(sociallogin)), actor=actor(request, user))


def actor(request: HttpRequest, user: Any) -> Actor:
    return Actor(user.get_username(), "page", str(request.META.get("REMOTE_ADDR", "")), user=user)


def claims(sociallogin: Any) -> dict[str, Any]:
    """What the id token says, and over it what the userinfo endpoint says."""
    said = sociallogin.account.extra_data
    return {**(said.get("id_token") or {}), **(said.get("userinfo") or {})}


def wanted_name(said: Mapping[str, Any]) -> str:
    given = said.get("preferred_username") or said.get("email") or said.get("sub")
    kept = "".join(char for char in str(given) if char.isalnum() or char in "@.+-_")
    return kept or "sso-user"


def mapped(said: Mapping[str, Any]) -> Mapped | None:
    assert settings.OIDC is not None
    groups = set(values(said, settings.OIDC.claim))
    for group, role, tenant in settings.OIDC.roles:
        if group in groups:
            return role, tenant
    return None


def values(said: Any, claim: str) -> Iterator[str]:
    """Of a claim that is one text or a list of them; `realm_access.roles` is `roles` inside."""
    found = said.get(claim) if isinstance(said, Mapping) else None
    if found is None and "." in claim and isinstance(said, Mapping):
        outer, _, inner = claim.partition(".")
        yield from values(said.get(outer), inner)
    elif isinstance(found, str):
        yield found
    elif isinstance(found, list):
        yield from (each for each in found if isinstance(each, str))
