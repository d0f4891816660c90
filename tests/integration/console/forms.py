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

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name, value = given.get("name") or "", given.get("value") or ""
        if tag == "form":
            self.form = given.get("class") or "other"
        elif self.form != "sheet":
            return
        elif tag == "select":
            self.select = name
        elif tag == "option" and "selected" in given and self.select:
            self.values[self.select] = value
        elif tag == "input" and name:
            self._input(given.get("type") or "text", name, value, "checked" in given)

    def _input(self, kind: str, name: str, value: str, checked: bool) -> None:
        if kind == "checkbox":
            if checked:
                self.values.setdefault(name, []).append(value or "on")
        else:
            self.values[name] = value


def filled(page: Any, **typed: Any) -> dict[str, Any]:
    fields = Fields()
    fields.feed(page.content.decode())
    return fields.values | typed
