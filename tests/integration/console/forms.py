"""Fill a form of a page as a browser would: its present values, then what a person types."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any


class Fields(HTMLParser):
    """The values that a browser would send for the page's main form."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, Any] = {}
        self.form = ""
        self.select = ""
        self.text = ""

    def handle_data(self, data: str) -> None:
        if self.text:
            self.values[self.text] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name, value = given.get("name") or "", given.get("value") or ""
        if tag == "form":
            self.form = given.get("class") or "other"
        elif self.form != "sheet":
            return
        elif tag == "select":
            self.select = name
        elif tag == "textarea" and name:
            self.text = name
            self.values[name] = ""
        elif tag == "option" and "selected" in given and self.select:
            self.values[self.select] = value
        elif tag == "input" and name:
            self._input(given.get("type") or "text", name, value, "checked" in given)

    def _input(self, kind: str, name: str, value: str, checked: bool) -> None:
        if kind in ("checkbox", "radio"):
            if checked:
                self.values.setdefault(name, []).append(value or "on")
        elif kind == "hidden" and name in self.values:
            known = self.values[name]
            self.values[name] = [*(known if isinstance(known, list) else [known]), value]
        else:
            self.values[name] = value


def filled(page: Any, **typed: Any) -> dict[str, Any]:
    fields = Fields()
    fields.feed(page.content.decode())
    return fields.values | typed


def previewed(client: Any, page: str, **typed: Any) -> Any:
    """The preview of what a person typed into the page's form."""
    return client.post(page, filled(client.get(page), step="preview", **typed))


def applied(client: Any, preview: Any, reason: str = "Because", **chosen: Any) -> Any:
    """What comes of applying a preview, with the pages that it leads to."""
    page = preview.request["PATH_INFO"]
    form = filled(preview, step="apply", reason=reason, **chosen)
    return client.post(page, form, follow=True)


def changed(client: Any, page: str, reason: str = "Because", **typed: Any) -> Any:
    """Form, preview, apply."""
    return applied(client, previewed(client, page, **typed), reason)
