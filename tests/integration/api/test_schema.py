"""What the API says of itself: OpenAPI 3.1 that validates, and names everything there is."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from openapi_spec_validator import OpenAPIV31SpecValidator

from tests.integration.console.routes import every

pytestmark = [pytest.mark.django_db, pytest.mark.store]


@pytest.fixture
def schema(admin: Client) -> dict[str, Any]:
    found: dict[str, Any] = admin.get("/api/schema/?format=json").json()
    return found


def test_it_is_valid_openapi_3_1(schema: dict[str, Any]) -> None:
    assert schema["openapi"].startswith("3.1")
    OpenAPIV31SpecValidator(schema).validate()


def test_it_names_every_address(schema: dict[str, Any]) -> None:
    routes = {route.address for route in every() if route.address.startswith("api/v1/")}
    shown = {re.sub(r"<\w+:(\w+)>", r"{\1}", f"/{route}") for route in routes}
    assert shown == set(schema["paths"])


def test_every_call_has_a_name_a_summary_and_its_own_refusals(schema: dict[str, Any]) -> None:
    calls = [call for path in schema["paths"].values() for call in path.values()]
    names = [call["operationId"] for call in calls]
    assert len(names) == len(set(names))
    for call in calls:
        assert call["summary"], call["operationId"]
        assert {"400", "401", "403", "404"} <= call["responses"].keys(), call["operationId"]


def test_edits_say_that_they_need_if_match(schema: dict[str, Any]) -> None:
    for path, calls in schema["paths"].items():
        for method in ("put", "patch"):
            if method in calls:
                needed = {p["name"] for p in calls[method]["parameters"] if p.get("required")}
                assert "If-Match" in needed, path
                assert {"412", "428"} <= calls[method]["responses"].keys(), path


def test_unknown_fields_are_no_part_of_any_body(schema: dict[str, Any]) -> None:
    parts = schema["components"]["schemas"]
    for path, calls in schema["paths"].items():
        for method, call in calls.items():
            body = call.get("requestBody", {}).get("content", {}).get("application/json", {})
            name = body.get("schema", {}).get("$ref", "").rpartition("/")[2]
            if name:
                assert parts[name]["additionalProperties"] is False, (method, path)
