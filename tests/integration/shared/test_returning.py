"""Whom the database knows to live."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gateway.shared.returning import BEAT_S, heard_ages_s
from metering.models import GatewaySample

pytestmark = [pytest.mark.django_db, pytest.mark.store]


def test_it_knows_how_long_ago_each_gateway_told_of_itself_within_its_lease() -> None:
    now = datetime.now(UTC)
    for gateway, age_s in (("host-a:1", 60), ("host-a:1", 2), ("host-b:1", 3), ("gone:1", 3600)):
        at = now - timedelta(seconds=age_s)
        told = {"gateway": gateway, "at": at.isoformat().replace("+00:00", "Z")}
        GatewaySample.objects.create(gateway=gateway, at=at, state=told)
    ages = heard_ages_s()
    assert "gone:1" not in ages
    if datetime.now(UTC) - now < timedelta(seconds=BEAT_S):  # else this machine is slow
        assert {name: int(age) for name, age in ages.items()} == {"host-a:1": 2, "host-b:1": 3}
