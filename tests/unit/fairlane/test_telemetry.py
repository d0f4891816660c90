"""OpenTelemetry's own variables: what switches it on, and what stops the start."""

from __future__ import annotations

import re

import pytest
from django.core.exceptions import ImproperlyConfigured

from fairlane import telemetry
from fairlane.telemetry import Telemetry

ALL = "OTEL_EXPORTER_OTLP_ENDPOINT"
URL = "http://127.0.0.1:4318"
OFF = Telemetry()


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ALL, "OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, OFF),
        ({ALL: ""}, OFF),
        ({ALL: URL}, Telemetry(traces=True, metrics=True)),
        ({ALL: URL, "OTEL_SDK_DISABLED": "true"}, OFF),
        ({ALL: URL, "OTEL_METRICS_EXPORTER": "none"}, Telemetry(traces=True)),
        ({ALL: URL, "OTEL_TRACES_EXPORTER": "none"}, Telemetry(metrics=True)),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{URL}/v1/traces"}, Telemetry(traces=True)),
    ],
)
def test_an_endpoint_switches_it_on(
    given: dict[str, str], wanted: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert telemetry.telemetry() == wanted


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({ALL: "collector:4318"}, "OTEL_EXPORTER_OTLP_ENDPOINT has scheme 'collector'; it takes"),
        (
            {ALL: URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'; it takes one of: http/protobuf",
        ),
        (
            {ALL: URL, "OTEL_TRACES_EXPORTER": "zipkin"},
            "OTEL_TRACES_EXPORTER is 'zipkin'; it takes one of: otlp, none",
        ),
        ({ALL: URL, "OTEL_SDK_DISABLED": "maybe"}, "OTEL_SDK_DISABLED is 'maybe'; it takes"),
    ],
)
def test_what_it_does_not_take_stops_the_start(
    given: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ImproperlyConfigured, match=re.escape(said)):
        telemetry.telemetry()


def test_an_endpoint_without_the_library_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(ALL, URL)
    monkeypatch.setattr(telemetry, "find_spec", lambda name: None)
    with pytest.raises(ImproperlyConfigured, match=re.escape("pip install 'fairlane[otel]'")):
        telemetry.telemetry()
