"""What the estimators learnt, kept over restarts. Small: `dump` gives the latest used only."""

from __future__ import annotations

from datetime import datetime

import msgspec

from metering.core.error_book import Buckets, ErrorBook
from metering.core.predictor import OutputPredictor
from metering.core.prompt_estimate import PromptEstimator
from metering.models import Learnt

Dump = list[list[str | float]]


class Dumps(msgspec.Struct, frozen=True):
    output: Dump = []
    prompt: Dump = []
    output_errors: dict[str, Buckets] = {}  # by model
    prompt_errors: dict[str, Buckets] = {}


def save(dumps: Dumps, at: datetime) -> None:
    Learnt.objects.update_or_create(
        name="estimates", defaults={"value": msgspec.to_builtins(dumps, str_keys=True), "at": at}
    )


def load() -> Dumps:
    """What was saved last; nothing where that is in a shape of another version."""
    value = Learnt.objects.filter(name="estimates").values_list("value", flat=True).first()
    try:
        return msgspec.convert(value or {}, Dumps, strict=False)
    except msgspec.ValidationError:
        return Dumps()


def restore(
    dumps: Dumps,
    output: OutputPredictor,
    prompt: PromptEstimator,
    output_errors: ErrorBook,
    prompt_errors: ErrorBook,
) -> None:
    output.load(dumps.output)
    prompt.load(dumps.prompt)
    output_errors.load(dumps.output_errors)
    prompt_errors.load(dumps.prompt_errors)
