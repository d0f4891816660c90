"""What templates that show usage need beside the console's own tags."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import template
from django.urls import reverse
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe

from metering.core import prose as words
from metering.dashboards.budgets import Left
from metering.dashboards.reasons import Why
from metering.dashboards.reasons import why as why_of
from tenants.templatetags.console import moment

register = template.Library()


@register.filter
def why(record: Any, budgets: Iterable[Left]) -> Why | None:
    """`budgets`: those that its tenant has now."""
    return why_of(record, {each.owned.account: each.kind for each in budgets})


@register.filter
def in_words(text: str) -> str:
    return words.in_words(text)


@register.filter
def prose(text: str) -> SafeString:
    """As `in_words`, with links, and moments in the viewer's zone; for who may see all tenants."""
    return mark_safe("".join(map(_shown, words.pieces(text))))  # noqa: S308 - each is escaped


def _shown(piece: words.Piece) -> str:
    if isinstance(piece, str):
        return str(conditional_escape(piece))
    if piece["at"]:
        return str(moment(words.moment_of(piece), "soon"))
    owner = piece["owner"].partition("/")[0]
    key = f"{reverse('keys')}?q={owner}&state=all"
    url = key if piece["kind"] == "key" else reverse("tenant", args=[owner])
    return format_html('<a href="{}">{}</a>', url, words.budget_words(piece))
