"""From a new account to a second factor, in a real browser; every page on the way is judged by axe
and kept as a picture."""

from __future__ import annotations

import time
from binascii import unhexlify
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django_otp.oath import TOTP
from django_otp.plugins.otp_totp.models import TOTPDevice
from playwright.sync_api import Page, expect

from tenants import services
from tests import builders
from tests.browser.pictures import picture

pytestmark = pytest.mark.django_db(transaction=True)

OWN = "correct horse battery staple"
SIZES = {"wide": (1440, 900), "narrow": (390, 844)}


class Camera:
    """Looks at a page in both themes and sizes, without leaving it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.faults: list[str] = []

    def look(self, name: str) -> None:
        for size, (width, height) in SIZES.items():
            self.page.set_viewport_size({"width": width, "height": height})
            for scheme in ("light", "dark"):
                self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                picture(self.page, f"{size}/{name}-{scheme}")
            over = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            if over > 0:
                self.faults.append(f"{name}, {size}: {over} px wider than the window")
        self.page.set_viewport_size({"width": 1440, "height": 900})
        for found in Axe().run(self.page).response["violations"]:
            if found["impact"] in ("serious", "critical"):
                self.faults.append(f"{name}: {found['id']}: {found['nodes'][0]['html'][:160]}")


def sign_in(page: Page, username: str, password: str) -> None:
    page.get_by_label("User name").fill(username)
    page.get_by_label("Password").fill(password)
    page.wait_for_load_state()  # so that the event is not this page's own
    with page.expect_event("domcontentloaded"):  # else the next one may fill the page before
        page.get_by_role("button", name="Log in").click()


def code_of(username: str, steps_later: int = 0) -> str:
    device = TOTPDevice.objects.get(user__username=username)
    shown = TOTP(unhexlify(device.key))
    shown.time = time.time() + 30 * steps_later
    return f"{shown.token():06}"


def test_an_admin_adds_somebody_who_chooses_a_password_and_adds_an_authenticator(
    page: Page, live_server: Any, people: dict[str, Any]
) -> None:
    camera = Camera(page)
    page.goto(live_server.url + "/users/")
    sign_in(page, "ada", builders.PASSWORD)
    page.get_by_role("link", name="New user").click()
    page.get_by_label("User name").fill("nina")
    page.get_by_label("Role").select_option("tenant-viewer")
    page.get_by_role("button", name="Add user").click()
    expect(page.get_by_text("needs a tenant")).to_be_visible()
    camera.look("user-new")
    page.get_by_label("Tenant").fill("acme")
    page.get_by_label("Reason").fill("Starts today")
    page.get_by_role("button", name="Add user").click()
    password = page.locator("#secret-1").inner_text()
    camera.look("told-once")
    page.get_by_role("link", name="Done").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("nina")
    page.get_by_role("link", name="Require an authenticator").click()
    camera.look("user-step")
    page.get_by_role("button", name="Require it").click()
    expect(page.get_by_role("status")).to_contain_text("done")
    camera.look("user")
    page.get_by_role("link", name="Users", exact=True).first.click()
    expect(page.get_by_role("row", name="nina")).to_contain_text("one-time password")
    camera.look("users")
    services.create_service_token("acme-ci", "tenant-admin", "acme", actor=builders.ROOT)
    page.get_by_role("link", name="Tokens").click()
    camera.look("tokens")
    page.get_by_role("link", name="New token").click()
    camera.look("token-new")
    page.get_by_role("button", name="Log out").click()

    sign_in(page, "nina", password)
    expect(page.get_by_role("heading", level=1)).to_have_text("Change password")
    page.get_by_label("Present password").fill(password)
    page.get_by_label("New password", exact=True).fill("short")
    page.get_by_label("New password again").fill("short")
    page.get_by_role("button", name="Change password").click()
    expect(page.get_by_text("too short")).to_be_visible()
    camera.look("account-password")
    page.get_by_label("Present password").fill(password)
    page.get_by_label("New password", exact=True).fill(OWN)
    page.get_by_label("New password again").fill(OWN)
    page.get_by_role("button", name="Change password").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Add an authenticator")
    camera.look("account-authenticator")
    page.get_by_label("Code").fill(code_of("nina"))
    page.get_by_role("button", name="Add authenticator").click()
    recovery = page.locator("#codes").inner_text().split()
    camera.look("recovery-codes")
    page.get_by_role("link", name="Done").click()
    expect(page.get_by_text("10 left")).to_be_visible()
    camera.look("account")
    page.get_by_role("link", name="New recovery codes").click()
    page.get_by_role("button", name="Make new codes").click()
    expect(page.get_by_role("alert")).to_contain_text("Not done")
    camera.look("account-code")
    page.get_by_role("button", name="Log out").click()

    sign_in(page, "nina", OWN)
    page.get_by_label("Code").fill("000000")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("does not fit")
    camera.look("login-code")
    TOTPDevice.objects.get(user__username="nina").throttle_reset()
    page.get_by_label("Code").fill(recovery[0])
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Usage")
    page.get_by_role("button", name="Log out").click()

    for _ in range(10):
        sign_in(page, "nina", "wrong")
    expect(page.get_by_role("alert")).to_contain_text("Come back in")
    camera.look("locked-out")
    assert not camera.faults, "\n".join(camera.faults)
