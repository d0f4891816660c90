"""Calls that schemathesis makes up from the admin API's own schema, fitting and not: none is a
failure of ours, and each is answered by a status that the schema names."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import requests
import schemathesis
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.transport.requests import REQUESTS_TRANSPORT

from fairlane.api_docs import schema
from tests.fuzz import MANY

pytestmark = [pytest.mark.django_db, pytest.mark.store]

EACH = 4  # calls of each operation that fit its schema, and that do not
HERE = "http://testserver"


def operations() -> list[Any]:
    made = schemathesis.openapi.from_dict(schema())
    return [found.ok() for found in made.get_all_operations()]


def send(client: Client, case: Any) -> Any:
    """By Django's own client, which keeps to the test's transaction."""
    made = requests.Request(**REQUESTS_TRANSPORT.serialize_case(case, base_url=HERE)).prepare()
    assert made.url is not None
    body = made.body.encode() if isinstance(made.body, str) else made.body or b""
    return client.generic(
        case.method,
        made.url.removeprefix(HERE),
        body,
        made.headers.get("content-type", "application/json"),
        headers={name: value for name, value in made.headers.items() if name[:7] != "Content"},
    )


def judge(client: Client, operation: Any, mode: GenerationMode) -> int:
    """So many calls of one operation were answered as they should be."""
    called = 0

    @settings(
        max_examples=EACH * MANY,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        database=None,
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def one(case: Any) -> None:
        nonlocal called
        answer = send(client, case)
        called += 1
        told = (operation.label, case.path_parameters, case.query, case.body)
        assert answer.status_code < 500, (told, answer.content[:500])
        assert str(answer.status_code) in operation.definition.raw["responses"], (told, answer)

    with suppress(Unsatisfiable):  # of a few there is nothing odd to make
        one()
    return called


def test_no_made_up_call_fails(admin: Client) -> None:
    admin.raise_request_exception = False
    called = 0
    for operation in operations():
        called += judge(admin, operation, GenerationMode.POSITIVE)
        if operation.query or operation.body:  # a name in an address alone is any text
            called += judge(admin, operation, GenerationMode.NEGATIVE)
    assert called > 400
