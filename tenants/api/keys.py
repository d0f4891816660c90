"""Keys: a tenant's admin reaches its own tenant's, an admin all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from tenants import selectors, services
from tenants.api.base import Api
from tenants.api.described import FAULTS, many
from tenants.api.schemas import KeyOut, KeyWithSecret, NewKey, Reason, RotateKey, key_out, read
from tenants.core.permissions import Action
from tenants.errors import NotFound
from tenants.models import ApiKey

TENANT = OpenApiParameter("tenant", str, description="Only this tenant's.")


def with_secret(key: ApiKey, secret: str, status: int) -> Response:
    told = {**key_out(key).model_dump(), "key": secret}
    return Response(told, status, headers={"Cache-Control": "no-store"})


class Keys(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "keys.view", "POST": "keys.edit"}

    @extend_schema(
        operation_id="key_list",
        summary="List keys",
        tags=["keys"],
        parameters=[TENANT],
        responses={200: many(KeyOut)} | FAULTS,
    )
    def get(self, request: Request) -> Response:
        who = self.who()
        asked = request.query_params.get("tenant") or None
        found = selectors.keys(who.tenant if who.confined else asked)
        return Response([key_out(key).model_dump() for key in found])

    @extend_schema(
        operation_id="key_create",
        summary="Create a key",
        tags=["keys"],
        request=NewKey,
        responses={201: KeyWithSecret} | FAULTS,
    )
    def post(self, request: Request) -> Response:
        asked = read(NewKey, request.data)
        self.who().require("keys.edit", asked.tenant)
        key, secret = services.create_key(
            asked.tenant,
            asked.application,
            asked.name,
            asked.expires_days,
            budgets=[budget.model_dump(exclude_none=True) for budget in asked.budgets],
            actor=self.actor(),
            reason=asked.reason,
        )
        return with_secret(key, secret, 201)


class OneKey(Api):
    def own(self, public_id: str, action: Action) -> ApiKey:
        key = selectors.keys().filter(public_id=public_id).first()
        if key is None:
            raise NotFound(f"there is no key {public_id!r}")
        self.who().require(action, key.tenant.name)
        return key


class Key(OneKey):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "keys.view"}

    @extend_schema(
        operation_id="key_read",
        summary="Read a key",
        tags=["keys"],
        responses={200: KeyOut} | FAULTS,
    )
    def get(self, request: Request, public_id: str) -> Response:
        return Response(key_out(self.own(public_id, "keys.view")).model_dump())


class Rotate(OneKey):
    actions: ClassVar[Mapping[str, Action]] = {"POST": "keys.edit"}

    @extend_schema(
        operation_id="key_rotate",
        summary="Give a key a new secret",
        tags=["keys"],
        request=RotateKey,
        responses={200: KeyWithSecret} | FAULTS,
    )
    def post(self, request: Request, public_id: str) -> Response:
        self.own(public_id, "keys.edit")
        asked = read(RotateKey, request.data)
        key, secret = services.rotate_key(
            public_id, asked.grace_hours, actor=self.actor(), reason=asked.reason
        )
        return with_secret(key, secret, 200)


class Revoke(OneKey):
    actions: ClassVar[Mapping[str, Action]] = {"POST": "keys.edit"}

    @extend_schema(
        operation_id="key_revoke",
        summary="Refuse a key from now on",
        tags=["keys"],
        request=Reason,
        responses={200: KeyOut} | FAULTS,
    )
    def post(self, request: Request, public_id: str) -> Response:
        self.own(public_id, "keys.edit")
        asked = read(Reason, request.data)
        key = services.revoke_key(public_id, actor=self.actor(), reason=asked.reason)
        return Response(key_out(key).model_dump())
