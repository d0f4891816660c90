"""The one door for what metering writes outside the ledger."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from metering.models import GatewaySample


def write_sample(gateway: str, state: dict[str, Any], at: datetime) -> None:
    """Keep one gateway's live state; once a second from each gateway process."""
    GatewaySample.objects.create(gateway=gateway, at=at, state=state)
