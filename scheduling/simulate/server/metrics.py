"""vLLM's metrics by their names. Gauges and counters are read from the engine when scraped."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from scheduling.simulate.engine import Engine
from scheduling.simulate.sequence import Sequence

LABELS = ("model_name", "engine")
SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5)
LONG = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 240.0, 480.0)
EACH = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)

GAUGES: dict[str, tuple[str, Callable[[Engine], float]]] = {
    "vllm:num_requests_running": ("Sequences in the batch", lambda e: e.running),
    "vllm:num_requests_waiting": ("Sequences in the queue", lambda e: e.waiting),
    "vllm:kv_cache_usage_perc": ("KV blocks in use, 0 to 1", lambda e: e.kv.usage),
}
COUNTERS: dict[str, tuple[str, Callable[[Engine], float]]] = {
    "vllm:num_preemptions": ("Sequences preempted", lambda e: e.totals.preemptions),
    "vllm:prefix_cache_queries": (
        "Tokens looked up in the prefix cache",
        lambda e: e.totals.prefix_queries,
    ),
    "vllm:prefix_cache_hits": ("Tokens found there", lambda e: e.totals.prefix_hits),
    "vllm:prompt_tokens": ("Prompt tokens, cached ones too", lambda e: e.totals.prompt),
    "vllm:prompt_tokens_cached": (
        "Prompt tokens from the cache",
        lambda e: e.totals.prompt_cached,
    ),
    "vllm:generation_tokens": ("Tokens generated", lambda e: e.totals.generated),
}


class Metrics:
    def __init__(self, engine: Engine, model: str, speed: float) -> None:
        self._engine = engine
        self._labels = (model, "0")
        self._speed = speed
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        self._success = Counter(
            "vllm:request_success",
            "Requests that ended",
            (*LABELS, "finished_reason"),
            registry=self.registry,
        )
        self._rejections = Counter(
            "vllm:admission_rejections",
            "Requests refused by the admission valve",
            (*LABELS, "reason"),
            registry=self.registry,
        )
        for reason in ("stop", "length", "abort", "error"):
            self._success.labels(*self._labels, reason)
        self._ttft = self._histogram("vllm:time_to_first_token_seconds", SECONDS)
        self._e2e = self._histogram("vllm:e2e_request_latency_seconds", LONG)
        self._queued = self._histogram("vllm:request_queue_time_seconds", LONG)
        self._each = self._histogram("vllm:request_time_per_output_token_seconds", EACH)

    def _histogram(self, name: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(name, name, LABELS, registry=self.registry, buckets=buckets)
        return histogram.labels(*self._labels)

    def finished(self, sequence: Sequence, reason: str) -> None:
        """Those aborted don't come here: vLLM counts them in no metric of this kind."""
        self._success.labels(*self._labels, reason).inc()
        arrival, ended = sequence.request.arrival, sequence.ended_at or 0.0
        first = sequence.first_token_at or ended
        self._ttft.observe((first - arrival) / self._speed)
        self._e2e.observe((ended - arrival) / self._speed)
        self._queued.observe(((sequence.scheduled_at or 0.0) - arrival) / self._speed)
        if sequence.generated > 1:
            self._each.observe((ended - first) / self._speed / (sequence.generated - 1))

    def refused(self) -> None:
        self._rejections.labels(*self._labels, "max_num_queued_reqs").inc()

    def collect(self) -> Iterator[Metric]:
        for name, (text, read) in GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=LABELS)
            gauge.add_metric(self._labels, read(self._engine))
            yield gauge
        for name, (text, read) in COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=LABELS)
            counter.add_metric(self._labels, read(self._engine))
            yield counter
        yield self._cache_config()

    def _cache_config(self) -> Metric:
        profile = self._engine.profile
        info = GaugeMetricFamily(
            "vllm:cache_config_info", "KV cache", labels=("engine", "block_size", "num_gpu_blocks")
        )
        info.add_metric(("0", str(profile.block_size), str(profile.num_gpu_blocks)), 1.0)
        return info

    def text(self) -> bytes:
        return generate_latest(self.registry)
