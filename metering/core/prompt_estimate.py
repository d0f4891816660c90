"""Prompt tokens of a body nobody has tokenized: its bytes by a ratio that corrects itself.

1. A new model begins at `FIRST_RATIO` bytes a token; every engine usage seen moves it.
2. Recent requests weigh more, large ones more than small ones: the ratio is of sums, not a mean of
   ratios, so that estimates are right in total.
3. One odd body moves a ratio little: no request weighs more than all remembered before it, and the
   ratio stays between `LEAST_RATIO` and `MOST_RATIO`.
4. At most `most_models` are remembered; those longest unused are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from math import ceil

FIRST_RATIO = 4.0
LEAST_RATIO, MOST_RATIO = 0.5, 32.0
FIRST_TOKENS = 200.0  # how much the first ratio is believed
KEPT = 0.98  # of the past, at each observation


@dataclass(slots=True)
class Calibration:
    bytes: float = FIRST_TOKENS * FIRST_RATIO
    tokens: float = FIRST_TOKENS
    error: float = 0.0  # relative, fading mean; one estimate counts as 1 at most
    seen: int = 0

    @property
    def ratio(self) -> float:
        return min(MOST_RATIO, max(LEAST_RATIO, self.bytes / self.tokens))

    def observe(self, body_bytes: int, tokens: int) -> None:
        self.seen += 1
        off = min(1.0, abs(body_bytes / self.ratio - tokens) / tokens)
        self.error += (off - self.error) * max(1 / self.seen, 1 - KEPT)
        weight = min(1.0, self.tokens / tokens)
        sane_bytes = min(max(body_bytes, LEAST_RATIO * tokens), MOST_RATIO * tokens)
        self.bytes = self.bytes * KEPT + sane_bytes * weight
        self.tokens = self.tokens * KEPT + tokens * weight


class PromptEstimator:
    def __init__(self, most_models: int = 1_000) -> None:
        self._most = most_models
        self._models: OrderedDict[str, Calibration] = OrderedDict()

    def estimate(self, model: str, body_bytes: int) -> int:
        """Tokens in `body_bytes` bytes of prompt text; at least 1."""
        calibration = self._models.get(model)
        ratio = calibration.ratio if calibration else FIRST_RATIO
        return max(1, ceil(body_bytes / ratio))

    def observe(self, model: str, body_bytes: int, tokens: int) -> None:
        """The engine counted `tokens` in a prompt of `body_bytes` bytes."""
        if body_bytes > 0 and tokens > 0:
            self._calibration(model).observe(body_bytes, tokens)

    def errors(self) -> dict[str, tuple[float, float]]:
        """Per model: (bytes a token, mean relative error of its estimates)."""
        return {model: (c.ratio, c.error) for model, c in self._models.items()}

    def dump(self) -> list[list[str | float]]:
        """Plain JSON values, for `load`."""
        return [[model, c.bytes, c.tokens, c.error, c.seen] for model, c in self._models.items()]

    def load(self, dumped: list[list[str | float]]) -> None:
        for model, total, tokens, error, seen in dumped:
            self._models[str(model)] = Calibration(
                float(total), float(tokens), float(error), int(seen)
            )

    def _calibration(self, model: str) -> Calibration:
        calibration = self._models.get(model)
        if calibration is None:
            calibration = self._models[model] = Calibration()
            if len(self._models) > self._most:
                self._models.popitem(last=False)
        else:
            self._models.move_to_end(model)
        return calibration
