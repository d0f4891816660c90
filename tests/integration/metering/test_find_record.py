"""A record is found by the id that its answer had: the gateway's own, or a trusted proxy's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from metering.models import UsageRow
from metering.selectors import find_record

pytestmark = [pytest.mark.django_db, pytest.mark.store]

OWN = [f"{number:032x}" for number in range(9)]


def row(request_id: str, tenant: str = "acme", days: float = 0) -> None:
    at = datetime.now(UTC) - timedelta(days=days)
    made = UsageRow(request_id=request_id, tenant=tenant, at=at, policy_revision=1)
    UsageRow.objects.bulk_create([made])


def found(name: str, tenant: str | None = None) -> str | None:
    record = find_record(name, tenant)
    return None if record is None else record.request_id


def test_by_the_gateways_id_and_by_the_whole_of_a_named_one() -> None:
    row(OWN[0])
    row(f"{OWN[1]}.edge-1")
    assert found(OWN[0]) == OWN[0]
    assert found(f"{OWN[1]}.edge-1") == f"{OWN[1]}.edge-1"


def test_by_the_proxys_id_the_newest_of_its_tenant_within_a_week() -> None:
    row(f"{OWN[1]}.edge-1", days=0.2)
    row(f"{OWN[2]}.edge-1", days=0.1)
    row(f"{OWN[3]}.edge-1", tenant="globex")
    row(f"{OWN[4]}.edge-2", days=8)
    assert found("edge-1") == f"{OWN[3]}.edge-1"
    assert found("edge-1", "acme") == f"{OWN[2]}.edge-1"
    assert found("edge-2") is None


def test_not_by_a_part_of_it() -> None:
    row(f"{OWN[1]}.a.edge-1")
    for name in ("edge-1", "a", "%", "_" * 8, "", "."):
        assert found(name) is None, name
    assert found("a.edge-1") == f"{OWN[1]}.a.edge-1"
