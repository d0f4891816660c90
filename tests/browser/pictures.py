"""Pictures of pages, as a browser test leaves them in `tests/artefacts/`."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Error, Page

from tests.acceptance.stack import until

ARTEFACTS = Path(__file__).resolve().parent.parent / "artefacts"
REFUSED = "Unable to capture screenshot"


def picture(page: Page, name: str, *, full_page: bool = True) -> None:
    """Keep what `page` looks like as `name`.png once it has loaded.

    Chromium refuses a picture while a page's surface is being exchanged (after a submitted form,
    beside other work), so it is asked until it takes it. No script of the page's is asked whether
    it is ready: a page may run without scripts.
    """
    path = ARTEFACTS / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)

    def taken() -> bool:
        try:
            page.screenshot(path=path, full_page=full_page)
        except Error as error:
            if REFUSED in error.message:
                return False
            raise
        return True

    page.wait_for_load_state()
    until(taken, f"Chromium takes a picture of {name}")
