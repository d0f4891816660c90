"""What an admin does in the console, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tenants import selectors, services
from tenants.core.diff import named
from tests import builders
from tests.acceptance.stack import until
from tests.browser.pictures import picture

pytestmark = pytest.mark.django_db(transaction=True)


def weight_of(tenant: str) -> Any:
    return named(selectors.current_document(), "tenant")[tenant].weight  # type: ignore[attr-defined]


def test_log_in_change_a_weight_see_the_audit_entry_and_take_it_back(
    page: Page, live_server: Any, people: dict[str, Any]
) -> None:
    page.goto(live_server.url)
    page.get_by_label("User name").fill("ada")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("do not match")
    page.get_by_label("User name").fill("ada")
    page.get_by_label("Password").fill(builders.PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")

    page.get_by_role("link", name="Tenants").click()
    page.get_by_role("link", name="acme").click()
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_label("Weight").fill("-1")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing is changed")
    expect(page.get_by_label("Weight")).to_have_attribute("aria-invalid", "true")
    picture(page, "flow-refused")
    page.get_by_label("Weight").fill("16")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("region", name="Changes")).to_contain_text("16")
    page.get_by_role("button", name="Back to the form").click()
    expect(page.get_by_label("Weight")).to_have_value("16")
    page.get_by_role("button", name="Preview").click()
    page.get_by_label("Reason").fill("Launch week")
    picture(page, "flow-preview")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("status")).to_contain_text("Revision 2 is in force")
    assert weight_of("acme") == 16

    page.get_by_role("link", name="Audit").first.click()
    row = page.get_by_role("row", name="Launch week")
    for text in ("ada", "acme", "weight", "8", "16"):
        expect(row).to_contain_text(text)
    row.get_by_role("link", name="2", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Revision 2")
    picture(page, "flow-revision")

    page.get_by_role("link", name="Revisions").first.click()
    page.get_by_role("link", name="Restore… revision 1").click()
    expect(page.get_by_role("region", name="Changes")).to_contain_text("weight")
    page.get_by_role("button", name="Restore").click()
    expect(page.get_by_role("status")).to_contain_text("Revision 3 is in force")
    assert weight_of("acme") == 8
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_two_admins_edit_the_same_tenant_without_javascript(
    opened: Callable[..., Page], live_server: Any, login: Any, people: dict[str, Any]
) -> None:
    page = opened(java_script_enabled=False)
    login(page, people["admin"])
    page.goto(live_server.url + "/tenants/acme/edit/")
    services.edit_object("tenant", "acme", {"weight": 5, "timezone": "UTC"}, actor=builders.ROOT)
    page.get_by_label("Weight").fill("3")
    page.get_by_role("button", name="Preview").click()
    crossed = page.get_by_role("region", name="What changed meanwhile")
    for text in ("When you opened it", "In force now", "Yours", "Asia/Tokyo"):
        expect(crossed).to_contain_text(text)
    picture(page, "flow-conflict")
    expect(page.get_by_role("button", name="Apply")).to_have_count(0)
    assert weight_of("acme") == 5
    crossed.get_by_label("Yours").check()
    page.get_by_role("button", name="Show what my choices do").click()
    page.get_by_label("Reason").fill("Agreed with the other one")
    picture(page, "flow-conflict-solved")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("status")).to_contain_text("in force")
    assert weight_of("acme") == 3


def test_many_tenants_are_changed_at_once_by_keyboard(
    page: Page, live_server: Any, login: Any, people: dict[str, Any]
) -> None:
    login(page, people["admin"])
    builders.seed_samples(minutes=0)
    page.goto(live_server.url + "/tenants/?tier=bronze")
    for name in ("Choose hooli", "Choose umbrella"):
        page.get_by_label(name).press("Space")
    picture(page, "flow-bulk-list")
    page.get_by_role("button", name="Change…").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Change 2 tenants")
    page.get_by_label("Running at once").fill("6")
    picture(page, "flow-bulk-form")
    page.get_by_label("Running at once").press("Enter")
    expect(page.get_by_role("region", name="Changes")).to_contain_text("from tier bronze")
    page.get_by_label("Reason").fill("The nightly batch needs it")
    picture(page, "flow-bulk-preview")
    page.get_by_label("Reason").press("Enter")
    expect(page.get_by_role("status")).to_contain_text("2 tenants changed.")
    found = named(selectors.current_document(), "tenant")
    assert [found[name].limits.max_running for name in ("hooli", "umbrella", "stark")] == [
        6,
        6,
        None,
    ]  # type: ignore[attr-defined]


def test_a_pool_of_many_endpoints_is_made_at_once_and_enter_still_means_preview(
    page: Page, live_server: Any, login: Any, people: dict[str, Any]
) -> None:
    login(page, people["admin"])
    page.goto(live_server.url + "/new/pool/")
    page.get_by_label("Endpoints row 1: URL").fill("http://127.0.0.1:9401/v1")
    page.get_by_role("button", name="More rows").click()
    page.get_by_label("Endpoints row 6: URL").fill("http://127.0.0.1:9406/v1")
    expect(page.get_by_label("Endpoints row 1: URL")).to_have_value("http://127.0.0.1:9401/v1")
    expect(page.get_by_role("alert")).to_have_count(0)
    picture(page, "flow-more-rows")
    page.get_by_label("Model").fill("llama-70b")
    page.get_by_label("Model").press("Enter")
    changes = page.get_by_role("region", name="Changes")
    expect(changes).to_contain_text("127.0.0.1:9401")
    expect(changes).to_contain_text("127.0.0.1:9406")


def test_a_key_is_made_and_its_secret_shown_once(
    page: Page, live_server: Any, login: Any, people: dict[str, Any]
) -> None:
    login(page, people["admin"])
    page.goto(live_server.url + "/new/key/")
    page.get_by_label("Tenant").press_sequentially("cme")
    suggested = page.locator("#tenant-names option")
    expect(suggested).to_have_count(1)
    assert suggested.first.get_attribute("value") == "acme"
    page.get_by_label("Tenant").fill("acmee")
    page.get_by_role("button", name="Create key").click()
    expect(page.get_by_text("Did you mean acme?")).to_be_visible()
    page.get_by_label("Tenant").fill("acme")
    page.get_by_label("Name").fill("browser bot")
    page.get_by_role("button", name="Create key").click()
    secret = page.locator("#secret").inner_text()
    assert secret.startswith("fl_")
    for call in ("curl", "Python, OpenAI's client"):
        expect(page.get_by_role("region", name=f"Call with {call}")).to_contain_text(secret)
    picture(page, "flow-key")
    page.get_by_role("link", name="Done").click()
    expect(page.get_by_role("row", name="browser bot")).to_contain_text("active")
    assert secret not in page.content()


def test_the_overview_refreshes_itself_and_keeps_its_charts(
    page: Page, live_server: Any, login: Any, people: dict[str, Any]
) -> None:
    login(page, people["admin"])
    page.goto(live_server.url)
    expect(page.get_by_text("No gateway is running")).to_be_visible()
    builders.seed_usage(hours=0.3)
    builders.seed_samples(minutes=5)
    page.wait_for_selector("#chart-tokens .main-svg")
    page.locator("#chart-tokens").evaluate("node => { node.dataset.kept = 'yes' }")
    before = page.get_by_text("last 1 h, to").inner_text()
    expect(page.locator("body")).not_to_contain_text(before)
    assert page.locator("#chart-tokens").get_attribute("data-kept") == "yes"
    assert page.locator("#chart-tokens .main-svg").count() > 0


def test_a_chart_is_saved_as_a_picture_and_a_refresh_that_fails_is_told_until_one_succeeds(
    page: Page, live_server: Any, login: Any, people: dict[str, Any]
) -> None:
    login(page, people["admin"])
    builders.seed_usage(hours=0.3)
    builders.seed_samples(minutes=5)
    page.goto(live_server.url + "/?range=15m")
    with page.expect_download() as saving:
        page.get_by_role("button", name="Tokens a minute as PNG").click()
    assert saving.value.suggested_filename == "fairlane-chart-tokens.png"
    saved = Path(saving.value.path()).read_bytes()
    assert saved.startswith(b"\x89PNG")
    assert int.from_bytes(saved[16:20]) == 2400
    notice = page.get_by_text("The page could not be refreshed")
    expect(notice).to_be_hidden()
    page.route("**/?range=15m", lambda route: route.fulfill(status=429, body="no"))
    expect(notice).to_be_visible()
    picture(page, "flow-stale", full_page=False)
    page.unroute("**/?range=15m")
    expect(notice).to_be_hidden()


def test_range_and_exports_are_used_by_keyboard_and_a_refresh_leaves_the_keyboard_where_it_is(
    page: Page, live_server: Any, login: Any, people: dict[str, Any]
) -> None:
    def tab_to(label: str) -> None:
        here, passed = "document.activeElement", list[str]()
        for _ in range(200):
            page.keyboard.press("Tab")
            said = f"{here}.getAttribute('aria-label') || {here}.textContent.trim()"
            passed.append(str(page.evaluate(said))[:40])
            if passed[-1] == label:
                return
        raise AssertionError(f"no way to {label} by Tab: {passed}")

    login(page, people["admin"])
    builders.seed_usage(hours=0.3)
    page.goto(live_server.url + "/watch/latency/?range=6h")
    page.wait_for_selector("#chart-queue .main-svg")
    tab_to("15 min")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"range=15m"))
    page.wait_for_selector("#chart-queue .main-svg")
    tab_to("From … to")
    page.keyboard.press("Enter")
    expect(page.get_by_label("From", exact=True)).to_be_visible()
    for label, file in (
        ("p95 queue time as CSV", "fairlane-latency-queue.csv"),
        ("p95 queue time as PNG", "fairlane-chart-queue.png"),
    ):
        tab_to(label)
        with page.expect_download() as saving:
            page.keyboard.press("Enter")
        assert saving.value.suggested_filename == file
    page.locator("#live > .legend").evaluate("node => { node.dataset.old = 'yes' }")
    expect(page.locator("#live > .legend:not([data-old])")).to_be_visible()  # refreshed
    expect(page.get_by_role("button", name="p95 queue time as PNG")).to_be_focused()


def test_a_refresh_between_press_and_release_takes_no_click_away(
    page: Page, live_server: Any, login: Any, people: dict[str, Any]
) -> None:
    """A link that was replaced meanwhile did nothing."""
    login(page, people["admin"])
    builders.seed_usage(hours=0.3)
    page.goto(live_server.url + "/?range=15m")
    tenants = page.get_by_role("region", name="Tenants")
    tenants.get_by_role("link", name="acme", exact=True).hover()
    page.mouse.down()
    for _ in range(2):  # what came with the first one is in the page when the second one comes
        with page.expect_response("**/?range=15m"):
            pass
    page.mouse.up()
    expect(page).to_have_url(re.compile("/tenants/acme/"))


def test_colours_follow_the_viewers_choice(page: Page, live_server: Any, db: None) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(live_server.url + "/login/")
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    page.context.add_cookies([{"name": "theme", "value": "dark", "url": live_server.url}])
    page.reload()
    assert page.evaluate(ground) != light


def test_what_a_link_leads_to_is_not_under_the_bar(
    page: Page, live_server: Any, login: Any, people: dict[str, Any]
) -> None:
    """Why a request was throttled stood there, with its first line hidden."""
    login(page, people["admin"])
    page.set_viewport_size({"width": 1440, "height": 300})
    page.goto(live_server.url + "/usage/?tenant=acme")
    page.get_by_label("Request id").fill("none-of-these")
    page.get_by_role("button", name="Find").click()
    expect(page.get_by_text("No request of acme has the id")).to_be_visible()
    top = "document.querySelector('#request').getBoundingClientRect().top"
    bar = "document.querySelector('.top').getBoundingClientRect().bottom"
    seen = f"scrollY > 0 && {top} < 300 && {top} >= {bar}"
    until(lambda: page.evaluate(seen), "what was asked for stands below the bar")


def test_on_a_phone_the_menu_opens_by_button_and_closes_by_escape(
    page: Page, live_server: Any, login: Any, people: dict[str, Any]
) -> None:
    login(page, people["admin"])
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(live_server.url + "/lanes/")
    menu = page.get_by_role("navigation", name="Console")
    expect(menu).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    expect(menu).to_be_visible()
    picture(page, "flow-menu", full_page=False)
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()


def test_a_page_loads_nothing_from_elsewhere(
    page: Page, live_server: Any, login: Any, people: dict[str, Any]
) -> None:
    login(page, people["admin"])
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for address in ("/", "/api/docs/", "/tenants/acme/"):
        page.goto(live_server.url + address)
        page.wait_for_load_state("networkidle")
    assert asked
    assert [url for url in asked if not url.startswith(live_server.url)] == []


def test_whoever_is_logged_out_meanwhile_is_asked_to_log_in(
    page: Page, live_server: Any, login: Any, people: dict[str, Any]
) -> None:
    login(page, people["admin"])
    page.goto(live_server.url)
    page.context.clear_cookies()
    page.wait_for_url("**/login/**")
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
