"""Expected output tokens of a request: a running prediction per (application, model).

1. `max_tokens` is a ceiling, never the prediction (scheduling.md, Service).
2. A new pair begins at its model's mean, a new model at `PRIOR_TOKENS`; that belief weighs as much
   as `PRIOR_WEIGHT` requests.
3. The noisier a pair, the less is predicted: a poor predictor is worse than none, and what streams
   past the prediction is charged as it comes.
4. At most `most_pairs` are remembered; those longest unused are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice

PRIOR_TOKENS = 256.0
PRIOR_WEIGHT = 2.0
LONGEST_MEMORY = 50  # requests; older ones fade
NOISE_ALLOWED = 0.75  # of the mean; an exponential distribution's is 0.74


Pair = tuple[str, str]  # application, model


@dataclass(slots=True)
class Tally:
    """A mean of lengths and a mean of how far predictions were off, both fading."""

    count: int = 0
    mean: float = 0.0
    error: float = 0.0

    def observe(self, tokens: float, predicted: float) -> None:
        self.count = min(self.count + 1, LONGEST_MEMORY)
        self.mean += (tokens - self.mean) / self.count
        self.error += (abs(tokens - predicted) - self.error) / self.count


class OutputPredictor:
    def __init__(self, most_pairs: int = 10_000) -> None:
        self._most = most_pairs
        self._pairs: OrderedDict[Pair, Tally] = OrderedDict()
        self._models: OrderedDict[Pair, Tally] = OrderedDict()  # application: ""

    def expect(self, application: str, model: str, max_tokens: int | None) -> int:
        """`application` is any text that names it among all tenants' applications, not empty."""
        expected = self._believed(application, model)
        noise = self.error_tokens(application, model)
        if noise > NOISE_ALLOWED * expected > 0:
            expected *= NOISE_ALLOWED * expected / noise
        tokens = max(1, round(expected))
        return tokens if max_tokens is None else min(tokens, max_tokens)

    def observe(self, application: str, model: str, tokens: int) -> None:
        """A request that ended by itself had this many output tokens."""
        believed = self._believed(application, model)
        self._tally(self._pairs, (application, model)).observe(tokens, believed)
        self._tally(self._models, ("", model)).observe(tokens, believed)

    def error_tokens(self, application: str, model: str) -> float:
        """How far off predictions for this pair are on the mean; 0 for an unknown pair."""
        tally = self._pairs.get((application, model))
        return tally.error if tally else 0.0

    def errors(self) -> dict[str, tuple[float, float]]:
        """Per model: (mean output tokens, mean error of its predictions in tokens)."""
        return {model: (tally.mean, tally.error) for (_, model), tally in self._models.items()}

    def dump(self, most: int = 2_000) -> list[list[str | float]]:
        """Plain JSON values, for `load`: of all models and of the pairs used last."""
        pairs = islice(self._pairs.items(), max(0, len(self._pairs) - most), None)
        both = (*self._models.items(), *pairs)
        return [[*pair, tally.count, tally.mean, tally.error] for pair, tally in both]

    def load(self, dumped: list[list[str | float]]) -> None:
        for application, model, count, mean, error in dumped:
            tallies = self._pairs if application else self._models
            tally = self._tally(tallies, (str(application), str(model)))
            tally.count, tally.mean, tally.error = int(count), float(mean), float(error)

    def _believed(self, application: str, model: str) -> float:
        prior = _blend(self._models.get(("", model)), PRIOR_TOKENS)
        return _blend(self._pairs.get((application, model)), prior)

    def _tally(self, tallies: OrderedDict[Pair, Tally], pair: Pair) -> Tally:
        tally = tallies.get(pair)
        if tally is None:
            tally = tallies[pair] = Tally()
            if len(tallies) > self._most:
                tallies.popitem(last=False)
        else:
            tallies.move_to_end(pair)
        return tally


def _blend(tally: Tally | None, prior: float) -> float:
    if tally is None:
        return prior
    weight = tally.count + PRIOR_WEIGHT
    return (tally.count * tally.mean + PRIOR_WEIGHT * prior) / weight
