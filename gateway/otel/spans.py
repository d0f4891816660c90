"""The spans of one call: itself, its admission, its wait, and each engine that was asked.

The engine hears of the span that asks it (W3C `traceparent`), in the trace that the caller named,
if it named one; what the sampler leaves out is passed on all the same.
"""

from __future__ import annotations

import time

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.errors import Outcome
from gateway.otel.figures import Figures
from gateway.otel.names import (
    ERROR,
    LANE,
    MODEL,
    OPERATION,
    OPERATIONS,
    PROVIDER,
    PROVIDERS,
    TENANT,
    address,
)
from gateway.run import Run
from gateway.watch import Trace
from gateway.wire.headers import Headers
from gateway.wire.routes import ROUTES, Kind

FIELDS = (b"traceparent", b"tracestate")
_w3c = TraceContextTextMapPropagator()


class CallTelemetry:
    """`gateway.watch.Telemetry`, over any tracer and any meter."""

    def __init__(self, tracer: Tracer, figures: Figures) -> None:
        self._tracer = tracer
        self._figures = figures

    def begin(self, kind: Kind, headers: Headers) -> Trace:
        return CallTrace(self._tracer, self._figures, kind, named_by(headers))


class CallTrace(Trace):
    __slots__ = (
        "_asked_at",
        "_context",
        "_engine",
        "_figures",
        "_kind",
        "_root",
        "_step",
        "_tracer",
    )

    def __init__(self, tracer: Tracer, figures: Figures, kind: Kind, parent: Context) -> None:
        self._tracer = tracer
        self._figures = figures
        self._kind = kind
        path = ROUTES[kind].path
        self._root = tracer.start_span(
            f"POST {path}",
            parent,
            SpanKind.SERVER,
            {
                "http.request.method": "POST",
                "http.route": path,
                "url.path": path,
                OPERATION: OPERATIONS[kind],
            },
        )
        self._context = set_span_in_context(self._root, parent)
        self._step: Span | None = tracer.start_span("admission", self._context)
        self._engine: Span | None = None
        self._asked_at: float | None = None

    @property
    def id(self) -> str:
        return f"{self._root.get_span_context().trace_id:032x}"

    def admitted(self) -> None:
        self._end_step()
        self._step = self._tracer.start_span("queue", self._context)

    def placed(self) -> None:
        self._end_step()

    def asked(self, run: Run, headers: Headers) -> Headers:
        if self._asked_at is None:
            self._asked_at = time.monotonic()
        assert run.plan is not None
        pool, operation = run.plan.pool, OPERATIONS[self._kind]
        about = {
            OPERATION: operation,
            PROVIDER: PROVIDERS[pool.engine],
            MODEL: pool.model,
            **address(run.endpoint),
        }
        self._engine = self._tracer.start_span(
            f"{operation} {pool.model}", self._context, SpanKind.CLIENT, about
        )
        carrier: dict[str, str] = {}
        _w3c.inject(carrier, set_span_in_context(self._engine, self._context))
        kept = [header for header in headers if header[0] not in FIELDS]
        return [*kept, *((name.encode(), value.encode()) for name, value in carrier.items())]

    def failed(self, outcome: Outcome) -> None:
        if self._engine is not None:
            _mark(self._engine, outcome)
            self._engine.end()
            self._engine = None

    def ended(self, run: Run) -> None:
        if self._step is not None and run.outcome is not Outcome.OK:
            self._step.set_attribute(ERROR, run.outcome.value)
        self._end_step()
        if self._engine is not None:
            self._end_engine(self._engine, run)
        self._end_root(run)
        self._figures.note(OPERATIONS[self._kind], run, time.monotonic(), self._asked_at)

    def _end_step(self) -> None:
        if self._step is not None:
            self._step.end()
            self._step = None

    def _end_engine(self, span: Span, run: Run) -> None:
        usage, source = run.final_usage()
        span.set_attributes(
            {
                "gen_ai.request.stream": run.streamed,
                "gen_ai.usage.input_tokens": usage.prompt,
                "gen_ai.usage.output_tokens": usage.completion,
                "gen_ai.usage.cache_read.input_tokens": usage.cached,
                "gen_ai.response.finish_reasons": [run.finish],
                "fairlane.usage_source": source,
            }
        )
        if run.first_at is not None:
            since_s = time.monotonic() - run.first_at
            span.add_event("first token", timestamp=time.time_ns() - int(since_s * 1e9))
        _mark(span, run.outcome)
        span.end()

    def _end_root(self, run: Run) -> None:
        status = run.outcome.answer.status
        about: dict[str, str | int | float] = {
            "http.response.status_code": status,
            "fairlane.request_id": run.request_id,
            "fairlane.outcome": run.outcome.value,
            "fairlane.policy_revision": run.snapshot.revision,
            LANE: run.lane,
            "fairlane.throttle_reason": run.throttle_reason,
        }
        if run.who is not None:
            about |= {TENANT: run.who.tenant.name, "fairlane.application": run.who.application.name}
        if run.plan is not None:
            pool = run.plan.pool
            about |= {MODEL: pool.model, PROVIDER: PROVIDERS[pool.engine]}
        if run.place is not None:
            about["fairlane.queue_ms"] = run.place.queue_s * 1000
        self._root.set_attributes({name: value for name, value in about.items() if value != ""})
        if status >= 400:
            self._root.set_attribute(ERROR, run.outcome.value)
        if status >= 500:  # a server's span has not failed where its caller was at fault
            self._root.set_status(Status(StatusCode.ERROR))
        self._root.end()


def _mark(span: Span, outcome: Outcome) -> None:
    """An engine's own words could hold a prompt's: only the code is told."""
    if outcome is not Outcome.OK:
        span.set_attribute(ERROR, outcome.value)
        span.set_status(Status(StatusCode.ERROR))


def named_by(headers: Headers) -> Context:
    """The trace that a caller names; an empty context where it names none, or names it badly."""
    carrier: dict[str, str] = {}
    for name, value in headers:
        if name in FIELDS:
            text = value.decode("latin-1")
            known = carrier.get(name.decode())
            carrier[name.decode()] = text if known is None else f"{known},{text}"
    return _w3c.extract(carrier, Context()) if carrier else Context()
