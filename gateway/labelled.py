"""Counters and histograms that each call adds to: dictionaries by label values, which Prometheus'
client reads when somebody asks. Its own children cost ten times as much, for locks between threads;
these are one thread's, the event loop's, which also tells them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]


class LabelledCounter(Collector):
    """`counter.of[labels] += amount`, with a value for each name of `labels`."""

    def __init__(self, name: str, told: str, labels: Labels, registry: CollectorRegistry) -> None:
        self.of: defaultdict[Labels, float] = defaultdict(float)
        self._name, self._told, self._labelnames = name, told, labels
        registry.register(self)

    def describe(self) -> Iterable[CounterMetricFamily]:
        return self.collect()

    def collect(self) -> Iterable[CounterMetricFamily]:
        family = CounterMetricFamily(self._name, self._told, labels=self._labelnames)
        for values, amount in self.of.items():
            family.add_metric(values, amount)
        yield family

    def forget(self, is_gone: Callable[[Labels], bool]) -> None:
        for values in [values for values in self.of if is_gone(values)]:
            del self.of[values]


class LabelledHistogram(Collector):
    """`buckets` are upper bounds, the last one short of infinity."""

    def __init__(
        self,
        name: str,
        told: str,
        labels: Labels,
        buckets: tuple[float, ...],
        registry: CollectorRegistry,
    ) -> None:
        self._name, self._told, self._labelnames = name, told, labels
        self._buckets = buckets
        self._names = [*map(floatToGoString, buckets), "+Inf"]
        self._counts: defaultdict[Labels, list[int]] = defaultdict(lambda: [0] * len(self._names))
        self._sums: defaultdict[Labels, float] = defaultdict(float)
        registry.register(self)

    def observe(self, labels: Labels, amount: float) -> None:
        self._counts[labels][bisect_left(self._buckets, amount)] += 1
        self._sums[labels] += amount

    def describe(self) -> Iterable[HistogramMetricFamily]:
        return self.collect()

    def collect(self) -> Iterable[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._told, labels=self._labelnames)
        for values, counts in self._counts.items():
            so_far = [(each, sum(counts[: i + 1])) for i, each in enumerate(self._names)]
            family.add_metric(values, so_far, self._sums[values])
        yield family
