"""The API's OpenAPI schema, and a page made from it that loads nothing from anywhere else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiYamlRenderer
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from tenants.api.base import Api
from tenants.core.permissions import Action

METHODS = ("get", "post", "put", "patch", "delete")


@cache
def schema() -> dict[str, Any]:
    """The addresses do not change while a process lives."""
    generator: Any = SchemaGenerator  # untyped
    found: dict[str, Any] = generator().get_schema(request=None, public=True)
    return found


class Schema(Api):
    actions: ClassVar[Mapping[str, Action]] = {"GET": "usage.view"}
    renderer_classes = [OpenApiJsonRenderer, OpenApiYamlRenderer]

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        return Response(schema())


def docs(request: HttpRequest) -> HttpResponse:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for address, methods in schema()["paths"].items():
        for method in METHODS:
            if method in methods:
                said = methods[method]
                groups[said["tags"][0]].append(operation(address, method, said))
    return render(request, "api_docs.html", {"groups": sorted(groups.items())})


def operation(address: str, method: str, said: Mapping[str, Any]) -> dict[str, Any]:
    body = said.get("requestBody", {}).get("content", {}).get("application/json", {})
    shown = [p for p in said.get("parameters", []) if p["in"] in ("query", "header")]
    return {
        "method": method.upper(),
        "address": address,
        "summary": said.get("summary", ""),
        "parameters": [p["name"] for p in shown],
        "body": body_of(method, body.get("schema", {})),
        "answers": " ".join(said["responses"]),
    }


def body_of(method: str, schema: Mapping[str, Any]) -> str:
    if method == "patch":
        return "what changes"
    return str(schema.get("$ref", "")).rpartition("/")[2]
