"""How a change can fail. In each case nothing has been written."""

from __future__ import annotations

from tenants.core.issue import Invalid

PolicyRefused = Invalid  # the input is wrong; `issues` says all that is


class Conflict(Exception):
    """Somebody else changed it since the caller looked; the message says what is there now."""


class NotFound(LookupError):
    """There is no such object, revision, key or user."""


class NotAllowed(Exception):
    """The actor's role does not grant this, or not for this tenant's objects."""
