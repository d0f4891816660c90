"""The second factor of local accounts: a code that changes with time, or a recovery code.

1. An authenticator counts once it has shown a right code; until then signing in asks for none.
2. A code works once, and each wrong one makes the next try wait longer, recovery codes included.
3. Where an admin requires it, its owner cannot switch it off.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.crypto import get_random_string
from django_otp.plugins.otp_totp.models import TOTPDevice

from tenants.core.issue import refused
from tenants.core.keys import ID_ALPHABET, digest
from tenants.models import RecoveryCode
from tenants.services.actors import Actor, require
from tenants.services.audit import record
from tenants.services.rows import user_row
from tenants.services.users import membership_row

CODES = 10
CODE_GROUPS, GROUP_LENGTH = 3, 5  # 75 bits: a digest of it cannot be searched


def has_totp(user: Any) -> bool:
    found: bool = TOTPDevice.objects.filter(user=user, confirmed=True).exists()
    return found


def those_with_totp(users: Iterable[Any]) -> set[int]:
    """The primary keys of those of `users` who have an authenticator."""
    found = TOTPDevice.objects.filter(user__in=list(users), confirmed=True)
    return set(found.values_list("user_id", flat=True))


def unconfirmed_totp(user: Any) -> TOTPDevice:
    """The authenticator that `user` is about to add; the same until it is confirmed."""
    device, _ = TOTPDevice.objects.get_or_create(
        user=user, confirmed=False, defaults={"name": "authenticator"}
    )
    return device


def confirm_totp(user: Any, code: str, *, actor: Actor) -> list[str]:
    """The authenticator counts from now on. Returns the recovery codes, told once.

    Raises:
        PolicyRefused: the code is wrong, or there is an authenticator already.
    """
    with transaction.atomic():
        if has_totp(user):
            raise refused("code", "…", "an authenticator is on already; switch it off first")
        device = unconfirmed_totp(user)
        if device.verify_token(_digits(code)):
            device.confirmed = True
            device.save(update_fields=["confirmed"])
            record(actor, "user", user.get_username(), field="totp", old=False, new=True)
            return _new_codes(user)
    # Past the transaction, so that the failure stays counted.
    raise refused("code", "…", f"the code does not fit. {_pause(device)}")


def verify(user: Any, code: str) -> bool:
    """Does `code` stand for the second factor now? A right one is used up by this."""
    with transaction.atomic():
        device = TOTPDevice.objects.select_for_update().filter(user=user, confirmed=True).first()
        if device is None or not device.verify_is_allowed()[0]:
            return False
        if _use_recovery_code(user, code):
            device.throttle_reset()
            return True
        right: bool = device.verify_token(_digits(code))
    return right


def wait_of(user: Any) -> str:
    """When the next try is taken, in words; empty where that is at once."""
    device = TOTPDevice.objects.filter(user=user, confirmed=True).first()
    return _pause(device) if device is not None else ""


def new_recovery_codes(user: Any, *, actor: Actor) -> list[str]:
    """Ten new ones, told once; those before are refused from now on.

    Raises:
        PolicyRefused: there is no authenticator.
    """
    if not has_totp(user):
        raise refused("totp", False, "there is no authenticator to recover; add one first")
    with transaction.atomic():
        record(
            actor, "user", user.get_username(), field="recovery_codes", old="…", new=f"{CODES} new"
        )
        return _new_codes(user)


def drop_totp(user: Any, *, actor: Actor) -> None:
    """One's own: signing in asks for no code from now on.

    Raises:
        PolicyRefused: an admin requires it.
    """
    member = getattr(user, "membership", None)
    if member is not None and member.must_use_totp:
        raise refused("totp", True, "an admin requires it for this account")
    with transaction.atomic():
        _drop(user, actor, "")


def reset_totp(username: str, *, actor: Actor, reason: str = "") -> None:
    """For somebody who has lost authenticator and codes: both go, and the sessions end.

    Raises:
        NotFound: there is no such user.
        NotAllowed: the actor may not manage users.
    """
    require(actor, "users.edit")
    with transaction.atomic():
        user = user_row(username)
        if _drop(user, actor, reason):
            member = membership_row(user)
            member.sessions_since = timezone.now()
            member.save(update_fields=["sessions_since"])


def require_totp(username: str, required: bool, *, actor: Actor, reason: str = "") -> None:
    """Whoever is required and has no authenticator adds one before anything else.

    Raises:
        PolicyRefused: the account has no role.
        NotFound, NotAllowed: as in `reset_totp`.
    """
    require(actor, "users.edit")
    with transaction.atomic():
        member = membership_row(user_row(username))
        if member.must_use_totp != required:
            member.must_use_totp = required
            member.save(update_fields=["must_use_totp"])
            record(
                actor,
                "user",
                username,
                field="must_use_totp",
                old=not required,
                new=required,
                reason=reason,
            )


def _drop(user: Any, actor: Actor, reason: str) -> bool:
    had = has_totp(user)
    TOTPDevice.objects.filter(user=user).delete()
    RecoveryCode.objects.filter(user=user).delete()
    if had:
        name = user.get_username()
        record(actor, "user", name, field="totp", old=True, new=False, reason=reason)
    return had


def _new_codes(user: Any) -> list[str]:
    codes = [_code() for _ in range(CODES)]
    RecoveryCode.objects.filter(user=user).delete()
    RecoveryCode.objects.bulk_create(
        RecoveryCode(user=user, digest=digest(code).hex()) for code in codes
    )
    return codes


def _code() -> str:
    return "-".join(get_random_string(GROUP_LENGTH, ID_ALPHABET) for _ in range(CODE_GROUPS))


def _use_recovery_code(user: Any, code: str) -> bool:
    given = "-".join(code.lower().replace("-", " ").split())
    used, _ = RecoveryCode.objects.filter(user=user, digest=digest(given).hex()).delete()
    return used == 1


def _digits(code: str) -> str:
    return "".join(code.split())


def _pause(device: TOTPDevice) -> str:
    _, why = device.verify_is_allowed()
    until = (why or {}).get("locked_until")
    if until is None:
        return ""
    seconds = max(1, round((until - timezone.now()).total_seconds()))
    return f"Try again in {seconds} s, with a new code."
