"""Every page of the URL conf in light and dark, wide and narrow: screenshots to look at, and axe's
judgement. A new page is covered by being there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from metering import alerts
from metering.alerts import services as services_of_alerts
from metering.alerts.services import DestinationValues
from metering.dashboards.boards import KINDS
from metering.models import Alert, AlertDelivery, AlertDestination
from tenants import services
from tests import builders
from tests.acceptance.stack import until
from tests.browser.pictures import picture
from tests.integration.console.routes import PLACEHOLDER, every

pytestmark = pytest.mark.django_db(transaction=True)

PHONE = {"width": 390, "height": 844}
SIZES = {"wide": (1440, 900), "narrow": (390, 844)}
SCHEMES = ("light", "dark")
JUDGED = {("wide", "light"), ("narrow", "dark")}  # by axe: each size and each scheme once
SERIOUS = ("serious", "critical")
MORE = {
    **{f"watch-{name}": f"/watch/{name}/?range=6h" for name in KINDS if name != "overview"},
    "watch-neighbour": "/watch/neighbours/?range=6h&tenant=initech",
    "usage-request": "/usage/?tenant=acme&request=nobody-knows-it",
    "keys-all": "/keys/?state=all",
    "not-found": "/nowhere/",
    "alerts-all": "/alerts/?state=all",
    "destination-new": "/alerts/destinations/new/?shape=webhook",
    "tenants-none": "/tenants/?q=zzz",
    "bulk": "/bulk/tenants/?name=acme&name=hooli",
    "undo-clash": "/revisions/2/revert/",
}
SIDEWAYS = """Array.from(document.querySelectorAll('.table'))
  .filter(each => each.scrollWidth > each.clientWidth + 1)
  .map(each => each.getAttribute('aria-label'))"""


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


def pages(page: Page, host: str, ids: dict[str, str]) -> Iterator[tuple[str, str]]:
    """What this person may open and what is a whole page, by a name for its pictures."""
    for route in every():
        if route.kind == "page" and is_page(page, host + route.at(**ids)):
            name = PLACEHOLDER.sub("one", route.address).replace("/", "-").strip("-")
            yield name or "overview", route.at(**ids)


def is_page(page: Page, address: str) -> bool:
    answer = page.request.get(address, max_redirects=0)
    return answer.status == 200 and answer.text().startswith("<!doctype html>")


def see(page: Page, address: str) -> None:
    page.goto(address)
    if page.locator(".chart").count():
        page.wait_for_selector(".chart .main-svg, .chart .empty")


def looks(page: Page, name: str) -> Iterator[str]:
    """A picture of each look of the page that is open, and what is wrong with it."""
    for size, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            with suppress(AssertionError):  # charts take their new width one after another
                until(lambda: overflow(page) <= 0, "no wider than the window", 10)
            picture(page, f"{size}/{name}-{scheme}")
            if (size, scheme) in JUDGED:
                yield from (f"{name}, {size} {scheme}: {fault}" for fault in faults(page, size))


def faults(page: Page, size: str) -> Iterator[str]:
    if (wide := overflow(page)) > 0:
        yield f"{wide} px wider than the window"
    if size == "narrow":
        yield from (f"scrolls sideways: {label}" for label in page.evaluate(SIDEWAYS))
    for found in Axe().run(page).response["violations"]:
        if found["impact"] in SERIOUS:
            yield f"{found['id']}: {[node['html'][:160] for node in found['nodes'][:3]]}"


def overflow(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))


@pytest.mark.parametrize("role", ["admin", "tenant-admin"])
def test_pages_look_right_and_axe_finds_nothing_serious(
    page: Page, live_server: Any, login: Any, seeded: dict[str, Any], role: str
) -> None:
    login(page, seeded[role])
    found, more = [], MORE if role == "admin" else {}
    seen = [*pages(page, live_server.url, seeded["ids"]), *more.items()]
    for name, address in seen:
        builders.seed_samples(minutes=0)  # a page shows a gateway as running for some seconds
        see(page, live_server.url + address)
        found += looks(page, name if role == "admin" else f"{role}-{name}")
    assert len(seen) > (50 if role == "admin" else 8)
    assert not found, "\n".join(found)


def test_the_page_of_a_new_secret_looks_right(
    page: Page, live_server: Any, login: Any, seeded: dict[str, Any]
) -> None:
    login(page, seeded["tenant-admin"])
    see(page, f"{live_server.url}/keys/{seeded['ids']['public_id']}/rotate/")
    page.get_by_role("button", name="Rotate").click()
    expect(page.get_by_role("heading", name="Key rotated")).to_be_visible()
    assert not list(looks(page, "key-secret"))


def test_the_login_page_looks_right(page: Page, live_server: Any) -> None:
    see(page, live_server.url + "/login/")
    assert not list(looks(page, "login"))


def test_times_are_in_the_viewers_zone_from_the_first_page_after_login(
    opened: Callable[..., Page], live_server: Any, login: Any, people: dict[str, Any]
) -> None:
    page = opened(timezone_id="Asia/Tokyo", viewport=PHONE)
    page.goto(live_server.url + "/login/")
    login(page, people["admin"])
    page.goto(live_server.url + "/audit/")
    expect(page.get_by_text("Times are in Asia/Tokyo.")).to_be_visible()
    moment = page.locator("time").first
    local = page.evaluate(
        "moment => new Date(moment).toLocaleTimeString('en-GB', {timeZone: 'Asia/Tokyo'})",
        moment.get_attribute("datetime"),
    )
    assert moment.inner_text().endswith(local)
    assert (moment.get_attribute("title") or "").endswith(" UTC")


def test_without_a_script_a_wide_table_scrolls_by_keyboard(
    opened: Callable[..., Page], live_server: Any, login: Any, seeded: dict[str, Any]
) -> None:
    page = opened(java_script_enabled=False, viewport=PHONE)
    login(page, seeded["admin"])
    page.goto(live_server.url + "/audit/")
    table = page.get_by_role("region", name="Audit")
    assert table.get_attribute("tabindex") == "0"
    picture(page, "narrow/audit-without-script")
