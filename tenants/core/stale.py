"""What a stored document says that is refused today.

An older version took it, so it stays in force until somebody changes the policy: any change of it
must mend this first. A time zone that is refused counts as UTC; an endpoint is still asked, as far
as a connection to it is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tenants.core.checks import endpoint_url, engine_variable, zone_name
from tenants.core.document import Document, canonical
from tenants.core.issue import Issue, Loc, path_text, short, told

Said = tuple[Loc, str, Callable[[str], str]]  # where, what, and what takes it


def refused_today(document: Document) -> list[Issue]:
    faults = [
        (loc, value, fault)
        for loc, value, taken in _said(document)
        if (fault := _fault(taken, value))
    ]
    if not faults:
        return []
    data = canonical(document)
    return [
        Issue(path_text(data, loc), None, told(value), f"{loc[-1]} is {short(value)}: {fault}", loc)
        for loc, value, fault in faults
    ]


def _said(document: Document) -> Iterator[Said]:
    for position, pool in enumerate(document.pools):
        for each, endpoint in enumerate(pool.endpoints):
            yield ("pools", position, "endpoints", each, "url"), endpoint.url, endpoint_url
        if pool.api_key_env is not None:
            yield ("pools", position, "api_key_env"), pool.api_key_env, engine_variable
    for position, tenant in enumerate(document.tenants):
        yield ("tenants", position, "timezone"), tenant.timezone, zone_name


def _fault(taken: Callable[[str], str], value: str) -> str:
    try:
        taken(value)
    except ValueError as error:
        return str(error)
    return ""
