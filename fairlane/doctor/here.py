"""What this process's own environment tells: settings and secrets. Run the doctor where the
gateway runs, with its environment."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator

from django.conf import settings
from django.core import checks

from fairlane.doctor.finding import Finding, fail, ok, warn
from tenants.selectors import load_snapshot

INTERNAL = {"FAIRLANE_ROLE", "FAIRLANE_OWN_DOOR"}  # from `serve` to its own processes
WITHOUT_HTTPS = {"security.W004", "security.W008", "security.W012", "security.W016"}


def settings_are_safe() -> Iterator[Finding]:
    found = [
        message
        for message in checks.run_checks(include_deployment_checks=True)
        if not message.is_silenced()
    ]
    if not settings.HTTPS_ONLY:
        found = [message for message in found if message.id not in WITHOUT_HTTPS]
        yield warn(
            "settings",
            "HTTPS_ONLY is off: sessions and keys cross the network as they are",
            "Put a TLS proxy in front and set HTTPS_ONLY=true.",
        )
    for message in found:
        serious = message.level >= checks.ERROR or message.id == "security.W009"
        make = fail if serious else warn
        yield make("settings", f"{message.msg} ({message.id})", message.hint or "")
    if settings.DEBUG:
        yield fail("settings", "DEBUG is on: errors show code and settings", "Unset DEBUG.")
    if not found:
        yield ok("settings", "`manage.py check --deploy` finds nothing else")


def names_are_known() -> Iterator[Finding]:
    """A name that nothing reads is most likely a slip, and what it should set is at its default."""
    known = {name for name in dir(settings) if name.startswith("FAIRLANE_")}
    for name in sorted(os.environ.keys() - known - INTERNAL):
        if name.startswith("FAIRLANE_"):
            like = difflib.get_close_matches(name, known, 1, cutoff=0.5)
            meant = f"Is {like[0]} meant? " if like else ""
            yield warn("settings", f"{name} is no setting", f"{meant}docs/operations.md lists all.")


def secrets_are_there() -> Iterator[Finding]:
    pools = load_snapshot().pools.values()
    named = sorted({pool.api_key_env for pool in pools if pool.api_key_env})
    missing = [name for name in named if not os.environ.get(name)]
    for name in missing:
        yield fail("secrets", f"{name}, the key of a pool's engines, is not set", f"Set {name}.")
    if not missing:
        yield ok("secrets", f"{len(named)} keys of engines named by the policy, none missing")
