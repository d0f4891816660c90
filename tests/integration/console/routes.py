"""Every address of the URL conf, with what it says of who may open it: read from the views, so that
a new one is there by itself. One that says nothing is a fault of its own (`undeclared`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from django.urls import URLPattern, URLResolver, get_resolver
from rest_framework.views import APIView

from tenants.core.permissions import Action

METHODS = ("get", "post", "put", "patch", "delete")
PLACEHOLDER = re.compile(r"<[^>]+>")
Kind = Literal["page", "call", "public", "admin", "undeclared"]

# What stands for a placeholder: acme's, or what there is one of. A new placeholder needs a line.
VALUES = {
    "<str:tenant>": "acme",
    "<str:username>": "alice",
    "<int:number>": "1",
    "<str:release>": "1",
    "<path:budget_id>": "tier:gold/hourly",
    "<str:kind>": "budget_near",
    "<uuid:simulation_id>": "00000000-0000-4000-8000-000000000000",
}
NAMES = {
    "tiers": "gold",
    "lanes": "async-batch",
    "applications": "nightly",
    "pools": "demo-chat",
    "watch": "overview",
}


@dataclass(frozen=True, slots=True)
class Route:
    """`actions` is by method, as the view declares them."""

    address: str
    kind: Kind
    view: Any
    actions: Mapping[str, Action] = field(default_factory=dict)

    def at(self, **ids: str) -> str:
        """The address with acme's objects in it; `ids` are those that a test has made."""
        return f"/{PLACEHOLDER.sub(lambda found: self._value(found[0], ids), self.address)}"

    def _value(self, placeholder: str, ids: Mapping[str, str]) -> str:
        name = placeholder.strip("<>").partition(":")[2]
        if name == "public_id" and "tokens/" in self.address:
            name = "token_id"
        if name in ids:
            return ids[name]
        if name == "name":
            kinds = [NAMES[kind] for kind in NAMES if f"{kind}/" in self.address]
            return kinds[0] if kinds else "acme"
        assert placeholder in VALUES, f"{self.address}: say in VALUES what {placeholder} may be"
        return VALUES[placeholder]


def every() -> list[Route]:
    return list(_walk(get_resolver().url_patterns, ""))


def _walk(patterns: list[Any], prefix: str) -> Iterator[Route]:
    for pattern in patterns:
        address = prefix + str(pattern.pattern)
        if address.startswith("admin/"):  # a site of its own, with one check before all of it
            yield from _of_admin(pattern, address)
        elif isinstance(pattern, URLResolver):
            yield from _walk(pattern.url_patterns, address)
        elif isinstance(pattern, URLPattern):
            yield _declared(address, pattern.callback)


def _of_admin(site: Any, prefix: str) -> Iterator[Route]:
    for pattern in site.url_patterns:
        address = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _of_admin(pattern, address)
        elif "(?P" not in address:  # those look for an app's name, then end in the ones above
            yield Route(address, "admin", pattern.callback)


def _declared(address: str, view: Any) -> Route:
    if action := getattr(view, "action", None):
        methods = ("GET", "POST") if action.endswith(".edit") else ("GET",)
        return Route(address, "page", view, dict.fromkeys(methods, action))
    if getattr(view, "public", False):
        return Route(address, "public", view)
    api = getattr(view, "cls", None)
    if api is not None and issubclass(api, APIView):
        return Route(address, "call", view, getattr(api, "actions", {}))
    return Route(address, "undeclared", view)
