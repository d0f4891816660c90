"""The number of queries of a page does not depend on the number of rows: every address of the URL
conf is asked at two sizes. A new page or list is covered by being there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tenants import services
from tenants.models import ApiKey
from tests import builders
from tests.bench.seed_console import Size, seed
from tests.integration.console.routes import every

pytestmark = [pytest.mark.django_db, pytest.mark.store]

FEW = Size(tenants=2, applications=4, keys=4, audit=6, people=2, revisions=2, records=30)
MANY = Size(tenants=30, applications=90, keys=60, audit=120, people=30, revisions=6, records=150)
SLACK = 3  # "is there another page", and the like
MOST = 40


def addresses(**ids: str) -> Iterator[str]:
    """Of the admin site, its lists."""
    for route in every():
        if route.kind in ("page", "call") or (route.kind == "admin" and "<" not in route.address):
            yield route.at(**ids)
    yield from ("/usage/?tenant=acme", "/tenants/?sort=-tokens&state=waiting", "/keys/?state=all")


def counted(client: Client, route: str) -> tuple[int, list[str]]:
    with CaptureQueriesContext(connection) as queries:
        answer = client.get(route)
    assert answer.status_code < 500, route
    return len(queries), [query["sql"] for query in queries.captured_queries]


@pytest.fixture
def few(settings: Any) -> Client:
    settings.PASSWORD_HASHERS = builders.FAST_HASHERS
    seed(FEW)
    client = Client()
    client.force_login(builders.cast()["admin"])
    return client


def test_no_page_asks_more_of_the_database_where_there_is_more(few: Client) -> None:
    key = ApiKey.objects.filter(tenant__name="tenant-0001", revoked_at=None)[0].public_id
    builders.seed_samples(minutes=0)
    token, _ = services.create_service_token("ci", "operator", actor=builders.ROOT)
    ids = {"public_id": key, "token_id": token.public_id}
    for route in ("/", "/admin/"):
        few.get(route)  # what only a first request asks is not counted
    before = {route: counted(few, route)[0] for route in addresses(**ids)}
    seed(MANY)
    builders.seed_samples(minutes=0)
    faults = []
    for route, asked in before.items():
        now, sql = counted(few, route)
        if now > asked + SLACK or now > MOST:
            faults.append(f"{route}: {asked} queries, then {now}; the last: {sql[-1][:200]}")
    assert len(before) > 60
    assert not faults, "\n".join(faults)
