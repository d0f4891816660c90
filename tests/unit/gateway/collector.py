"""An OTLP collector on a loopback socket: what it was sent, as the protocol's own messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

MESSAGES: dict[str, Any] = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
}


@dataclass
class Span:
    name: str
    kind: int
    trace: str
    id: str
    parent: str
    failed: bool
    about: dict[str, Any]
    events: list[str]


@dataclass
class Collector:
    url: str = ""
    raw: list[bytes] = field(default_factory=list)
    received: list[tuple[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    goes_on: Event = field(default_factory=Event)  # until then it takes all and answers nothing

    @property
    def spans(self) -> list[Span]:
        return [
            span_of(span)
            for path, message in self.received
            if path == "/v1/traces"
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def named(self, name: str) -> Span:
        [found] = [span for span in self.spans if span.name == name]
        return found

    @property
    def service(self) -> dict[str, Any]:
        [*_, (_, message)] = [pair for pair in self.received if pair[0] == "/v1/traces"]
        return told(message.resource_spans[0].resource.attributes)

    def points(self, name: str) -> list[tuple[dict[str, Any], float, int]]:
        """Of a histogram: attributes, sum, count."""
        return [
            (told(point.attributes), point.sum, point.count)
            for path, message in self.received
            if path == "/v1/metrics"
            for resource in message.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.histogram.data_points
        ]


def span_of(span: Any) -> Span:
    return Span(
        span.name,
        span.kind,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.status.code == 2,
        told(span.attributes),
        [event.name for event in span.events],
    )


def told(attributes: Any) -> dict[str, Any]:
    return {pair.key: value_of(pair.value) for pair in attributes}


def value_of(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [value_of(each) for each in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def collector(answers: bool = True) -> Iterator[Collector]:
    made = Collector()
    if answers:
        made.goes_on.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            made.goes_on.wait(30)
            made.raw.append(body)
            made.headers.append(dict(self.headers))
            made.received.append((self.path, MESSAGES[self.path].FromString(body)))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield made
    finally:
        made.goes_on.set()
        server.shutdown()
        thread.join()
        server.server_close()
