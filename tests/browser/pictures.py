"""Pictures of pages, as a browser test leaves them in `tests/artefacts/`."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Error, Page

ARTEFACTS = Path(__file__).resolve().parent.parent / "artefacts"
REFUSED = "Unable to capture screenshot"
TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def picture(page: Page, name: str, *, full_page: bool = True) -> None:
    """Keep what `page` looks like as `name`.png once it has loaded.

    Chromium at times refuses a picture while a page's surface is being exchanged (after a
    submitted form, beside other work), and takes it when asked again: so it is, once more, after
    two frames. A second refusal is raised.
    """
    path = ARTEFACTS / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    page.wait_for_load_state()
    try:
        page.screenshot(path=path, full_page=full_page)
    except Error as error:
        if REFUSED not in error.message:
            raise
        page.evaluate(TWO_FRAMES)
        page.screenshot(path=path, full_page=full_page)
