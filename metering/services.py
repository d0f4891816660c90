"""The one door for what metering writes outside the ledger."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models.functions import Now

from metering.models import GatewaySample


def write_sample(gateway: str, state: dict[str, Any], at: datetime | None = None) -> None:
    """Keep one gateway's live state; once a second from each gateway process.

    `at` is the database's moment unless told: a gateway whose clock is wrong is heard of like any
    other, and its own `at`, in the state, tells by how much (`selectors.heard`).
    """
    GatewaySample.objects.create(gateway=gateway, at=at or Now(), state=state)
