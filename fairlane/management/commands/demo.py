"""`demo`: mixed tenants' traffic against the running gateway."""

from __future__ import annotations

import asyncio
import os
import time
from argparse import ArgumentParser
from collections.abc import Callable
from itertools import cycle, zip_longest
from typing import Any

import httpx
from asgiref.sync import sync_to_async
from django.core.management.base import BaseCommand, CommandError

from fairlane.demo.traffic import (
    AGENT,
    BATCH,
    BURST,
    CHAT,
    CONTEXT,
    NOISY,
    USUAL_S,
    WRITING,
    Shape,
    Traffic,
    User,
    begins_s,
)
from tenants.core.snapshot import PolicySnapshot, TenantPolicy
from tenants.models import ApiKey
from tenants.selectors import load_snapshot
from tenants.services import Actor, create_key, revoke_key

KeyFor = Callable[[str, str | None], str]

# How many users of which shape each tenant has, in turn; the last tenant has the noisy ones.
MIXES: tuple[tuple[tuple[Shape, int], ...], ...] = (
    ((CHAT, 6), (BATCH, 2)),
    ((CONTEXT, 3), (AGENT, 3)),
    ((WRITING, 4),),
)
NOISY_USERS = 40
NOISY_BEGINS_AT = 1 / 3
BURSTS_BEGIN_AT = 1 / 2
KEY_IN_FORCE_S = 1.5  # the gateway promises one second


class Command(BaseCommand):
    help = "Send mixed tenants' traffic to the running gateway, for the dashboards to show."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--seconds", type=float, default=USUAL_S)
        port = os.environ.get("PORT", "8000")
        parser.add_argument("--url", default=f"http://127.0.0.1:{port}")
        parser.add_argument("--model", help="default: the first pool of the policy")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["seconds"] <= 0:
            raise CommandError(f"--seconds is {options['seconds']}; it takes more than 0")
        check_gateway(options["url"])
        snapshot = load_snapshot()
        model = options["model"] or next(iter(snapshot.pools), None)
        tenants = usable(snapshot, model)
        if model is None or not tenants:
            raise CommandError("the policy has no enabled tenant that may use a pool")
        actor = Actor(name="demo", source="command")
        keys: list[ApiKey] = []

        def key_for(tenant: str, application: str | None) -> str:
            key, secret = create_key(tenant, application, "demo traffic", actor=actor)
            keys.append(key)
            return secret

        try:
            users = users_of(tenants, key_for)
            self.stdout.write(
                f"  {options['seconds']:.0f} s of traffic; a noisy neighbour begins after "
                f"{begins_s(NOISY_BEGINS_AT, options['seconds']):.0f} s. Watch it: "
                f"{options['url']}/?range=15m"
            )
            time.sleep(KEY_IN_FORCE_S)
            traffic = Traffic(options["url"], model, options["seconds"])
            asyncio.run(traffic.run(users, sync_to_async(lambda: self.progress(traffic))))
            self.stdout.write("")
        except KeyboardInterrupt:
            self.stdout.write("\n  stopped; its keys are revoked")
        finally:
            for key in keys:
                revoke_key(key.public_id, actor=actor)

    def progress(self, traffic: Traffic) -> None:
        per_tenant: dict[str, list[int]] = {}
        for (tenant, status), count in traffic.ended.items():
            per_tenant.setdefault(tenant, [0, 0])[status != 200] += count
        parts = [f"{t}: {ok} answered, {no} refused" for t, (ok, no) in sorted(per_tenant.items())]
        self.stdout.write("\r  " + " · ".join(parts), ending="")
        self.stdout.flush()


def check_gateway(url: str) -> None:
    try:
        httpx.get(f"{url}/readyz", timeout=5).raise_for_status()
    except httpx.HTTPError as error:
        raise CommandError(
            f"no gateway is ready at {url} ({error}). Start one with `make run`, "
            "or name another with --url."
        ) from error


def usable(snapshot: PolicySnapshot, model: str | None) -> list[TenantPolicy]:
    return [t for t in snapshot.tenants.values() if t.enabled and model in t.models]


def users_of(tenants: list[TenantPolicy], key_for: KeyFor) -> list[User]:
    """Each shape of a tenant's mix belongs to one of its applications, while it has any left; the
    noisy ones belong to none, and so share the tenant's own lane."""
    users: list[User] = []
    for tenant, mix in zip(tenants, cycle(MIXES), strict=False):
        for (shape, count), application in zip_longest(mix, [*tenant.applications][: len(mix)]):
            users += [User(tenant.name, key_for(tenant.name, application), shape)] * count
    noisy = tenants[-1].name
    key = key_for(noisy, None)
    users += [User(noisy, key, NOISY, NOISY_BEGINS_AT)] * NOISY_USERS
    users.append(User(noisy, key, BURST, BURSTS_BEGIN_AT))
    return users
