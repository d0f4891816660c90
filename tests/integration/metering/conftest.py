from __future__ import annotations

import pytest

from metering.journal import Journal
from metering.ledger import LedgerWriter
from tests.integration.metering.records import BUDGETS


@pytest.fixture
def base(tmp_path):
    """The folder that holds every gateway's journal."""
    return tmp_path / "journal"


@pytest.fixture
def journal(base):
    journal = Journal.start(base, "gateway:1")
    yield journal
    journal.close()


@pytest.fixture
def budget_of():
    return {budget.account: budget for budget in BUDGETS}.get


@pytest.fixture
def writer(journal, budget_of):
    """A running writer; what a test leaves undone stays in the journal."""
    writer = LedgerWriter(journal, budget_of, interval_s=0.02)
    writer.start()
    yield writer
    writer.stop(10)
