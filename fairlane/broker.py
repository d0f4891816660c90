"""Messages to the worker as files of one folder, where no Redis is set.

Kombu's own transport writes a message in the folder that the worker looks into: one that was read
before it was written to its end ended the worker. Here a message gets its name once it is whole.
"""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, filesystem
from kombu.utils.json import dumps

NAME = "folder"
BEING_WRITTEN = ".part"  # a queue's files end in its own name and .msg


class Channel(filesystem.Channel):
    def _put(self, queue: str, message: Any, **_: Any) -> None:  # type: ignore[override]
        name = f"{time.monotonic_ns() // 10**6}_{uuid.uuid4()}.{queue}.msg"
        whole = Path(self.data_folder_out) / name
        part = whole.with_name(name + BEING_WRITTEN)
        part.write_text(dumps(message), encoding="utf-8")
        part.replace(whole)


class Transport(filesystem.Transport):
    Channel = Channel


def register() -> None:
    """Celery then knows `folder://`."""
    TRANSPORT_ALIASES[NAME] = f"{__name__}:{Transport.__name__}"
