"""The zone in which a page writes its times: the viewer's, from a cookie that `live.js` sets.

Without the cookie, or with one that names no zone, it is UTC. Every page says which it is. The
admin API is not asked about cookies: what says no zone there is UTC.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.utils import timezone
from django.utils.decorators import sync_and_async_middleware

COOKIE = "tz"
UTC = ZoneInfo("UTC")


@lru_cache(maxsize=1)
def known_zones() -> frozenset[str]:
    return frozenset(available_timezones())


def zone_of(request: HttpRequest) -> tzinfo:
    name = request.COOKIES.get(COOKIE, "")
    return ZoneInfo(name) if name in known_zones() else UTC


@sync_and_async_middleware
def viewer_zone(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    if iscoroutinefunction(get_response):

        async def later(request: HttpRequest) -> Any:
            with timezone.override(zone_of(request)):
                return await get_response(request)

        return later

    def now(request: HttpRequest) -> Any:
        with timezone.override(zone_of(request)):
            return get_response(request)

    return now
