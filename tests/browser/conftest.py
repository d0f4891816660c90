"""A real Chromium against the console, with data to look at.

Sync Playwright runs an event loop in this thread; Django then takes each query for one inside
async code, and must be told that it is not (`DJANGO_ALLOW_ASYNC_UNSAFE`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.conf import settings as configured
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from metering import alerts
from metering.alerts import services as services_of_alerts
from metering.alerts.services import DestinationValues
from metering.models import Alert, AlertDelivery, AlertDestination
from tenants import services
from tests import builders
from tests.acceptance.stack import PATIENCE_S

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


DESK = {"width": 1440, "height": 900}
REFUSED = ("status of 4", "Status Error Code 4")  # as the browser says it, and as htmx does
PATIENCE_MS = 1000 * PATIENCE_S
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Ends with its file: while Playwright's loop stands, no asyncio test can run here."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.fail("these tests need Debian's Chromium: apt-get install -y chromium")
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()
    os.environ.pop("DJANGO_ALLOW_ASYNC_UNSAFE")


@pytest.fixture
def opened(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a window with a session of its own, as large as a desk's where nothing else is said;
    whatever the console logs as an error in any of them fails the test."""
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def open_one(**options: Any) -> Page:
        contexts.append(chromium.new_context(**{"viewport": DESK, **options}))
        contexts[-1].set_default_timeout(PATIENCE_MS)
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console",
            lambda message: errors.append(message.text) if message.type == "error" else None,
        )
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert not [each for each in errors if not any(said in each for said in REFUSED)], errors


@pytest.fixture
def page(opened: Callable[..., Page]) -> Page:
    return opened()


@pytest.fixture
def people(transactional_db: None, settings: Any) -> dict[str, Any]:
    settings.PASSWORD_HASHERS = builders.FAST_HASHERS
    builders.apply_policy()
    return builders.cast()


@pytest.fixture
def seeded(people: dict[str, Any]) -> dict[str, Any]:
    services.edit_object(
        "tenant", "globex", {"weight": 6}, actor=builders.ROOT, reason="They pay for more"
    )
    services.edit_object("tenant", "globex", {"weight": 7}, actor=builders.ROOT, reason="And more")
    key, _ = services.create_key("acme", "support-bot", "chat widget", actor=builders.ROOT)
    gone, _ = services.create_key("globex", None, "old script", 30, actor=builders.ROOT)
    services.revoke_key(gone.public_id, actor=builders.ROOT, reason="Found in a repository")
    token, _ = services.create_service_token("ci", "operator", actor=builders.ROOT)
    seed_alerts()
    builders.seed_usage(hours=3)
    builders.seed_samples()
    return people | {"ids": {"public_id": key.public_id, "token_id": token.public_id}}


def seed_alerts() -> None:
    """One that was told by mail, one that is acknowledged, one that is over."""
    at, first = datetime.now(UTC), "application:acme/nightly/hourly"
    AlertDestination.objects.create(pk=1, name="on call", shape="email", address="ops@example.com")
    said = f"{first} has used 85% of its 5,000,000 units; its window ends at {at:%Y-%m-%dT%H:%M}Z"
    Alert.objects.create(
        pk=1, kind="budget_near", subject=first, message=said, first_at=at, last_at=at
    )
    AlertDelivery.objects.create(
        alert_id=1, destination_id=1, event="opened", due_at=at, state="sent", sent_at=at
    )
    webhook = DestinationValues("pager", "https://hooks.example.com/T0", "webhook")
    services_of_alerts.create_destination(webhook, actor=builders.ROOT)
    alerts.note("endpoint_down", "http://10.0.0.1:9103/v1 of org/code-7b", "it does not answer", at)
    alerts.note("throttle_rate", "hooli", "hooli: 90 of 100 requests were throttled", at)
    alerts.resolve("throttle_rate", "hooli", at)
    down = Alert.objects.get(kind="endpoint_down")
    services_of_alerts.acknowledge(down.pk, "restarting it", at, actor=builders.ROOT)


@pytest.fixture
def login(client: Any, live_server: Any) -> Any:
    """Put a session's cookie into the page: the login form has a test of its own."""

    def put(page: Page, user: Any) -> None:
        client.force_login(user)
        cookie = {"name": configured.SESSION_COOKIE_NAME, "url": live_server.url}
        cookie["value"] = client.cookies[configured.SESSION_COOKIE_NAME].value
        page.context.add_cookies([cookie])

    return put
