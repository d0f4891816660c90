"""What a change would do to what runs now, the same for pages, API and commands.

This package knows policy only; whoever knows the live state gives a reader to `read_live_by`, once,
when Django starts (metering does). Without one nothing is known, and the warnings say so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.db import transaction

from tenants.core.document import Document
from tenants.core.warnings import (
    UNKNOWN,
    LiveState,
    PolicyWarning,
    affected,
    compiled,
    warnings,
)

log = logging.getLogger(__name__)

Reader = Callable[[list[str]], LiveState]  # of the tenants that the change touches
_readers: list[Reader] = []


def read_live_by(reader: Reader) -> None:
    _readers[:] = [reader]


def warnings_of(old: Document, new: Document) -> list[PolicyWarning]:
    """What to tell an admin before `new` replaces `old`; empty where they say the same."""
    if old == new:
        return []
    before, after = compiled(old), compiled(new)
    return warnings(before, after, live_state(affected(before, after)))


def live_state(tenants: list[str]) -> LiveState:
    """A reader that fails must not keep an admin from changing the policy, nor end the
    transaction that this may be part of."""
    try:
        with transaction.atomic():
            return _readers[0](tenants) if _readers else UNKNOWN
    except Exception:
        log.exception("the live state could not be read for a preview")
        return UNKNOWN
