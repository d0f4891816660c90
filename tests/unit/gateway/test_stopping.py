"""A gateway's stop while its database hangs: what matters is in the journal by then."""

from __future__ import annotations

import threading

import pytest

from gateway import service
from gateway.service import Gateway


async def test_a_database_that_hangs_is_in_the_way_of_no_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "LEAVE_S", 0.05)
    hangs = threading.Event()
    gateway = Gateway()
    working = [threads.submit(hangs.wait) for threads in (gateway._database, gateway._teller)]
    try:
        await gateway._leave_database()
        assert not any(work.done() for work in working)
    finally:
        hangs.set()
