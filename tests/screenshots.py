"""`make screenshots`: each page of the console under the demo's traffic, into docs/. With names,
as in `python -m tests.screenshots keys watch-lanes`, only those.

Starts what `make run` starts, on a free port and data of its own, sends the demo's traffic, and
takes a picture of every page, wide and narrow, light and dark, while it flows.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import django
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "images" / "pages"
MAKING = FOLDER.with_name("pages.new")
INDEX = ROOT / "docs" / "screenshots.md"
FIRST = ROOT / "docs" / "images" / "overview.webp"  # of the README
DEMO_S, LOOK_AFTER_S = 3600, 150  # it ends with the last picture
QUALITY = 25  # with SCALE: all of it stays under 5 MB
SCALE = {"wide": 0.65, "narrow": 0.72}
LONGEST_PX = {"wide": 2200, "narrow": 2600}  # of a page; what is below is more of the same rows
PEOPLE = {"admin": "", "tenant-admin": "tenant-admin-"}  # role -> how its pictures' names begin
OWN = ("usage", "usage-request", "keys")
LIVE = ("overview", "watch-one", "usage", "tenants", "tenants-one", "lanes", "pools", "alerts")
BOARDS = ("latency", "throttles", "lanes", "pools", "budgets", "neighbours")
FOR_LOOKING = "range=15m"
CRITICAL = {"critical-overview": f"/?{FOR_LOOKING}", "critical-alerts": "/alerts/"}
DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as notes:
        django.setup()
        with demo(notes["url"]):
            time.sleep(LOOK_AFTER_S)
            take(notes, frozenset(sys.argv[1:]))
    sys.stdout.write(f"{len(list(FOLDER.glob('*.webp')))} pictures, {size_of(FOLDER):.1f} MB\n")


@contextmanager
def running(folder: Path) -> Iterator[dict[str, Any]]:
    """What it printed, as `quickstart.json` has it, with the console's address."""
    from tests.acceptance.stack import free_port, until

    port = free_port()
    os.environ |= {
        "PORT": str(port),
        "FAIRLANE_DATA_DIR": str(folder),
        "SECRET_KEY": "only-for-screenshots-" * 3,
        "DJANGO_SETTINGS_MODULE": "fairlane.settings",
        "DJANGO_ALLOW_ASYNC_UNSAFE": "true",  # Playwright's loop runs in this thread
    }
    with (folder / "printed").open("wb") as log:
        started = subprocess.Popen(
            [sys.executable, "-m", "fairlane.quickstart"], cwd=ROOT, stdout=log, stderr=log
        )
    try:
        until(lambda: "Ctrl-C stops" in (folder / "printed").read_text(), "it is ready", 300)
        notes = json.loads((folder / "quickstart.json").read_text())
        yield notes | {"url": f"http://127.0.0.1:{port}"}
    finally:
        started.send_signal(signal.SIGINT)
        started.wait(120)


@contextmanager
def demo(url: str) -> Iterator[None]:
    command = [sys.executable, "manage.py", "demo", "--url", url, "--seconds", str(DEMO_S)]
    sending = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        sending.terminate()  # SIGINT is ignored in what a script has started behind itself
        sending.wait(120)


def take(notes: dict[str, Any], only: frozenset[str] = frozenset()) -> None:
    """The pictures that are there stay until all new ones are taken. `only`: by name, without whose
    page it is; empty: all."""
    from tenants import services
    from tenants.models import ApiKey
    from tests.builders import ROOT as BY

    shutil.rmtree(MAKING, ignore_errors=True)
    if only:
        shutil.copytree(FOLDER, MAKING)
    else:
        MAKING.mkdir(parents=True)
    services.edit_object("tenant", "globex", {"weight": 3}, actor=BY, reason="They pay for more")
    token, _ = services.create_service_token("ci", "operator", actor=BY)
    _, password, _ = services.create_user("tina", "tenant-admin", "acme", actor=BY)
    logins = {"admin": (notes["username"], notes["password"]), "tenant-admin": ("tina", password)}
    key = ApiKey.objects.filter(tenant__name="acme").earliest("id")
    ids = {"public_id": key.public_id, "token_id": token.public_id, "username": "tina"}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--headless", "--no-sandbox"]
        )
        names = ["login"]
        if not only or "login" in only:
            picture(browser.new_page(), "login", f"{notes['url']}/login/")
        for role, (user, secret) in logins.items():
            page = signed_in(browser, notes["url"], user, secret)
            for name, address in sorted(seen(page, notes["url"], ids), key=urgency):
                if role == "tenant-admin" and name not in OWN:
                    continue  # the same page as an admin's
                names.append(PEOPLE[role] + name)
                if not only or name in only:
                    picture(page, PEOPLE[role] + name, notes["url"] + address)
        names += CRITICAL
        if wanted := {name: at for name, at in CRITICAL.items() if not only or name in only}:
            lose_an_endpoint()
            page = signed_in(browser, notes["url"], *logins["admin"])
            for name, address in wanted.items():
                picture(page, name, notes["url"] + address)
        browser.close()
    shutil.rmtree(FOLDER, ignore_errors=True)
    MAKING.rename(FOLDER)
    INDEX.write_text(index(names))


