"""What a gateway does with journal and ledger, for a test that kills it.

`serve` recovers what its predecessor left and then serves requests for ever, some always open; it
prints `o ID` when one may be asked of an engine and `e ID` when its answer may go out. `report`
recovers and prints what the database holds, as one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections import deque

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fairlane.settings")
django.setup()


def serve(round_number: str, file_bytes: str = "20000") -> None:
    from django.conf import settings

    from metering.journal import Journal
    from metering.ledger import LedgerWriter, recover
    from tests.integration.metering.records import BUDGETS, opening, record

    base = settings.FAIRLANE_DATA_DIR / "journal"
    budget_of = {budget.account: budget for budget in BUDGETS}.get
    recover(base, budget_of)
    journal = Journal.start(base, "mortal", file_bytes=int(file_bytes))
    writer = LedgerWriter(journal, budget_of, interval_s=0.005)
    writer.start()
    still_open = deque()
    number = 0
    while True:
        number += 1
        one = record(request_id=f"{round_number}-{number}", cost=1.0)
        journal.opened(opening(one, estimated_cost=1.0))
        os.write(1, f"o {one.request_id}\n".encode())
        still_open.append(one)
        if len(still_open) > 5:
            done = still_open.popleft()
            journal.ended(done)
            os.write(1, f"e {done.request_id}\n".encode())


def report() -> None:
    from django.conf import settings

    from metering.ledger import recover
    from metering.models import BudgetWindow, UsageRow
    from tests.integration.metering.records import BUDGETS

    base = settings.FAIRLANE_DATA_DIR / "journal"
    recover(base, {budget.account: budget for budget in BUDGETS}.get)
    rows = list(UsageRow.objects.values_list("request_id", "finish_reason", "cost"))
    used = dict(BudgetWindow.objects.values_list("account", "used"))
    print(json.dumps({"rows": rows, "used": used, "left": [path.name for path in base.iterdir()]}))


if __name__ == "__main__":
    serve(*sys.argv[2:]) if sys.argv[1] == "serve" else report()
