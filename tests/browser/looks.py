"""How a page looks: pictures in light and dark, wide and narrow, and axe's judgement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from metering.dashboards.boards import KINDS
from tests import builders
from tests.acceptance.stack import until
from tests.browser.pictures import picture
from tests.integration.console.routes import PLACEHOLDER, every

ALL = slice(None)
HALVES = (slice(0, None, 2), slice(1, None, 2))  # of an admin's pages: two workers look at them
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


def pages(
    page: Page, host: str, ids: dict[str, str], part: slice = ALL
) -> Iterator[tuple[str, str]]:
    """What this person may open and what is a whole page, by a name for its pictures."""
    for route in every()[part]:
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


def look_at(page: Page, host: str, seen: list[tuple[str, str]], prefix: str = "") -> None:
    """Fails with all that is wrong with any of them."""
    found: list[str] = []
    for name, address in seen:
        builders.seed_samples(minutes=0)  # a page shows a gateway as running for some seconds
        see(page, host + address)
        found += looks(page, prefix + name)
    assert not found, "\n".join(found)