def signed_in(browser: Browser, url: str, user: str, password: str) -> Page:
    page = browser.new_context(timezone_id="Europe/Berlin").new_page()
    page.goto(f"{url}/login/")
    page.get_by_label("User name").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in", exact=True).click()
    page.wait_for_selector("main")
    return page


def seen(page: Page, url: str, ids: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Name and address of each page that this person may open."""
    from tests.browser.looks import pages

    for name, address in pages(page, url, ids):
        asked = FOR_LOOKING if name in ("overview", "usage") else ""
        if name == "watch-one":
            for board in BOARDS:
                chosen = f"{FOR_LOOKING}&tenant=globex" if board == "neighbours" else FOR_LOOKING
                yield f"watch-{board}", f"/watch/{board}/?{chosen}"
        else:
            yield name, f"{address}?{asked}" if asked else address
        if name == "usage":
            yield "usage-request", f"{address}?{asked}&request={refused()}"


def lose_an_endpoint() -> None:
    """One more, where nothing answers. Until its alert is open, which is critical."""
    from metering.models import Alert
    from tenants import selectors, services
    from tests.acceptance.stack import free_port, until
    from tests.builders import ROOT as BY

    pool = selectors.current_document().pools[0]
    urls = [each.url for each in pool.endpoints] + [f"http://127.0.0.1:{free_port()}/v1"]
    more = {"endpoints": [{"url": url} for url in urls]}
    services.edit_object("pool", pool.model, more, actor=BY, reason="A third engine")
    down = Alert.objects.filter(kind="endpoint_down", resolved_at=None)
    until(down.exists, "an endpoint is down", 120)


def refused() -> str:
    """The id of a request of acme's that its budget refused."""
    from metering.models import UsageRow

    return UsageRow.objects.filter(tenant="acme", status=429).latest("at").request_id


def urgency(named: tuple[str, str]) -> tuple[bool, str]:
    """What shows traffic comes first: it does not flow for ever."""
    name, _ = named
    return not (name in LIVE or name.startswith("watch-")), name


def picture(page: Page, name: str, address: str) -> None:
    from tests.browser.looks import SCHEMES, SIZES, see

    for size, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        see(page, address)
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            page.evaluate(DRAWN)
            save(page, MAKING / f"{name}-{size}-{scheme}.webp", width, whole(page, size), size)
            if (name, size, scheme) == ("overview", "wide", "light"):
                save(page, FIRST, width, height + 120, "wide")


def whole(page: Page, size: str) -> int:
    return min(int(page.evaluate("document.documentElement.scrollHeight")), LONGEST_PX[size])


def save(page: Page, path: Path, width: int, height: int, size: str) -> None:
    chrome = page.context.new_cdp_session(page)
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": SCALE[size]}
    asked = {"format": "webp", "quality": QUALITY, "captureBeyondViewport": True, "clip": clip}
    path.write_bytes(base64.b64decode(chrome.send("Page.captureScreenshot", asked)["data"]))
    chrome.detach()


def index(names: list[str]) -> str:
    """A page that shows each wide and light; the other three are a click away."""
    parts = [
        "# Screenshots\n",
        "Every page under the traffic of `manage.py demo`, with simulated engines; "
        "`make screenshots` makes them anew.\n",
    ]
    for name in names:
        links = " · ".join(
            f"[{size}, {scheme}](images/pages/{name}-{size}-{scheme}.webp)"
            for size in ("wide", "narrow")
            for scheme in ("light", "dark")
        )
        title = name.replace("-", " ")
        parts.append(f"## {title}\n\n{links}\n\n![{title}](images/pages/{name}-wide-light.webp)\n")
    return "\n".join(parts)


def size_of(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.iterdir()) / 1e6


if __name__ == "__main__":
    main()
