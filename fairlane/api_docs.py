"""The API's OpenAPI schema, and a page made from it that loads nothing from anywhere else."""

from __future__ import annotations

import json
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
JSON = "application/json"
Schema_ = Mapping[str, Any]


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
    told = {"groups": groups(), "types": types(), "host": request.build_absolute_uri("/")[:-1]}
    return render(request, "api_docs.html", told)


@cache
def groups() -> list[tuple[str, list[dict[str, Any]]]]:
    """Calls by tag."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for address, methods in schema()["paths"].items():
        for method in METHODS:
            if method in methods:
                said = methods[method]
                found[said["tags"][0]].append(operation(address, method, said))
    return sorted(found.items())


@cache
def types() -> list[tuple[str, list[dict[str, Any]]]]:
    """What bodies and answers are made of, but for pages: they are all alike."""
    parts: Mapping[str, Schema_] = schema()["components"]["schemas"]
    named = ((name, fields(part)) for name, part in sorted(parts.items()))
    return [(name, own) for name, own in named if own and not name.endswith("Page")]


def operation(address: str, method: str, said: Schema_) -> dict[str, Any]:
    body = content(said.get("requestBody", {}))
    answers = {code: content(answer) for code, answer in said["responses"].items()}
    parameters = [parameter(each) for each in said.get("parameters", [])]
    return {
        "id": said["operationId"],
        "method": method.upper(),
        "address": address,
        "summary": said.get("summary", ""),
        "description": said.get("description", ""),
        "parameters": sorted(parameters, key=lambda each: (not each["required"], each["name"])),
        "body": kind(body) if body else "",
        "fields": fields(resolved(body)),
        "answers": [
            (code, kind(answer) if answer else "nothing")
            for code, answer in sorted(answers.items())
        ],
        "example": example(method, parameters, resolved(body) if body else None),
    }


def parameter(said: Schema_) -> dict[str, Any]:
    return {
        "name": said["name"],
        "where": said["in"],
        "required": said.get("required", False),
        "kind": kind(said.get("schema", {})),
        "description": said.get("description", ""),
    }


def fields(part: Schema_) -> list[dict[str, Any]]:
    required = part.get("required", [])
    return [
        {
            "name": name,
            "kind": kind(said),
            "required": name in required,
            "default": json.dumps(said["default"]) if "default" in said else "",
            "description": said.get("description", ""),
        }
        for name, said in part.get("properties", {}).items()
    ]


def content(said: Schema_) -> Schema_:
    found: Schema_ = said.get("content", {}).get(JSON, {}).get("schema", {})
    return found


def resolved(said: Schema_) -> Schema_:
    if "$ref" not in said:
        return said
    found: Schema_ = schema()["components"]["schemas"][name_of(said)]
    return found


def name_of(said: Schema_) -> str:
    return str(said["$ref"]).rpartition("/")[2]


def kind(said: Schema_) -> str:
    """A type in words."""
    if "$ref" in said:
        return name_of(said)
    if several := said.get("anyOf") or said.get("oneOf") or said.get("allOf"):
        return " or ".join(dict.fromkeys(kind(each) for each in several))
    if "enum" in said:
        return " | ".join(map(str, said["enum"]))
    if "const" in said:
        return str(said["const"])
    if said.get("type") == "array":
        return f"list of {kind(said.get('items', {}))}"
    return str(said.get("format") or said.get("type") or "anything")


SAMPLES = {"string": "…", "number": 1, "integer": 1, "boolean": True, "array": [], "object": {}}


def example(method: str, parameters: list[dict[str, Any]], body: Schema_ | None) -> str:
    """The words of a curl command between `curl` and the address."""
    words = ["-H 'Authorization: Token …'"]
    if method != "get":
        words.insert(0, f"-X {method.upper()}")
    if any(each["name"] == "If-Match" for each in parameters):
        words.append("-H 'If-Match: *'")
    if body is not None:
        needed = {name: sample(body["properties"][name]) for name in body.get("required", [])}
        words += [f"-H 'Content-Type: {JSON}'", f"-d '{json.dumps(needed, ensure_ascii=False)}'"]
    return " ".join(words)


def sample(said: Schema_) -> Any:
    said = resolved(said)
    if "anyOf" in said:
        return sample(said["anyOf"][0])
    if "enum" in said or "const" in said:
        return said.get("const", said.get("enum", [None])[0])
    return SAMPLES.get(str(said.get("type")), "…")
