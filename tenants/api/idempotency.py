"""Orders that are carried out once, however often they are sent.

1. `Idempotency-Key` names one order of one caller for a day. The same order again gets the first
   answer; another one under that name is refused.
2. Row, change and answer are one transaction: of two at the same time the second waits for the
   first, and what failed was never ordered.
3. An answer may hold a secret, so it is sealed with a key made of SECRET_KEY and the caller's own
   Idempotency-Key, of which only a digest is stored.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import wraps
from typing import Any

from cryptography.fernet import Fernet
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac
from drf_spectacular.utils import OpenApiParameter
from rest_framework import exceptions
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from tenants.api.base import Api
from tenants.core.issue import refused
from tenants.models import RememberedAnswer

KEPT = timedelta(hours=24)
LONGEST = 200
HEADERS = ("ETag", "Location", "X-Fairlane-Revision", "Cache-Control")
IDEMPOTENCY_KEY = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="Any text of your own, such as a UUID. Sent again within 24 hours with the same "
    "body, the first answer comes again and nothing is done twice; with another body: 422.",
)

View = Callable[..., Response]


class Reused(exceptions.APIException):
    status_code = 422
    default_detail = "This Idempotency-Key was used for another order; use a new one."


def once(view: View) -> View:
    """A handler of a POST that honours `Idempotency-Key`."""

    @wraps(view)
    def answer(self: Api, *args: Any, **parts: Any) -> Response:
        given = self.request.headers.get("idempotency-key", "")
        if not given:
            return view(self, *args, **parts)
        if len(given) > LONGEST or not given.isprintable():
            raise refused("Idempotency-Key", given, f"it takes up to {LONGEST} plain characters")
        return Order(self, given).answer(lambda: view(self, *args, **parts))

    return answer


class Order:
    """One call under the name that its caller gave it."""

    def __init__(self, api: Api, given: str) -> None:
        request = api.request
        body = json.dumps(request.data, sort_keys=True, default=str)
        call = f"{request.method} {request.get_full_path()}\n{body}"
        self.caller = api.actor().name
        self.name = keyed("name", given).hex()
        self.call = keyed("call", f"{given}\n{call}").hex()  # a body may hold a password
        self.seal = Fernet(urlsafe_b64encode(keyed("seal", given)))

    def answer(self, carry_out: Callable[[], Response]) -> Response:
        forget()
        with transaction.atomic():
            row = self._begin()
            if row is not None:
                response = carry_out()
                row.sealed = self.seal.encrypt(_packed(response))
                row.save(update_fields=["sealed"])
                return response
        return self._again()

    def _begin(self) -> RememberedAnswer | None:
        """None where the order was given before; waits while it is being carried out."""
        try:
            with transaction.atomic():
                return RememberedAnswer.objects.create(
                    caller=self.caller, name=self.name, call=self.call
                )
        except IntegrityError:
            return None

    def _again(self) -> Response:
        row = RememberedAnswer.objects.get(caller=self.caller, name=self.name)
        if row.call != self.call:
            raise Reused
        told = json.loads(self.seal.decrypt(bytes(row.sealed)))
        headers = {**told["headers"], "Idempotent-Replayed": "true"}
        return Response(told["data"], told["status"], headers=headers)


def keyed(use: str, text: str) -> bytes:
    """A digest that nobody makes without SECRET_KEY; one of its own for each use."""
    return salted_hmac(f"fairlane.idempotency.{use}", text, algorithm="sha256").digest()


def forget() -> int:
    """Answers past their day; returns how many."""
    old = RememberedAnswer.objects.filter(at__lt=timezone.now() - KEPT)
    return old.delete()[0] if old.exists() else 0


def _packed(response: Response) -> bytes:
    headers: Mapping[str, str] = {n: response[n] for n in HEADERS if n in response}
    data = json.loads(JSONRenderer().render(response.data) or "null")
    return json.dumps({"status": response.status_code, "headers": headers, "data": data}).encode()
