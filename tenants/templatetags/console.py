"""What the console's templates need beside Django's own tags."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django import template
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from tenants.core.permissions import Action
from tenants.core.shown import level
from tenants.core.shown import words as in_words
from tenants.gate import Viewer, viewer_of

register = template.Library()
register.filter(level)  # the class of a meter that is this full

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
NEARLY_ALL = 1 - 1e-9  # what is short of it is not only rounding
THEMES = ("auto", "light", "dark")
THEME_LABELS = {"auto": "the system's colours", "light": "light", "dark": "dark"}


def theme_of(context: template.Context) -> str:
    request = context.get("request")
    chosen = request.COOKIES.get("theme", "auto") if request is not None else "auto"
    return chosen if chosen in THEMES else "auto"


@register.simple_tag(takes_context=True)
def theme_attribute(context: template.Context) -> SafeString:
    theme = theme_of(context)
    return SafeString("") if theme == "auto" else format_html(' data-theme="{}"', theme)


@register.simple_tag(takes_context=True)
def next_theme(context: template.Context) -> dict[str, str]:
    theme = theme_of(context)
    following = THEMES[(THEMES.index(theme) + 1) % len(THEMES)]
    return {
        "current": THEME_LABELS[theme],
        "value": following,
        "label": THEME_LABELS[following],
    }


# What is missing comes as None from Python and as "" from the template engine.
@register.filter
def amount(value: Any, digits: int = 0) -> str:
    """12 345.6 as "12,346"; a dash where there is nothing to tell."""
    if value is None or value == "":
        return "–"
    if isinstance(value, str):
        return value
    return f"{value:,.{digits}f}"


@register.filter
def short(value: float | str | None) -> str:
    """1 234 567 as "1.23 M": for headline figures."""
    if value is None or isinstance(value, str):
        return "–"
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.4g}"


@register.filter
def percent(value: float | str | None, digits: int = 1) -> str:
    """0.123 as "12.3%"; 100% is all of it, and nothing less."""
    if value is None or isinstance(value, str):
        return "–"
    part = value * 100
    if value < NEARLY_ALL:
        part = min(part, 100 - 10.0**-digits)
    return f"{part:.{digits}f}%"


@register.filter
def part_of(value: float | str | None, whole: float | str | None) -> float:
    """0..1; nothing where either is missing."""
    if not value or not whole or isinstance(value, str) or isinstance(whole, str):
        return 0.0
    return min(1.0, max(0.0, value / whole))


@register.filter
def milliseconds(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return "–"
    if value >= 60_000:
        return f"{value / 60_000:.1f} min"
    if value >= 1000:
        return f"{value / 1000:.2f} s"
    return f"{value:.0f} ms"


MOMENTS = {
    "second": "Y-m-d H:i:s",
    "minute": "Y-m-d H:i",
    "day": "Y-m-d",
    "short": "d M H:i:s",
    "soon": "d M H:i",
}


@register.filter
def moment(value: datetime | None, form: str = "second") -> SafeString | str:
    """A `<time>` in the viewer's zone (tenants/zone.py); `form` is one of MOMENTS."""
    if not isinstance(value, datetime):
        return "–"
    machine = value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = date_format(timezone.localtime(value), MOMENTS[form])
    return format_html('<time datetime="{}">{}</time>', machine, text)


@register.simple_tag
def zone() -> str:
    """The name of the zone in which this page's times are."""
    return timezone.get_current_timezone_name()


