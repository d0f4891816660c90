"""What every address of the admin API does alike: permission, errors, ETags.

1. A method whose action is not named in `actions` is refused, whoever asks.
2. Every error is `{"detail": …, "errors": [{"field", "value", "message"}]}`.
3. An edit says which state it has seen, by If-Match; `*` says that any will do.
4. Every answer to a GET has an ETag, its own or one of its bytes; If-None-Match gets 304.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, ClassVar, TypeVar

from django.http import Http404, HttpResponseBase
from django.views.decorators.http import conditional_page
from rest_framework import exceptions, status
from rest_framework.parsers import JSONParser
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView, exception_handler

from tenants.api.pages import check_known
from tenants.api.schemas import Reason, read
from tenants.core.issue import Issue, short
from tenants.core.permissions import Action
from tenants.errors import Conflict, NotAllowed, NotFound, PolicyRefused
from tenants.gate import Viewer, viewer_of
from tenants.services import Actor, actor_for

Order = TypeVar("Order", bound=Reason)
NO_STORE = {"Cache-Control": "no-store"}  # of secrets, and of what is old at once


class Json(JSONParser):
    """Strictly what RFC 8259 says of JSON between systems: UTF-8 text whose objects name each
    field once. Of a field given twice only one value would count, unseen."""

    def parse(self, stream: Any, *_: Any, **__: Any) -> Any:
        try:
            text = str(stream.read(), "utf-8")
            found = json.loads(text, parse_constant=no_number, object_pairs_hook=each_once)
            json.dumps(found, ensure_ascii=False).encode()
        except RecursionError:
            raise exceptions.ParseError("the body is nested too deeply") from None
        except UnicodeEncodeError:
            message = (
                r"the body has half of a surrogate pair, such as \ud800; send whole characters"
            )
            raise exceptions.ParseError(message) from None
        except ValueError as error:
            raise exceptions.ParseError(f"the body is not JSON: {error}") from None
        return found


def no_number(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{short(name)} is given twice")
        found[name] = value
    return found


class MayDoThat(BasePermission):
    message = "Your role does not grant this."

    def has_permission(self, request: Request, view: APIView) -> bool:
        who = viewer_of(request.user)
        actions = getattr(view, "actions", {})
        action = actions.get("GET" if request.method == "HEAD" else request.method)
        if who is not None and action is None and any(map(who.can, actions.values())):
            raise exceptions.MethodNotAllowed(str(request.method))
        if who is None or action is None or not who.can(action):
            return False
        request.viewer = who  # type: ignore[attr-defined]
        return True


class Precondition(exceptions.APIException):
    status_code = status.HTTP_428_PRECONDITION_REQUIRED
    default_detail = 'Send If-Match with the ETag that you have read, or "*" to skip the check.'


class Changed(exceptions.APIException):
    status_code = status.HTTP_412_PRECONDITION_FAILED


class Api(APIView):
    actions: ClassVar[Mapping[str, Action]] = {}
    permission_classes = [MayDoThat]
    parser_classes = [Json]

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Callable[..., HttpResponseBase]:  # type: ignore[override]
        view: Callable[..., HttpResponseBase] = conditional_page(super().as_view(**initkwargs))
        return view

    @property
    def allowed_methods(self) -> list[str]:
        return list(self.actions)

    def get_exception_handler(self) -> Callable[..., Response | None]:
        return handle

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """A slip in `?reason=` must not cost the audit its reason, nor one in a filter tell of
        everything: what a call does not know in its query is refused."""
        super().initial(request, *args, **kwargs)
        handler = getattr(self, str(request.method).lower(), None)
        known = getattr(handler, "query", [] if request.method in SAFE_METHODS else ["reason"])
        if request.method != "OPTIONS":
            check_known(request.query_params, known)

    def who(self) -> Viewer:
        found: Viewer = self.request.viewer  # type: ignore[attr-defined]
        return found

    def actor(self) -> Actor:
        return actor_for(self.request.user, "api", str(self.request.META.get("REMOTE_ADDR", "")))

    def order(self, model: type[Order]) -> tuple[Order, dict[str, Any]]:
        """The body, and who orders it why, as every service takes it.

        Raises:
            Invalid: the body is wrong; with every fault.
        """
        asked = read(model, self.request.data)
        return asked, {"actor": self.actor(), "reason": asked.reason}

    def reason(self) -> str:
        """Of a body that is an object itself; bodies that are an order carry their own."""
        return str(self.request.query_params.get("reason", ""))

    def if_match(self) -> str | None:
        """The ETag that the caller has seen, without quotes; None for `*`."""
        given = self.request.headers.get("if-match", "").strip()
        if not given:
            raise Precondition
        return None if given == "*" else given.removeprefix("W/").strip('"')

    def check_seen(self, etag: str, what: str) -> None:
        """For what no service checks: inside a transaction that holds the row."""
        if self.if_match() not in (None, etag):
            raise Changed(f"{what} was changed by somebody else meanwhile")


def etag_of(values: object) -> str:
    """Of what an edit can change, as plain values."""
    return sha256(repr(values).encode()).hexdigest()[:16]


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    error = translated(error)
    if isinstance(error, PolicyRefused):
        errors = [issue_json(issue) for issue in error.issues]
        return refusal("The input is wrong; nothing was changed.", errors, 400)
    response = exception_handler(error, context)
    if response is not None:
        shaped = shape(response.data)
        response.data = shaped
    return response


def translated(error: Exception) -> Exception:
    match error:
        case Conflict():
            return Changed(str(error))
        case NotFound():
            return exceptions.NotFound(str(error))
        case NotAllowed():
            return exceptions.PermissionDenied(str(error))
        case Http404():
            return exceptions.NotFound()
    return error


def refusal(detail: str, errors: list[dict[str, Any]], status_code: int) -> Response:
    return Response({"detail": detail, "errors": errors}, status=status_code)


def issue_json(issue: Issue) -> dict[str, Any]:
    told = {"field": issue.path, "value": issue.value, "message": issue.message}
    return told if issue.line is None else {**told, "line": issue.line}


def shape(data: Any) -> dict[str, Any]:
    """DRF's own answers in this API's form."""
    if isinstance(data, Mapping) and "detail" in data:
        return {"detail": str(data["detail"]), "errors": []}
    errors = [
        {"field": field, "value": None, "message": str(message)}
        for field, messages in (data.items() if isinstance(data, Mapping) else [("", data)])
        for message in (messages if isinstance(messages, list) else [messages])
    ]
    return {"detail": "The input is wrong; nothing was changed.", "errors": errors}
