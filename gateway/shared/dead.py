"""What a dead gateway held: settled by its estimate, with a record that says so.

The ledger keeps one record of an id: that one, until the gateway's own end of it comes, from its
journal or because it was only paused.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import structlog

from metering.journal import Journal, OpenEntry
from metering.shared.accounts import SharedAccounts

log = structlog.get_logger("fairlane.gateway")


async def sweep(
    replica: str, accounts: SharedAccounts, journal: Journal, tenants: Sequence[str]
) -> None:
    """Everything may be done twice: settling by its id, and the record too."""
    held = await accounts.held_by(replica, tenants)
    for tenant, request_id, entry in held:
        end_held(tenant, request_id, entry, accounts, journal)
    await accounts.ask("leave", replica=replica)
    log.warning("ended what a dead gateway held", replica=replica, requests=len(held))


def end_held(
    tenant: str, request_id: str, entry: str | None, accounts: SharedAccounts, journal: Journal
) -> None:
    if entry is None:
        accounts.end_for_another(tenant, request_id)
        return
    record = msgspec.json.decode(entry, type=OpenEntry).abandoned()
    journal.ended(record)
    tokens = record.prompt_tokens + record.completion_tokens
    accounts.end_for_another(tenant, request_id, tokens, record.cost)
