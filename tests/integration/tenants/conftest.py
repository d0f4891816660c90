"""Alice administers the platform; her policy has the tenants `acme` and `bricks`."""

import pytest

from tenants import services
from tests.unit.tenants.policies import POLICY

ALICE = services.Actor("alice", "page", "192.0.2.7")


@pytest.fixture
def alice() -> services.Actor:
    return ALICE


@pytest.fixture
def policy(db: None, alice: services.Actor) -> str:
    """POLICY in force, as revision 1."""
    services.apply_document(POLICY, actor=alice, reason="first")
    return POLICY