# heading, then (label, URL name, action that the page needs, names of pages under it)
NAVIGATION: tuple[tuple[str, tuple[tuple[str, str, Action, tuple[str, ...]], ...]], ...] = (
    (
        "Watch",
        (
            ("Overview", "overview", "live.view", ("watch",)),
            ("Usage", "usage", "usage.view", ()),
            ("Alerts", "alerts", "alerts.view", ("alert",)),
        ),
    ),
    (
        "Policy",
        (
            ("Tenants", "tenants", "policy.view", ("tenant", "tenants", "application")),
            ("Tiers", "tiers", "policy.view", ("tier",)),
            ("Lanes", "lanes", "policy.view", ("lane",)),
            ("Pools", "pools", "policy.view", ("pool",)),
            ("Budgets", "budgets", "policy.view", ("corrections", "correction")),
            ("Document", "policy", "policy.view", ("policy",)),
            ("Revisions", "revisions", "policy.view", ("revision",)),
        ),
    ),
    (
        "Access",
        (
            ("Keys", "keys", "keys.view", ("key",)),
            ("Users", "users", "users.view", ("user",)),
            ("Tokens", "tokens", "users.view", ("token",)),
            ("Audit", "audit", "audit.view", ()),
        ),
    ),
    (
        "More",
        (
            ("Your account", "account", "account.edit", ("account",)),
            ("API", "api-docs", "usage.view", ()),
            ("Django admin", "admin:index", "users.edit", ()),
        ),
    ),
)

# page -> how many things wait there; who knows registers it (metering.apps)
BADGES: dict[str, Callable[[], int]] = {}


@register.simple_tag(takes_context=True)
def role_name(context: template.Context) -> str:
    viewer = viewer_in(context)
    if viewer is None:
        return "no role"
    return f"{viewer.role} of {viewer.tenant}" if viewer.tenant else viewer.role


@register.simple_tag(takes_context=True)
def navigation(context: template.Context) -> list[tuple[str, list[dict[str, Any]]]]:
    """What this person may open, with the page they are on marked."""
    viewer, here = viewer_in(context), name_of_page(context)
    if viewer is None:
        return []
    groups = []
    for heading, entries in NAVIGATION:
        shown = [
            {
                "label": label,
                "url": reverse(name),
                "here": is_under(here, name, below),
                "waiting": BADGES[name]() if name in BADGES else 0,
            }
            for label, name, action, below in entries
            if viewer.can(action)
        ]
        if shown:
            groups.append((heading, shown))
    return groups


def is_under(here: str, name: str, below: tuple[str, ...]) -> bool:
    """`tenant-edit` and `application-new` are under Tenants."""
    return here == name or any(here == each or here.startswith(f"{each}-") for each in below)


def name_of_page(context: template.Context) -> str:
    match = getattr(context.get("request"), "resolver_match", None)
    return (match.view_name or "") if match else ""


def viewer_in(context: template.Context) -> Viewer | None:
    request = context.get("request")
    found: Viewer | None = getattr(request, "viewer", None)
    if found is None and request is not None and hasattr(request, "user"):
        found = viewer_of(request.user)
    return found


@register.simple_tag(takes_context=True)
def may(context: template.Context, action: Action) -> bool:
    viewer = viewer_in(context)
    return viewer is not None and viewer.can(action)


@register.simple_tag
def object_url(entry: Any) -> str:
    """Where an audit entry's object is shown; nothing for what has no page of its own."""
    anchor = {"lane": "lanes", "tier": "tiers", "pool": "pools"}.get(entry.kind)
    if anchor:
        return f"{reverse(anchor)}#{entry.kind}-{entry.name}"
    if entry.kind in ("tenant", "application"):
        return reverse("tenant", args=[entry.name.partition("/")[0]])
    if entry.kind == "key":
        return f"{reverse('keys')}?q={entry.name}&state=all"
    if entry.kind in ("alert", "alert_rule", "destination"):
        return reverse("alerts" if entry.kind == "alert" else "alert-rules")
    if entry.kind == "user":
        return reverse("user", args=[entry.name])
    return f"{reverse('tokens')}?q={entry.name}" if entry.kind == "token" else ""


@register.filter
def words(value: Any) -> str:
    """A value of the policy document, or of an audit entry, in words; a moment on the viewer's
    clock."""
    if isinstance(value, str) and MOMENT.fullmatch(value):
        return date_format(timezone.localtime(datetime.fromisoformat(value)), MOMENTS["second"])
    return in_words(value)


@register.filter
def breakable(path: str) -> SafeString:
    """A dotted path that may go on in the next line behind its dots and slashes."""
    parts = re.split(r"(?<=[./])(?=[^./])", path)
    return format_html_join(SafeString("<wbr>"), "{}", ((part,) for part in parts))
