"""Errors outside any view of the admin API are told in its form too; elsewhere as a page.

`/api/docs/` is a page. An application with a wrong base URL is told so in the gateway's form.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import structlog
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.middleware.common import CommonMiddleware
from django.template.loader import render_to_string
from django.views import defaults

from fairlane import database_faults
from gateway.wire.routes import ROUTES

API, DOCS = "/api/", "/api/docs/"
GATEWAYS = {"/v1/models", *(route.path for route in ROUTES.values())}
Handler = Callable[..., HttpResponseBase]
AGAIN_S = "5"

log = structlog.get_logger("fairlane.console")


def is_api(request: HttpRequest) -> bool:
    return request.path.startswith(API) and not request.path.startswith(DOCS)


def told_by_api(page: Handler, status: int, detail: str) -> Handler:
    def handler(request: HttpRequest, exception: Any = None, **_: Any) -> HttpResponseBase:
        if is_api(request):
            text = detail.format(path=request.path)
            return JsonResponse({"detail": text, "errors": []}, status=status)
        return page(request) if status == 500 else page(request, exception)

    return handler


bad_request = told_by_api(defaults.bad_request, 400, "The request is malformed.")
forbidden = told_by_api(defaults.permission_denied, 403, "You may not do this.")
_not_found = told_by_api(
    defaults.page_not_found, 404, "There is nothing at {path}; /api/docs/ lists what is."
)


def not_found(request: HttpRequest, exception: Any = None) -> HttpResponseBase:
    if (message := misplaced(request.path)) is None:
        return _not_found(request, exception)
    told = {"type": "invalid_request_error", "param": None, "code": "invalid_request"}
    return JsonResponse({"error": {"message": message, **told}}, status=404)


def misplaced(path: str) -> str | None:
    """What helps an application whose call came to the console; None where it is no such call."""
    if path.startswith("/v1/") or path in GATEWAYS:
        return "This process serves the console only; applications call a gateway's address."
    if f"/v1{path}" in GATEWAYS:
        return f"There is no {path} here, but /v1{path}: the SDK's base URL lacks its /v1."
    return None


_failed = told_by_api(defaults.server_error, 500, "Something failed; the log says what.")


def server_error(request: HttpRequest, **_: Any) -> HttpResponseBase:
    """Django calls this while it handles the error, which it does not hand over."""
    error = sys.exc_info()[1]
    reason = database_faults.why(error)
    if reason is None:
        return _failed(request)
    log.error("database cannot be used", path=request.path, reason=reason, error=str(error))
    answer = _unusable(request, reason)
    answer["Retry-After"], answer["Cache-Control"] = AGAIN_S, "no-store"
    answer._has_been_logged = True  # type: ignore[attr-defined]  # Django's: no traceback then
    return answer


def _unusable(request: HttpRequest, reason: str) -> HttpResponseBase:
    if is_api(request):
        return JsonResponse({"detail": reason, "errors": []}, status=503)
    told = {"reason": reason, "path": request.get_full_path()}
    return HttpResponse(render_to_string("503.html", told), status=503)


class Slashes(CommonMiddleware):
    """Addresses end in a slash. A GET without one is redirected, as Django does it; on a 301 many
    a client forgets what it was about to POST, so the admin API answers 308 and says so.
    """

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        lost = response.status_code == 404 and request.method not in ("GET", "HEAD", "OPTIONS")
        if lost and is_api(request) and self.should_redirect_with_slash(request):
            place = request.get_full_path(force_append_slash=True)
            text = f"Nothing was done: addresses end in a slash. Send it to {place}"
            answer = JsonResponse({"detail": text, "errors": []}, status=308)
            answer["Location"] = place
            return answer
        return super().process_response(request, response)
