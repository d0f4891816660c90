"""GenAI metrics of calls that have ended. Labels are bounded as Prometheus's are (gateway.metrics):
tenants past the first thousand are `other`, models and lanes are policy's."""

from __future__ import annotations

from opentelemetry.metrics import Histogram, Meter

from gateway.errors import Outcome
from gateway.metrics import tenant_label
from gateway.otel.names import ERROR, LANE, MODEL, OPERATION, PROVIDER, PROVIDERS, TENANT, address
from gateway.run import Run

DURATION = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
FIRST = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
PER_TOKEN = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5]
TOKENS = [4.0**power for power in range(14)]

Labels = dict[str, str | int]


class Figures:
    def __init__(self, meter: Meter) -> None:
        def seconds(name: str, tells: str, buckets: list[float]) -> Histogram:
            return meter.create_histogram(
                name, "s", tells, explicit_bucket_boundaries_advisory=buckets
            )

        self._request = seconds(
            "gen_ai.server.request.duration", "Of a caller's request.", DURATION
        )
        self._first = seconds("gen_ai.server.time_to_first_token", "From its arrival.", FIRST)
        self._each = seconds(
            "gen_ai.server.time_per_output_token", "After the first one.", PER_TOKEN
        )
        self._operation = seconds(
            "gen_ai.client.operation.duration", "Of the part at engines.", DURATION
        )
        self._queue = seconds("fairlane.queue.duration", "From admission to a place.", DURATION)
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "As they are charged.",
            explicit_bucket_boundaries_advisory=TOKENS,
        )

    def note(self, operation: str, run: Run, ended_s: float, asked_s: float | None) -> None:
        """`ended_s` and `asked_s`, monotonic: when it was over, and when an engine was asked."""
        labels = _labels(operation, run)
        failed: Labels = {} if run.outcome is Outcome.OK else {ERROR: run.outcome.value}
        self._request.record(ended_s - run.began, {**labels, **failed})
        if run.place is None:
            return
        self._queue.record(run.place.queue_s, labels)
        at = {name: labels[name] for name in (OPERATION, PROVIDER, MODEL)}
        at |= address(run.endpoint)
        if asked_s is not None:
            self._operation.record(ended_s - asked_s, {**at, **failed})
        self._count(run, at | {TENANT: labels[TENANT]})
        if run.first_at is not None and run.outcome is Outcome.OK:
            self._first.record(run.first_at - run.began, labels)
            if (tokens := run.final_usage()[0].completion) > 1:
                self._each.record((ended_s - run.first_at) / (tokens - 1), labels)

    def _count(self, run: Run, labels: Labels) -> None:
        usage, _ = run.final_usage()
        self._tokens.record(usage.prompt, {**labels, "gen_ai.token.type": "input"})
        if usage.completion:
            self._tokens.record(usage.completion, {**labels, "gen_ai.token.type": "output"})


def _labels(operation: str, run: Run) -> Labels:
    plan = run.plan
    return {
        OPERATION: operation,
        PROVIDER: PROVIDERS[plan.pool.engine] if plan else "unknown",
        MODEL: plan.pool.model if plan else "unknown",  # a caller's own text is no label
        TENANT: tenant_label(run.who.tenant.name) if run.who else "unknown",
        LANE: run.lane or "unknown",
    }
