"""Where counters and queues are, as each gateway sees it: one place, or out of its reach."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from metering.core.alert_conditions import WORKS
from metering.dashboards.live import Sample

# What a sample's `state` says → how it is called on a page, and what that means.
MEANINGS = {
    "local": ("whole", "Counters and queues are in this one process."),
    "shared": ("whole", "Shared with the other gateways, on Redis."),
    "lost": ("lost", "Lets no call in: each is answered 503, state_unavailable."),
    "apart": ("apart", "Lets calls in on its own, with its part of limits and places."),
}


@dataclass(frozen=True, slots=True)
class Seen:
    """By one gateway."""

    gateway: str
    label: str  # whole, lost, apart
    means: str
    since: datetime | None  # None: an older release's gateway does not tell
    fault: str  # why it is not ready for calls

    @property
    def whole(self) -> bool:
        return self.label == "whole"


def seen_by(samples: Iterable[Sample]) -> list[Seen]:
    return [_seen(sample) for sample in samples]


def _seen(sample: Sample) -> Seen:
    state = str(sample.get("state", ""))
    label, means = MEANINGS.get(state, ("whole" if state in WORKS else state, ""))
    since = sample.get("state_since")
    return Seen(
        str(sample.get("gateway", "?")),
        label,
        means,
        datetime.fromisoformat(since) if since else None,
        str(sample.get("state_fault") or ""),
    )
