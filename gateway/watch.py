"""What may look on while a call is served: the seam to OpenTelemetry, which most gateways have off.

`gateway.otel` is loaded only where it is on; the trace here is everybody else's, and does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gateway.errors import Outcome
    from gateway.run import Run
    from gateway.wire.headers import Headers
    from gateway.wire.routes import Kind


class Trace:
    """Of one call. Its methods are called in this order; `asked` and `failed` for each engine."""

    __slots__ = ()

    @property
    def id(self) -> str:
        """The trace's id as W3C writes it, for logs; empty where there is none."""
        return ""

    def admitted(self) -> None:
        """Its checks are passed: it takes its place in the queue."""

    def placed(self) -> None:
        """It has left the queue, with a place or without."""

    def asked(self, run: Run, headers: Headers) -> Headers:
        """Its engine is asked; what that is to get as headers."""
        return headers

    def failed(self, outcome: Outcome) -> None:
        """That engine failed before the caller had anything of its answer."""

    def ended(self, run: Run) -> None:
        """The caller has its answer, or is gone."""


UNWATCHED = Trace()


class Telemetry(Protocol):
    def begin(self, kind: Kind, headers: Headers) -> Trace:
        """`headers` are the caller's; they may name a trace that this call belongs to."""
