"""How much of callers' bodies a process holds while they come in, before any limit is asked; and
for how long.

A body says whose it is before it says what it wants. So a tenant that may have one call running
could begin a thousand large ones, end none, and leave no memory for the others. And one that comes
a byte at a time would hold a connection for good.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from gateway.errors import ApiError, Outcome

BODIES_A_TENANT = 16  # of the largest size, or any number of smaller ones
PATIENCE_S = 30.0  # for any body; a large one has longer, as long as it keeps coming
SLOWEST = 32 * 1024  # bytes a second


def told_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """Of a body, as its caller told; 0 where it did not."""
    told = next((value for name, value in headers if name == b"content-length"), b"")
    return int(told) if told.isdigit() else 0


def due(began: float, received: int) -> float:
    """When more of a body must have come, of which so many bytes are there."""
    return began + PATIENCE_S + received / SLOWEST


class Incoming:
    def __init__(self, max_body_bytes: int) -> None:
        self._most = BODIES_A_TENANT * max_body_bytes
        self._held: Counter[str] = Counter()

    def of(self, tenant: str) -> Body:
        """With it, call what it yields with the size of each part that arrived; it raises
        ApiError (rate_limit_exceeded) past the tenant's bound."""
        return Body(self._held, tenant, self._most)

    @property
    def is_empty(self) -> bool:
        return not self._held


class Body:
    """One that comes in."""

    __slots__ = ("_all", "_held", "_most", "_tenant")

    def __init__(self, held: Counter[str], tenant: str, most: int) -> None:
        self._all = held
        self._tenant = tenant
        self._most = most
        self._held = 0

    def __enter__(self) -> Callable[[int], None]:
        return self._take

    def __exit__(self, *error: object) -> None:
        if self._held:
            self._all[self._tenant] -= self._held
            if not self._all[self._tenant]:
                del self._all[self._tenant]

    def _take(self, size: int) -> None:
        if self._all[self._tenant] + size > self._most:
            message = (
                f"Tenant '{self._tenant}' is sending more than {self._most} bytes at once. "
                "Finish the bodies that are under way first."
            )
            raise ApiError(Outcome.RATE_LIMIT_EXCEEDED, message, retry_after_s=1.0)
        self._held += size
        self._all[self._tenant] += size
