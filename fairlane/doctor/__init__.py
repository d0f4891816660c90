"""`manage.py doctor`: what is right and what is not with a deployment, a line each.

It reads what the deployment left in its database and Redis, and changes nothing. What gateways
know (engines, the state they share) comes from their live samples: it is their view that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fairlane.database_faults import in_its_words, why
from fairlane.doctor import here, running, state, stores
from fairlane.doctor.finding import Finding, fail

# In the order in which one would look: where a store is away, the rest says nothing.
EXAMINED: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
    ("settings", here.settings_are_safe),
    ("settings", here.names_are_known),
    ("secrets", here.secrets_are_there),
    ("database", stores.database),
    ("redis", stores.redis_server),
    ("policy", running.policy),
    ("gateways", running.gateways),
    ("state", state.state),
    ("engines", running.engines),
    ("worker", running.worker),
    ("ledger", running.ledger),
    ("alerts", running.alerts),
)


WITHOUT_DATABASE = ("settings", "secrets", "redis")


def examine() -> Iterator[Finding]:
    """Every finding; a check that breaks is one itself, and the others go on. Without its database
    what it holds is not looked at: each check would wait for it in vain."""
    is_away = False
    for subject, check in EXAMINED:
        if is_away and subject not in WITHOUT_DATABASE:
            continue
        try:
            yield from check()
        except Exception as error:
            if subject == "database" and (reason := why(error)):
                is_away = True
                do = "Mend DATABASE_URL or its server; what it holds was not looked at."
                yield fail(subject, f"{reason} ({in_its_words(error)})", do)
                continue
            yield fail(subject, f"could not be looked at: {type(error).__name__}: {error}".strip())
