"""How far estimates were off, as a distribution per model: a signed, fading log-linear histogram.

1. An error is (actual − estimate) / actual: 0.25 says that a quarter of what came was not foreseen,
   −1 that twice as much was foreseen as came. It is never above 1 and has no lower end.
2. A bucket holds errors of one sign within 2% of its middle (`ACCURACY`), and one holds all that
   are under 0.1%; so a distribution is some hundred numbers, and merging two is adding them.
3. Recent requests weigh more: past `MOST_WEIGHT` every count is halved, so estimates that have
   become good look good.
4. At most `most_models` are remembered; those longest unused are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from math import ceil, exp, log

ACCURACY = 0.02
LEAST, MOST = 0.001, 1_000.0  # as parts of what came; past them the size is not told apart
LOG_GAMMA = log((1 + ACCURACY) / (1 - ACCURACY))
OFFSET = ceil(log(LEAST) / LOG_GAMMA) - 1  # the bucket of LEAST is number 1
MOST_WEIGHT = 2_000.0
FORGOTTEN = 0.1  # a bucket with less than that is dropped

Buckets = dict[int, float]  # signed bucket -> weight


class Errors:
    """One distribution. Buckets below zero hold estimates that were too high."""

    __slots__ = ("buckets", "total")

    def __init__(self, buckets: Mapping[int, float] | None = None) -> None:
        self.buckets: Buckets = dict(buckets or {})
        self.total = sum(self.buckets.values())

    def add(self, actual: float, estimate: float) -> None:
        """`actual` is above zero."""
        number = bucket((actual - estimate) / actual)
        self.buckets[number] = self.buckets.get(number, 0.0) + 1.0
        self.total += 1.0
        if self.total > MOST_WEIGHT:
            self._fade()

    def merge(self, other: Errors) -> None:
        """As if all that the other holds had been added here too."""
        for number, weight in other.buckets.items():
            self.buckets[number] = self.buckets.get(number, 0.0) + weight
        self.total += other.total
        while self.total > MOST_WEIGHT:
            self._fade()

    def quantile(self, q: float) -> float | None:
        """The size of the error, whatever its sign, that the part `q` (0..1) does not exceed; None
        when nothing was seen."""
        sizes: Buckets = {}
        for number, weight in self.buckets.items():
            sizes[abs(number)] = sizes.get(abs(number), 0.0) + weight
        return _quantile(sizes, q)

    def median(self) -> float | None:
        """Signed: above zero, estimates tend to be too low."""
        return _quantile(self.buckets, 0.5)

    def parts(self, edges: Iterable[float]) -> list[float]:
        """The part (0..1) of all errors below the first edge, between each two, and from the last
        on; as good as the buckets are fine."""
        limits = list(edges)
        found = [0.0] * (len(limits) + 1)
        for number, weight in self.buckets.items():
            middle = _middle(number)
            found[sum(middle >= limit for limit in limits)] += weight
        return [weight / self.total for weight in found] if self.total else found

    def _fade(self) -> None:
        halved = {number: weight / 2 for number, weight in self.buckets.items()}
        self.buckets = {n: weight for n, weight in halved.items() if weight >= FORGOTTEN}
        self.total = sum(self.buckets.values())


class ErrorBook:
    """The distributions of all models for one kind of estimate."""

    def __init__(self, most_models: int = 200) -> None:
        self._most = most_models
        self._models: OrderedDict[str, Errors] = OrderedDict()

    def add(self, model: str, actual: int, estimate: int) -> None:
        """Nothing where nothing came: there is no relative error then."""
        if actual <= 0:
            return
        errors = self._models.get(model)
        if errors is None:
            errors = self._models[model] = Errors()
            if len(self._models) > self._most:
                self._models.popitem(last=False)
        else:
            self._models.move_to_end(model)
        errors.add(actual, estimate)

    def models(self) -> dict[str, Errors]:
        return dict(self._models)

    def dump(self) -> dict[str, Buckets]:
        """Plain values, for `load`."""
        return {model: dict(errors.buckets) for model, errors in self._models.items()}

    def load(self, dumped: Mapping[str, Mapping[int, float]]) -> None:
        for model, buckets in dumped.items():
            self._models[model] = Errors(buckets)


def bucket(error: float) -> int:
    size = min(abs(error), MOST)
    if size < LEAST:
        return 0
    number = ceil(log(size) / LOG_GAMMA) - OFFSET
    return number if error > 0 else -number


def _middle(number: int) -> float:
    """Of the errors in a bucket, the one least far, relatively, from all of them."""
    if number == 0:
        return 0.0
    size = 2 * exp((abs(number) + OFFSET) * LOG_GAMMA) / (1 + exp(LOG_GAMMA))
    return size if number > 0 else -size


def _quantile(buckets: Buckets, q: float) -> float | None:
    rank = q * sum(buckets.values())
    for number in sorted(buckets):
        rank -= buckets[number]
        if rank <= 1e-9:
            return _middle(number)
    return None
