"""Wrong passwords: after some of them a user name gets a pause from the address they came from.

django-axes counts them, by user name and address; where FAIRLANE_LOGIN_ATTEMPTS is 0 it is not
installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from tenants.services.actors import Actor, require
from tenants.services.audit import record
from tenants.services.rows import user_row


@dataclass(frozen=True, slots=True)
class WrongPasswords:
    """Those of one address that still count. `locked_until` is None while the next right one is
    taken."""

    address: str
    count: int
    locked_until: datetime | None


def wrong_passwords(user: Any) -> list[WrongPasswords]:
    """Of each address, the newest first."""
    if not settings.FAIRLANE_LOGIN_ATTEMPTS:
        return []
    from axes.models import AccessAttempt

    pause = timedelta(minutes=settings.FAIRLANE_LOGIN_LOCK_MINUTES)
    counted = AccessAttempt.objects.filter(
        username=user.get_username(), attempt_time__gt=timezone.now() - pause
    )
    tries: dict[str, int] = {}
    last: dict[str, datetime] = {}
    for each in counted.order_by("-attempt_time"):  # one row for each browser at that address
        address = each.ip_address or "unknown"
        tries[address] = tries.get(address, 0) + each.failures_since_start
        last.setdefault(address, each.attempt_time)
    most = settings.AXES_FAILURE_LIMIT
    return [
        WrongPasswords(address, count, last[address] + pause if count >= most else None)
        for address, count in tries.items()
    ]


def unlock(username: str, *, actor: Actor, reason: str = "") -> int:
    """Forget somebody's wrong passwords, so that the right one is taken at once. Returns how many
    there were; nothing is written where that is none.

    Raises:
        NotFound: there is no such user.
        NotAllowed: the actor may not manage users.
    """
    require(actor, "users.edit")
    with transaction.atomic():
        return forget_wrong_passwords(user_row(username), actor, reason)


def forget_wrong_passwords(user: Any, actor: Actor, reason: str) -> int:
    """Inside a transaction of somebody who has checked that it may be done."""
    count = sum(each.count for each in wrong_passwords(user))
    if not count:
        return 0
    from axes.models import AccessAttempt

    name = user.get_username()
    AccessAttempt.objects.filter(username=name).delete()
    record(actor, "user", name, field="wrong_passwords", old=count, new=0, reason=reason)
    return count
