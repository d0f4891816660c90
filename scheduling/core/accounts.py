"""What a tenant has going in all pools together, for the limit that holds over all of them."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from scheduling.core.model import TenantConfig

if TYPE_CHECKING:
    from scheduling.core.counters import Share


class Account:
    """One tenant that has something queued or running."""

    __slots__ = ("applications", "limit", "name", "parked", "queued", "running", "weight")

    def __init__(self, name: str, config: TenantConfig) -> None:
        self.name = name
        self.running = 0
        self.queued = 0
        self.parked: tuple[Share, ...] = ()  # by when they were parked; nearly always none
        self.configure(config)

    def configure(self, config: TenantConfig) -> None:
        self.weight = config.weight
        self.limit = inf if config.max_running is None else config.max_running
        self.applications = config.applications
