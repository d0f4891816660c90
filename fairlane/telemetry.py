"""Settings of OpenTelemetry: its own variables, of which the SDK reads the rest by itself.

It is on where an endpoint is named, and costs nothing where none is. Only OTLP over HTTP is
spoken.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from django.core.exceptions import ImproperlyConfigured

from fairlane import environment as given

WEB = ("http", "https")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_{}_PROTOCOL")


@dataclass(frozen=True, slots=True)
class Telemetry:
    traces: bool = False
    metrics: bool = False


def telemetry() -> Telemetry:
    """Which of the two the gateway sends. OTEL_SDK_DISABLED=true sends nothing."""
    if given.flag("OTEL_SDK_DISABLED", default=False):
        return Telemetry()
    wanted = Telemetry(traces=_sent("TRACES"), metrics=_sent("METRICS"))
    if (wanted.traces or wanted.metrics) and not _is_installed():
        raise ImproperlyConfigured(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, and OpenTelemetry is not installed: "
            "pip install 'fairlane[otel]', or unset it"
        )
    return wanted


def _sent(signal: str) -> bool:
    own = f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"
    address = given.url("OTEL_EXPORTER_OTLP_ENDPOINT", "", WEB) or given.url(own, "", WEB)
    exporter = given.choice(f"OTEL_{signal}_EXPORTER", "otlp", ("otlp", "none"))
    if not address or exporter == "none":
        return False
    for name in PROTOCOLS:
        given.choice(name.format(signal), "http/protobuf", ("http/protobuf",))
    return True


def _is_installed() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False
