"""People, their roles, and tokens for the admin API. What is told once is told in one answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from django.db import transaction
from rest_framework.request import Request
from rest_framework.response import Response

from tenants import selectors, services
from tenants.api import filters
from tenants.api.base import NO_STORE, Api, etag_of
from tenants.api.described import IF_MATCH, RACES, REASON, REUSED, lists, says
from tenants.api.idempotency import IDEMPOTENCY_KEY, once
from tenants.api.pages import page
from tenants.api.schemas import (
    EditUser,
    NewToken,
    NewUser,
    PasswordOut,
    Reason,
    RenewToken,
    TokenOut,
    TokenWithSecret,
    UserOut,
    UserWithSecrets,
)
from tenants.core.issue import refused
from tenants.core.permissions import Action
from tenants.errors import NotFound
from tenants.models import AccessToken, Membership
from tenants.services.rows import user_row

EDITED = ("username", "role", "tenant", "enabled", "must_use_totp")


def told(user: Any) -> dict[str, Any]:
    said = UserOut.of(user)
    return {**said, "role": said["role"] or ("admin" if user.is_superuser else None)}


def etag(user: Any) -> str:
    """Of what an edit can change."""
    said = told(user)
    return etag_of([said[field] for field in EDITED])


class UserApi(Api):
    def answer(self, username: str, status: int = 200, **secrets: str) -> Response:
        user = user_row(username)
        headers = {"ETag": f'"{etag(user)}"', **(NO_STORE if secrets else {})}
        return Response({**told(user), **secrets}, status, headers=headers)


class Users(UserApi):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "users.view", "POST": "users.edit"}

    @lists("user_list", "People and their roles", UserOut, filters.Users)
    def get(self, request: Request) -> Response:
        return page(request, selectors.people(), filters.Users, told)

    @says(
        "user_create",
        "Give somebody an account; password and token are told once",
        {201: UserWithSecrets} | REUSED,
        IDEMPOTENCY_KEY,
        body=NewUser,
    )
    @once
    def post(self, request: Request) -> Response:
        asked, by = self.order(NewUser)
        _, password, token = services.create_user(
            asked.username,
            asked.role,
            asked.tenant,
            asked.password,
            one_time=asked.password is None,
            **by,
        )
        return self.answer(asked.username, 201, password=password, token=token)


class User(UserApi):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "users.view", "PATCH": "users.edit"}

    @says("user_read", "Read an account", {200: UserOut})
    def get(self, request: Request, username: str) -> Response:
        return self.answer(username)

    @says(
        "user_change",
        "Give somebody another role, disable the account, or require a second factor",
        {200: UserOut} | RACES,
        IF_MATCH,
        body=EditUser,
    )
    def patch(self, request: Request, username: str) -> Response:
        asked, by = self.order(EditUser)
        given = asked.model_fields_set
        if "tenant" in given and "role" not in given:
            raise refused("tenant", asked.tenant, "a tenant is given together with the role")
        self.if_match()
        with transaction.atomic():
            list(Membership.objects.select_for_update().filter(user__username=username))
            self.check_seen(etag(user_row(username)), f"user {username!r}")
            if "role" in given:
                services.set_role(username, asked.role or "", asked.tenant, **by)
            if asked.enabled is not None:
                services.set_enabled(username, asked.enabled, **by)
            if asked.must_use_totp is not None:
                services.require_totp(username, asked.must_use_totp, **by)
        return self.answer(username)


class Password(UserApi):
    actions: ClassVar[Mapping[str, Action]] = {"POST": "users.edit"}

    @says(
        "user_reset_password",
        "A new one-time password, told once",
        {200: PasswordOut} | REUSED,
        IDEMPOTENCY_KEY,
        body=Reason,
    )
    @once
    def post(self, request: Request, username: str) -> Response:
        _, by = self.order(Reason)
        password = services.reset_password(username, **by)
        return Response({"username": username, "password": password}, headers=NO_STORE)


class Sessions(UserApi):
    actions: ClassVar[Mapping[str, Action]] = {"DELETE": "users.edit"}

    @says("user_end_sessions", "Sign somebody out everywhere", {204: None}, REASON)
    def delete(self, request: Request, username: str) -> Response:
        services.end_sessions(username, actor=self.actor(), reason=self.reason())
        return Response(status=204)


class SecondFactor(UserApi):
    actions: ClassVar[Mapping[str, Action]] = {"DELETE": "users.edit"}

    @says("user_reset_totp", "Take a lost authenticator away", {204: None}, REASON)
    def delete(self, request: Request, username: str) -> Response:
        services.reset_totp(username, actor=self.actor(), reason=self.reason())
        return Response(status=204)


class WrongPasswords(UserApi):
    actions: ClassVar[Mapping[str, Action]] = {"DELETE": "users.edit"}

    @says("user_unlock", "End a pause after wrong passwords", {204: None}, REASON)
    def delete(self, request: Request, username: str) -> Response:
        services.unlock(username, actor=self.actor(), reason=self.reason())
        return Response(status=204)


class UserToken(UserApi):
    actions: ClassVar[Mapping[str, Action]] = {"POST": "users.edit", "DELETE": "users.edit"}

    @says(
        "user_renew_token",
        "A person's new token, told once; the one before ends",
        {200: TokenWithSecret} | REUSED,
        IDEMPOTENCY_KEY,
        body=RenewToken,
    )
    @once
    def post(self, request: Request, username: str) -> Response:
        asked, by = self.order(RenewToken)
        return with_text(*services.renew_token(username, asked.expires_days, **by), 200)

    @says("user_revoke_token", "End a person's token", {204: None}, REASON)
    def delete(self, request: Request, username: str) -> Response:
        services.revoke_own_token(username, actor=self.actor(), reason=self.reason())
        return Response(status=204)


def with_text(token: AccessToken, text: str, status: int) -> Response:
    return Response({**TokenOut.of(token), "token": text}, status, headers=NO_STORE)


class Tokens(Api):
    """Of services. A person's is a part of the account."""

    actions: ClassVar[Mapping[str, Action]] = {"GET": "users.view", "POST": "users.edit"}

    @lists("token_list", "Service tokens", TokenOut, filters.Tokens)
    def get(self, request: Request) -> Response:
        return page(request, selectors.service_tokens(), filters.Tokens, TokenOut.of)

    @says(
        "token_create",
        "Make a service token with a role and an end, told once",
        {201: TokenWithSecret} | REUSED,
        IDEMPOTENCY_KEY,
        body=NewToken,
    )
    @once
    def post(self, request: Request) -> Response:
        asked, by = self.order(NewToken)
        made = services.create_service_token(
            asked.name, asked.role, asked.tenant, asked.expires_days, **by
        )
        return with_text(*made, 201)


class Token(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "users.view"}

    @says("token_read", "Read a service token", {200: TokenOut})
    def get(self, request: Request, public_id: str) -> Response:
        found = selectors.service_tokens().filter(public_id=public_id).first()
        if found is None:
            raise NotFound(f"there is no token {public_id!r}")
        return Response(TokenOut.of(found))


class RevokeToken(Api):
    actions: ClassVar[Mapping[str, Action]] = {"POST": "users.edit"}

    @says("token_revoke", "End a service token for good", {200: TokenOut}, body=Reason)
    def post(self, request: Request, public_id: str) -> Response:
        _, by = self.order(Reason)
        return Response(TokenOut.of(services.revoke_token(public_id, **by)))
