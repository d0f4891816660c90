"""The SDK behind the gateway's telemetry: built once, stopped within seconds whatever the collector
does. It reads OpenTelemetry's own environment variables by itself (endpoint, headers, sampler, …).
"""

from __future__ import annotations

import time
from threading import Thread

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Meter, NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NoOpTracerProvider, Tracer

from gateway.otel.figures import Figures
from gateway.otel.spans import CallTelemetry

SCOPE = "fairlane.gateway"
STOP_S = 2.0


class Sender:
    def __init__(self, gateway: str, *, traces: bool, metrics: bool) -> None:
        resource = about(gateway)
        to_traces = OTLPSpanExporter() if traces else None
        to_metrics = OTLPMetricExporter() if metrics else None
        self._exporters = [exporter for exporter in (to_traces, to_metrics) if exporter is not None]
        self._spans = BatchSpanProcessor(to_traces) if to_traces else None
        self._reader = PeriodicExportingMetricReader(to_metrics) if to_metrics else None
        self._parts = [part for part in (self._spans, self._reader) if part is not None]
        self.telemetry = CallTelemetry(self._tracer(resource), Figures(self._meter(resource)))

    def _tracer(self, resource: Resource) -> Tracer:
        if self._spans is None:
            return NoOpTracerProvider().get_tracer(SCOPE)
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(self._spans)
        return provider.get_tracer(SCOPE)

    def _meter(self, resource: Resource) -> Meter:
        if self._reader is None:
            return NoOpMeterProvider().get_meter(SCOPE)
        provider = MeterProvider([self._reader], resource=resource, shutdown_on_exit=False)
        return provider.get_meter(SCOPE)

    def stop(self) -> None:
        """Send what is left, for `STOP_S` at most; blocks. The SDK alone would wait for half a
        minute for a collector that is away."""
        leaving = [Thread(target=part.shutdown, daemon=True) for part in self._parts]
        for thread in leaving:
            thread.start()
        until = time.monotonic() + STOP_S
        for thread in leaving:
            thread.join(max(0.0, until - time.monotonic()))
        if any(thread.is_alive() for thread in leaving):
            for exporter in self._exporters:
                exporter.shutdown()  # its tries again end here


def about(gateway: str) -> Resource:
    """Which process this is; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES go first."""
    ours = Resource({"service.name": "fairlane", "service.instance.id": gateway})
    return Resource.create(dict(ours.merge(OTELResourceDetector().detect()).attributes))
