"""Keys: a tenant's admin reaches its own tenant's, an admin all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from django.db import transaction
from rest_framework.request import Request
from rest_framework.response import Response

from tenants import selectors, services
from tenants.api import filters
from tenants.api.base import NO_STORE, Api, etag_of
from tenants.api.described import IF_MATCH, RACES, REUSED, lists, says
from tenants.api.idempotency import IDEMPOTENCY_KEY, once
from tenants.api.pages import page
from tenants.api.schemas import (
    EditKey,
    KeyOut,
    KeyWithSecret,
    NewKey,
    Reason,
    RevokedOut,
    RevokeKeys,
    RotateKey,
)
from tenants.core.issue import refused
from tenants.core.permissions import Action
from tenants.errors import NotFound
from tenants.models import ApiKey
from tenants.selectors import budget_of
from tenants.services.state import bump


def with_secret(key: ApiKey, secret: str, status: int) -> Response:
    told = {**KeyOut.of(key), "key": secret}
    return Response(told, status, headers=NO_STORE)


def etag(key: ApiKey) -> str:
    """Of what an edit can change; not of when it was used last."""
    fields = [getattr(key, field) for field in ("public_id", "expires_at", "revoked_at")]
    return etag_of([*fields, *map(budget_of, key.budgets.all())])


class KeyApi(Api):
    def answer(self, key: ApiKey) -> Response:
        return Response(KeyOut.of(key), headers={"ETag": f'"{etag(key)}"'})

    def own(self, public_id: str, action: Action) -> ApiKey:
        """Another tenant's key is as unknown as one that does not exist."""
        key = selectors.keys_by_id([public_id]).first()
        if key is None or not self.who().can_for(action, key.tenant.name):
            raise NotFound("there is no such key")
        return key


class Keys(KeyApi):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "keys.view", "POST": "keys.edit"}

    @lists("key_list", "List keys", KeyOut, filters.Keys)
    def get(self, request: Request) -> Response:
        rows = selectors.keys(self.who().tenant if self.who().confined else None)
        return page(request, rows.prefetch_related("budgets"), filters.Keys, KeyOut.of)

    @says("key_create", "Create a key", {201: KeyWithSecret} | REUSED, IDEMPOTENCY_KEY, body=NewKey)
    @once
    def post(self, request: Request) -> Response:
        asked, by = self.order(NewKey)
        self.who().require("keys.edit", asked.tenant)
        own = [budget.model_dump(exclude_none=True) for budget in asked.budgets]
        key, secret = services.create_key(
            asked.tenant, asked.application, asked.name, asked.expires_days, budgets=own, **by
        )
        return with_secret(key, secret, 201)


class Key(KeyApi):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "keys.view", "PATCH": "keys.edit"}

    @says("key_read", "Read a key", {200: KeyOut})
    def get(self, request: Request, public_id: str) -> Response:
        return self.answer(self.own(public_id, "keys.view"))

    @says(
        "key_change",
        "Change when a key expires, or its own budgets",
        {200: KeyOut} | RACES,
        IF_MATCH,
        body=EditKey,
    )
    def patch(self, request: Request, public_id: str) -> Response:
        self.own(public_id, "keys.edit")
        self.if_match()
        asked, by = self.order(EditKey)
        given = asked.model_fields_set - {"reason"}
        if not given:
            raise refused("body", None, "it takes expires_days, budgets, or both")
        with transaction.atomic():
            bump()  # every change of a key waits for this row
            self.check_seen(etag(self.own(public_id, "keys.edit")), f"key {public_id!r}")
            if "expires_days" in given:
                services.expire_key(public_id, asked.expires_days, **by)
            if "budgets" in given:
                own = [budget.model_dump(exclude_none=True) for budget in asked.budgets]
                services.set_key_budgets(public_id, own, **by)
        return self.answer(self.own(public_id, "keys.edit"))


class Rotate(KeyApi):
    actions: ClassVar[Mapping[str, Action]] = {"POST": "keys.edit"}

    @says(
        "key_rotate",
        "Give a key a new secret",
        {200: KeyWithSecret} | REUSED,
        IDEMPOTENCY_KEY,
        body=RotateKey,
    )
    @once
    def post(self, request: Request, public_id: str) -> Response:
        self.own(public_id, "keys.edit")
        asked, by = self.order(RotateKey)
        return with_secret(*services.rotate_key(public_id, asked.grace_hours, **by), 200)


class Revoke(KeyApi):
    actions: ClassVar[Mapping[str, Action]] = {"POST": "keys.edit"}

    @says("key_revoke", "Refuse a key from now on", {200: KeyOut}, body=Reason)
    def post(self, request: Request, public_id: str) -> Response:
        self.own(public_id, "keys.edit")
        _, by = self.order(Reason)
        return Response(KeyOut.of(services.revoke_key(public_id, **by)))


class RevokeMany(KeyApi):
    actions: ClassVar[Mapping[str, Action]] = {"POST": "keys.edit"}

    @says("key_revoke_many", "Refuse many keys, all or none", {200: RevokedOut}, body=RevokeKeys)
    def post(self, request: Request) -> Response:
        asked, by = self.order(RevokeKeys)
        with transaction.atomic():
            told = [KeyOut.of(services.revoke_key(each, **by)) for each in dict.fromkeys(asked.ids)]
        return Response({"results": told})
