"""The beat that orders background work: one over all workers, whichever of them has the lock.

Each worker carries one, so that none has to be started by hand. Who does not have the lock looks
for it every few seconds, and takes over where its own file says that it left off.
"""

from __future__ import annotations

from typing import Any

import psycopg
import structlog
from celery.beat import PersistentScheduler

from metering.alone import Held, hold

NAME = "beat"
LOOK_EVERY_S = 3.0

log = structlog.get_logger("fairlane.beat")


class OnlyBeat(PersistentScheduler):
    _held: Held | None = None
    _store: Any = None  # the open file

    def setup_schedule(self) -> None:
        """Once the lock is ours: the file may be that of another on this machine."""

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Returns after how many seconds it is to be called again."""
        if not self._is_mine():
            return LOOK_EVERY_S
        due: float = super().tick(*args, **kwargs)
        return min(due, LOOK_EVERY_S)

    def close(self) -> None:
        if self._held is not None:
            super().close()
            self._held.release()
            self._held = None

    def _is_mine(self) -> bool:
        if self._held is not None and self._held.lasts():
            return True
        self._let_go()
        try:
            self._held = hold(NAME)
        except psycopg.Error as error:  # without a database there is nothing to order either
            log.warning("beat_without_database", error=str(error))
        if self._held is None:
            return False
        super().setup_schedule()
        return True

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None
            self._store.close()
            self._store = self._heap = None
